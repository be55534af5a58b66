"""What a replica does when one of its invariants (ARCHITECTURE.md: Invariants) does not hold."""

from __future__ import annotations


class BrokenInvariant(Exception):
    """A change of a partition's state that must not be. The partition goes offline before anything is answered from it
    (``Partition.end``)."""
