"""The position of a stream: the offsets of its checkpoint, ``{"topic": {"0": 23}}``, as in Spark's Kafka source.

It also has the ids of the topics: a topic that was deleted and created again has other records at the same offsets, and
only its id differs.
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
    """A position in several partitions. ``ends``: the next offset to read of each partition. ``ids``: the topics' ids,
    as far as they are known."""

    ends: Ends = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plain: Json) -> Position:
        """Parse a checkpoint, with or without ids."""
        ends = {
            (topic, int(number)): int(end)
            for topic, every in plain.items()
            if topic != IDS
            for number, end in every.items()
        }
        return cls(ends, {topic: str(one) for topic, one in plain.get(IDS, {}).items()})

    def plain(self) -> Json:
        """Return the position for JSON, always in the same order, because Spark compares positions as text."""
        found: Json = {}
        for (topic, number), end in sorted(self.ends.items()):
            found.setdefault(topic, {})[str(number)] = end
        ids: dict[str, int | str] = {topic: self.ids[topic] for topic in sorted(found) if topic in self.ids}
        return found | {IDS: ids} if ids else found

    def advanced(self, ends: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> Position:
        """Return this position advanced to ``ends`` in their partitions. ``ids``: the ids of the topics of ``ends``."""
        return Position({**self.ends, **ends}, {**self.ids, **ids})

    def recreated(self, ids: Mapping[str, str]) -> list[str]:
        """Return the topics whose id in ``ids`` differs from the id in this position: they were deleted and created
        again."""
        return sorted(topic for topic, one in self.ids.items() if ids.get(topic, one) != one)


def ids_of(partitions: Iterable[TopicIdPartition]) -> dict[str, str]:
    """Return the topic ids as text; empty for a cluster without topic ids."""
    return {one.topic: to_text(one.topic_id) for one in partitions if one.topic_id != ZERO_UUID}
