"""Offsets that are in the log and not committed yet: readers are shown what no loss of the leader can take back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from milena.broker.groups.model import CommittedOffset
from milena.protocol.invariants import BrokenInvariant

TopicPartition = tuple[str, int]
Changes = Mapping[TopicPartition, CommittedOffset | None]
"""What one write does to a group's offsets; None is a tombstone."""


class Journal:
    """The writes to offsets of one partition of ``__consumer_offsets`` above its high watermark, in the log's order.

    The groups themselves have their offsets as they are written (what the next write is decided on, as in Kafka's
    CoordinatorRuntime); this keeps what those offsets were before, until the writes are committed.
    """

    def __init__(self) -> None:
        self._writes: deque[tuple[int, str, Changes]] = deque()
        self._open: dict[str, int] = {}
        self._before: dict[str, dict[TopicPartition, CommittedOffset | None]] = {}

    def wrote(
        self, end: int, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], changes: Changes
    ) -> None:
        """``changes`` to a group that has ``offsets`` are in the log; a high watermark of ``end`` commits them."""
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
        """Of a group that has ``offsets``, those that are committed."""
        before = self._before.get(group_id)
        return offsets if before is None else _Committed(offsets, before)


class _Committed(Mapping[TopicPartition, CommittedOffset]):
    """Offsets as they are written, but for some of which the committed ones are known."""

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

    def __iter__(self) -> Iterator[TopicPartition]:
        yield from (partition for partition in self._written if partition not in self._before)
        yield from (partition for partition, found in self._before.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
