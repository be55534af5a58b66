"""The offsets that open transactions have sent to the groups of one ``__consumer_offsets`` partition (KIP-98, KIP-447),
like the ``pendingTransactionalOffsets`` and ``OpenTransactions`` of Kafka's OffsetMetadataManager
(docs/kafka-semantics.md: Offsets in transactions).

They become offsets of their groups when a commit marker is appended. Until then OffsetFetch with RequireStable answers
UNSTABLE_OFFSET_COMMIT for their partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from milena.broker.groups.model import CommittedOffset
from milena.protocol.types import ProducerId, TopicPartition


class _Open:
    """The open transactions with an offset for one partition of a group, by producer id.

    Each offset has a number, which rises in log order. ``latest`` is that of the group's offset. A marker does not
    replace an offset that was written later than the transaction's: Kafka compares the offsets of their records.
    """

    __slots__ = ("latest", "pending")

    def __init__(self) -> None:
        self.latest = -1
        self.pending: dict[ProducerId, tuple[int, CommittedOffset]] = {}


class TransactionalOffsets:
    """What every open transaction has written, by group. The cost of each method is proportional to the partitions that
    it is called for, or that the transaction has."""

    __slots__ = ("_by_group", "_by_producer", "_writes")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, _Open]] = {}
        self._by_producer: dict[ProducerId, dict[str, dict[TopicPartition, None]]] = {}
        self._writes = 0
        """How many writes were noted, for the numbers of offsets."""

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def add(self, producer_id: ProducerId, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Note that a transaction wrote ``offsets``. They replace what it wrote for the same partitions."""
        if not offsets:
            return
        self._writes += 1
        of_group = self._by_group.setdefault(group_id, {})
        of_producer = self._by_producer.setdefault(producer_id, {}).setdefault(group_id, {})
        for partition, offset in offsets.items():
            found = of_group.get(partition)
            if found is None:
                found = of_group[partition] = _Open()
            found.pending[producer_id] = self._writes, offset
            of_producer[partition] = None

    def wrote(self, group_id: str, changes: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Note that offsets were written without a transaction. Markers of transactions that wrote before do not
        replace them; the transactions stay open. A tombstone (None) removes what open transactions wrote too."""
        of_group = self._by_group.get(group_id)
        if of_group is None:
            return
        self._writes += 1
        for partition, committed in changes.items():
            found = of_group.get(partition)
            if found is None:
                continue
            if committed is not None:
                found.latest = self._writes
                continue
            del of_group[partition]
            for producer_id in found.pending:
                self._forget(producer_id, group_id, partition)
        if not of_group:
            del self._by_group[group_id]

    def _forget(self, producer_id: ProducerId, group_id: str, partition: TopicPartition) -> None:
        of_producer = self._by_producer[producer_id]
        of_group = of_producer[group_id]
        del of_group[partition]
        if not of_group:
            del of_producer[group_id]
            if not of_producer:
                del self._by_producer[producer_id]

    def take(self, producer_id: ProducerId) -> dict[str, dict[TopicPartition, None]]:
        """Note that the transaction's marker was appended. Returns what it had written: ``apply`` has to follow for all
        of it, and for the partitions of a group before any other change of its offsets."""
        return self._by_producer.pop(producer_id, {})

    def apply(
        self, producer_id: ProducerId, group_id: str, partitions: Iterable[TopicPartition], *, commit: bool
    ) -> dict[TopicPartition, CommittedOffset]:
        """Remove partitions that ``take`` returned. Returns the offsets that they have now; none if the transaction was
        aborted."""
        changes: dict[TopicPartition, CommittedOffset] = {}
        of_group = self._by_group[group_id]
        for partition in partitions:
            found = of_group[partition]
            number, offset = found.pending.pop(producer_id)
            if commit and number > found.latest:
                changes[partition] = offset
                found.latest = number
            if not found.pending:
                del of_group[partition]
        if not of_group:
            del self._by_group[group_id]
        return changes

    def groups(self) -> Collection[str]:
        """The groups to which open transactions have written."""
        return self._by_group.keys()

    def partitions(self, group_id: str) -> Collection[TopicPartition]:
        """The partitions of a group for which there are open transactions."""
        return self._by_group.get(group_id, {}).keys()

    def offsets(self, group_id: str, partition: TopicPartition) -> list[CommittedOffset]:
        """What open transactions have written for one partition."""
        found = self._by_group.get(group_id, {}).get(partition)
        return [] if found is None else [offset for _, offset in found.pending.values()]

    def of_producer(self, producer_id: ProducerId) -> int:
        """How many offsets an open transaction has written."""
        return sum(map(len, self._by_producer.get(producer_id, {}).values()))

    def pending(self) -> dict[tuple[str, TopicPartition, ProducerId], tuple[bool, CommittedOffset]]:
        """All that open transactions have written, and whether a commit would apply it now."""
        return {
            (group_id, partition, producer_id): (number > found.latest, offset)
            for group_id, of_group in self._by_group.items()
            for partition, found in of_group.items()
            for producer_id, (number, offset) in found.pending.items()
        }
