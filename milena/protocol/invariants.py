"""Invariants: what must hold whatever comes from the network or the disk (ARCHITECTURE.md: Invariants).

They are checked where the state changes, with all numbers in the message. One that does not hold is an error of ours:
what it belongs to ends (a log, a partition, a request, the membership of a group, a step of a task) before anything is
answered from it. ``assert`` is not used for that: ``python -O`` drops it.
"""

from __future__ import annotations


class BrokenInvariant(Exception):
    """A change that must not be. It was not made, or ends what it was made to."""
