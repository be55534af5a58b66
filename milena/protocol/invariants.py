"""Invariants: conditions that hold for any input from network and disk (ARCHITECTURE.md: Invariants).

They are checked where the state changes, and the message has all numbers. A broken invariant is a bug: the object with
the invalid state (a log, a partition, a request, a group member, a step of a task) is failed before it answers a
request. ``assert`` is not used for these checks, since ``python -O`` removes it.
"""

from __future__ import annotations


class BrokenInvariant(Exception):
    """A change would break an invariant. It was not made, or the changed object is failed."""
