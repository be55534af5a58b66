"""Offset commits that are appended to ``__consumer_offsets`` but not committed there. OffsetFetch returns only
committed ones, which a change of leader does not undo."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar, overload

from milena.broker.groups.model import CommittedOffset
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.types import TopicPartition

T = TypeVar("T")
Changes = Mapping[TopicPartition, CommittedOffset | None]
"""What one write changes in a group's offsets; None is a tombstone."""


class Journal:
    """Offset writes to one ``__consumer_offsets`` partition above its high watermark, in log order.

    A group's state contains offsets as soon as they are appended, because the next request is decided on them (as in
    Kafka's CoordinatorRuntime). The journal keeps the last committed values until the writes are committed.
    """

    def __init__(self) -> None:
        self._writes: deque[tuple[int, str, Changes]] = deque()
        self._uncommitted_writes: dict[str, int] = {}
        self._committed_values: dict[str, dict[TopicPartition, CommittedOffset | None]] = {}
        self._ending: dict[str, dict[TopicPartition, int]] = {}
        """The offsets that uncommitted markers have changed, with the ends of these writes."""

    def appended(
        self,
        end: int,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        changes: Changes,
        *,
        ends_transaction: bool = False,
    ) -> None:
        """Note that ``changes`` were appended for a group that had ``offsets`` until then. The write is committed when
        the high watermark reaches ``end``. ``ends_transaction``: it is a marker, which may change several groups.
        Raises BrokenInvariant if ``end`` does not rise."""
        if self._writes and self._writes[-1][0] >= end + ends_transaction:
            last = self._writes[-1][0]
            raise BrokenInvariant(f"offsets of group {group_id} end at {end}, the write before ends at {last}")
        committed_values = self._committed_values.setdefault(group_id, {})
        for partition in changes:
            if partition not in committed_values:
                committed_values[partition] = offsets.get(partition)
        self._uncommitted_writes[group_id] = self._uncommitted_writes.get(group_id, 0) + 1
        self._writes.append((end, group_id, changes))
        if ends_transaction:
            self._ending.setdefault(group_id, {}).update(dict.fromkeys(changes, end))

    def advance(self, high_watermark: int) -> None:
        """Remove the writes below the high watermark: they are committed."""
        while self._writes and self._writes[0][0] <= high_watermark:
            end, group_id, changes = self._writes.popleft()
            if group_id in self._ending:
                self._marker_committed(end, group_id, changes)
            self._uncommitted_writes[group_id] -= 1
            if self._uncommitted_writes[group_id]:
                self._committed_values[group_id].update(changes)
            else:
                del self._uncommitted_writes[group_id], self._committed_values[group_id]

    def _marker_committed(self, end: int, group_id: str, changes: Changes) -> None:
        """Remove the entries of ``changes`` if they are those of a marker."""
        of_group = self._ending[group_id]
        for partition in changes:
            if of_group.get(partition) == end:
                del of_group[partition]
        if not of_group:
            del self._ending[group_id]

    def ending(self, group_id: str) -> Collection[TopicPartition]:
        """The partitions of a group whose offsets were changed by a marker that is not committed."""
        return self._ending.get(group_id, {}).keys()

    def committed(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """The committed offsets of a group whose appended offsets are ``offsets``."""
        committed_values = self._committed_values.get(group_id)
        return offsets if committed_values is None else _Committed(offsets, committed_values)


class _Committed(Mapping[TopicPartition, CommittedOffset]):
    """Appended offsets, with the committed value in place of each uncommitted one."""

    __slots__ = ("_appended", "_committed_values")

    def __init__(self, appended: Mapping[TopicPartition, CommittedOffset], committed_values: Changes) -> None:
        self._appended = appended
        self._committed_values = committed_values

    def __getitem__(self, partition: TopicPartition) -> CommittedOffset:
        if partition not in self._committed_values:
            return self._appended[partition]
        committed = self._committed_values[partition]
        if committed is None:
            raise KeyError(partition)
        return committed

    @overload
    def get(self, partition: TopicPartition, /) -> CommittedOffset | None: ...
    @overload
    def get(self, partition: TopicPartition, /, default: CommittedOffset | T) -> CommittedOffset | T: ...
    def get(self, partition: TopicPartition, /, default: object = None) -> object:
        """Four times as fast as ``Mapping.get``, which catches KeyError."""
        return (
            self._committed_values[partition] or default
            if partition in self._committed_values
            else self._appended.get(partition, default)
        )

    def __iter__(self) -> Iterator[TopicPartition]:
        yield from (partition for partition in self._appended if partition not in self._committed_values)
        yield from (partition for partition, committed in self._committed_values.items() if committed is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
