"""Offsets that are appended but not committed. Readers see only committed offsets, which no change of leader takes
back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TypeVar, overload

from milena.broker.groups.model import CommittedOffset
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import TopicPartition

T = TypeVar("T")
Changes = Mapping[TopicPartition, CommittedOffset | None]
"""What one write changes in a group's offsets; None is a tombstone."""


class Journal:
    """Offset writes to one ``__consumer_offsets`` partition above its high watermark, in log order.

    A group's own state contains its offsets as soon as they are appended, because the next write is decided on them (as
    in Kafka's CoordinatorRuntime). The journal keeps the values from before, until the writes are committed.
    """

    def __init__(self) -> None:
        self._writes: deque[tuple[int, str, Changes]] = deque()
        self._open: dict[str, int] = {}
        self._before: dict[str, dict[TopicPartition, CommittedOffset | None]] = {}

    def wrote(
        self, end: int, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], changes: Changes
    ) -> None:
        """``changes`` were appended for a group with these ``offsets``. They are committed when the high watermark
        reaches ``end``."""
        if self._writes and self._writes[-1][0] >= end:
            raise BrokenInvariant(f"offsets of group {group_id} end at {end}, those before at {self._writes[-1][0]}")
        before = self._before.setdefault(group_id, {})
        for partition in changes:
            if partition not in before:
                before[partition] = offsets.get(partition)
        self._open[group_id] = self._open.get(group_id, 0) + 1
        self._writes.append((end, group_id, changes))

    def advance(self, high_watermark: int) -> None:
        """All writes below the high watermark are committed."""
        while self._writes and self._writes[0][0] <= high_watermark:
            _, group_id, changes = self._writes.popleft()
            self._open[group_id] -= 1
            if self._open[group_id]:
                self._before[group_id].update(changes)
            else:
                del self._open[group_id], self._before[group_id]

    def committed(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """The committed ones of a group with these ``offsets``."""
        before = self._before.get(group_id)
        return offsets if before is None else _Committed(offsets, before)


class _Committed(Mapping[TopicPartition, CommittedOffset]):
    """Offsets as appended, except those whose committed values are known to differ."""

    __slots__ = ("_before", "_written")

    def __init__(self, written: Mapping[TopicPartition, CommittedOffset], before: Changes) -> None:
        self._written = written
        self._before = before

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        if partition not in self._before:
            return self._written[partition]
        found = self._before[partition]
        if found is None:
            raise KeyError(partition)
        return found

    @overload
    def get(self, partition: TopicPartition, /) -> CommittedOffset | None: ...
    @overload
    def get(self, partition: TopicPartition, /, default: CommittedOffset | T) -> CommittedOffset | T: ...
    def get(self, partition: TopicPartition, /, default: object = None) -> object:
        """Four times as fast as the mapping's own, which catches KeyError."""
        return (
            self._before[partition] or default if partition in self._before else self._written.get(partition, default)
        )

    def __iter__(self) -> Iterator[TopicPartition]:
        yield from (partition for partition in self._written if partition not in self._before)
        yield from (partition for partition, found in self._before.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
