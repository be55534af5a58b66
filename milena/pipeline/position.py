"""Where a stream is: the offsets of its checkpoint, ``{"topic": {"0": 23}}``, as those of Spark's Kafka source.

Beside them are the ids of the topics: a topic that was deleted and made anew has other records at the same offsets, and
nothing but its id tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from milena.pipeline.options import IDS
from milena.protocol.types import ZERO_UUID, TopicPartition
from milena.protocol.uuids import to_text
from milena.tiered.segments.segment_metadata import TopicIdPartition

Json: TypeAlias = dict[str, dict[str, int | str]]
Ends: TypeAlias = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Position:
    """``ends``: of each partition the offset that comes next. ``ids``: of topics, as far as they are known."""

    ends: Ends = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: Json) -> Position:
        """From a checkpoint, also from one without ids."""
        ends = {
            (topic, int(number)): int(end)
            for topic, every in plain.items()
            if topic != IDS
            for number, end in every.items()
        }
        return cls(ends, {topic: str(one) for topic, one in plain.get(IDS, {}).items()})

    def plain(self) -> Json:
        """As JSON has it, always in the same order: Spark compares the texts."""
        found: Json = {}
        for (topic, number), end in sorted(self.ends.items()):
            found.setdefault(topic, {})[str(number)] = end
        ids: dict[str, int | str] = {topic: self.ids[topic] for topic in sorted(found) if topic in self.ids}
        return found | {IDS: ids} if ids else found

    def behind(self, ends: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> Position:
        """Behind more offsets, too, of topics with these ids."""
        return Position({**self.ends, **ends}, {**self.ids, **ids})

    def recreated(self, ids: Mapping[str, str]) -> list[str]:
        """The topics that have another id there."""
        return sorted(topic for topic, one in self.ids.items() if ids.get(topic, one) != one)


def ids_of(partitions: Iterable[TopicIdPartition]) -> dict[str, str]:
    """Without those of clusters that have no topic ids."""
    return {one.topic: to_text(one.topic_id) for one in partitions if one.topic_id != ZERO_UUID}
