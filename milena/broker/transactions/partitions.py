"""The partitions of a transaction, grouped by topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from milena.protocol.types import TopicPartition

Indices = Mapping[int, None]
"""The partitions of one topic, in the order in which they were added."""
_NONE: Final[Indices] = MappingProxyType({})


class TransactionPartitions(Mapping[TopicPartition, None]):
    """A set of partitions that never changes, ordered by topic. A transaction may have 100,000 of them, and each
    request makes the next set: sets share the topics that do not change, and are compared and encoded by topic."""

    __slots__ = ("_by_topic", "_count")

    def __init__(self, by_topic: Mapping[str, Indices] = MappingProxyType({})) -> None:
        """``by_topic``, which must not change any more, has no topic without partitions."""
        self._by_topic = by_topic
        self._count = sum(map(len, by_topic.values()))

    @property
    def by_topic(self) -> Mapping[str, Indices]:
        return self._by_topic

    def adding(self, partitions: Iterable[TopicPartition]) -> TransactionPartitions:
        """This set with more partitions."""
        changed: dict[str, dict[int, None]] = {}
        for topic, index in partitions:
            indices = changed.get(topic)
            if indices is None:
                indices = changed[topic] = dict(self._by_topic.get(topic, _NONE))
            indices[index] = None
        return TransactionPartitions({**self._by_topic, **changed})

    def includes(self, other: TransactionPartitions) -> bool:
        """Whether this set has all partitions of the other one."""
        mine = self._by_topic
        return other is self or all(
            (found := mine.get(topic, _NONE)) is indices or found.keys() >= indices.keys()
            for topic, indices in other._by_topic.items()
        )

    def __getitem__(self, partition: TopicPartition) -> None:
        topic, index = partition
        return self._by_topic[topic][index]

    def __contains__(self, partition: object) -> bool:
        if not isinstance(partition, tuple):
            return False
        topic, index = partition
        return index in self._by_topic.get(topic, _NONE)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, indices in self._by_topic.items():
            for index in indices:
                yield topic, index

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TransactionPartitions):
            return other is self or self._by_topic == other._by_topic
        return super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TransactionPartitions({dict(self._by_topic)})"


NO_PARTITIONS: Final = TransactionPartitions()
