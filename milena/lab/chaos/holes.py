"""Offsets of tiered topics that cannot be read, because the store has lost the only objects with their records.

A reader that gets an error at an offset tries the next ones until it gets records. Errors are permitted only at offsets
of segments whose objects the place has lost, according to the metadata of the tier; each object explains one hole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.protocol.errors import KafkaError
from milena.protocol.types import Offset, TopicPartition
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.serialization import deserialize
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.tier_names import parse_object

Hole: TypeAlias = tuple[int, int]
"""First and last offset."""
ASKING: Final = 2.0
"""Seconds for one offset."""


class Excuses:
    """The holes that lost objects explain, by partition."""

    def __init__(self, lost: Mapping[TopicPartition, Collection[Hole]]) -> None:
        """``lost``: the offsets of each object."""
        self._left = {place: sorted(objects) for place, objects in lost.items()}

    def take(self, place: TopicPartition, hole: Hole) -> bool:
        """Whether lost objects explain all of a hole. An object that was used explains no other hole."""
        left = self._left.get(place, [])
        at, taken = hole[0], []
        while at <= hole[1]:
            fitting = [one for one in left if one[0] <= at <= one[1] and one not in taken]
            if not fitting:
                return False
            taken.append(min(fitting, key=lambda one: one[1]))
            at = taken[-1][1] + 1
        for one in taken:
            left.remove(one)
        return True


async def excuses(client: Cluster, paths: Collection[str]) -> Excuses:
    """Return the holes that the objects at ``paths`` explain. Raise KafkaError, ChannelError,
    UnreadableRemoteLogRecord."""
    named = (parse_object(path.rpartition("/")[2]) for path in paths)
    lost = {one.id for one in named if one is not None}
    found: dict[TopicPartition, set[Hole]] = {}
    for segment in (await _segments(client)).values() if lost else ():
        if segment.id in lost:
            place = segment.partition.topic, segment.partition.partition
            found.setdefault(place, set()).add((segment.start_offset, segment.end_offset))
    return Excuses(found)


async def _segments(client: Cluster) -> Mapping[UUID, RemoteLogSegmentMetadata]:
    """Return all segments in the metadata topic of the tier."""
    found: dict[UUID, RemoteLogSegmentMetadata] = {}
    topic = await client.topic(REMOTE_LOG_METADATA_TOPIC)
    for number in topic.partitions:
        place = REMOTE_LOG_METADATA_TOPIC, number
        at = (await find_offset(client, *place, EARLIEST)).offset
        end = (await find_offset(client, *place, LATEST)).offset
        consumer = Consumer(client, reset=None)
        consumer.assign({place: at})
        while at < end:
            for record in await consumer.poll(ASKING):
                event = deserialize(record.value, Offset(record.offset))
                if isinstance(event, RemoteLogSegmentMetadata):
                    found[event.id] = event
            at = consumer.position(*place) or 0
        await consumer.close()
    return found


async def hole_at(client: Cluster, place: TopicPartition, at: int, end: int, lost: Excuses) -> Hole | None:
    """Return the hole that begins at an offset; None if there is none or lost objects do not explain it. ``end``: the
    end of the log."""
    first = at
    while at < end and not await _is_read(client, place, at):
        at += 1
    hole = first, at - 1
    return hole if at > first and lost.take(place, hole) else None


async def _is_read(client: Cluster, place: TopicPartition, offset: int) -> bool:
    consumer = Consumer(client, reset=None)
    consumer.assign({place: offset})
    try:
        return bool(await consumer.poll(ASKING, max_records=1))
    except KafkaError:
        return False
    finally:
        await consumer.close()
