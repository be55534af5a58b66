"""Transactions that consume, transform and produce: the outputs of a group's transactions and its committed offsets
must agree."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

Finding: TypeAlias = tuple[str, str]
WITHOUT_OUTPUTS = "offsets without outputs"
WITHOUT_OFFSETS = "outputs without offsets"


class Processed(NamedTuple):
    """A transaction has processed ``[first, next)`` of a partition. ``took_effect``: None if that cannot be known."""

    first: int
    next: int
    transaction: str
    took_effect: bool | None


def disagreements(processed: Sequence[Processed], committed: int, inputs: Sequence[int]) -> Iterator[Finding]:
    """Yield the disagreements of one group and one partition. ``committed``: the group's last offset; -1 for none.
    ``inputs``: the offsets of the visible records of the partition, in order.

    Records may be missing in all ranges only at or above the committed offset, and no record may be in two."""
    reached, by = 0, ""
    for one in sorted(one for one in processed if one.took_effect):
        if one.next > committed:
            yield WITHOUT_OFFSETS, f"{one.transaction} has processed up to {one.next}; the group has {committed}"
        if by and one.first < reached:
            yield WITHOUT_OFFSETS, f"{one.transaction} has processed from {one.first}, and {by} up to {reached}"
        if one.next > reached:
            reached, by = one.next, one.transaction
    at = 0
    ranges = sorted((one.first, one.next) for one in processed if one.took_effect is not False)
    for first, end in (*ranges, (committed, committed)):
        index = bisect_left(inputs, at)
        if index < len(inputs) and inputs[index] < min(first, committed):
            yield WITHOUT_OUTPUTS, f"no transaction has processed {inputs[index]}; the group has {committed}"
        at = max(at, end)
