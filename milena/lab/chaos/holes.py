"""Offsets of tiered topics that nobody can read, since the store has lost the only objects with them.

A reader that is refused at an offset asks for the next ones, until it is answered. It may only be refused in a segment
whose object the place says is lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from milena.lab.histories.events import TopicPartition
from milena.node.client.cluster import Cluster
from milena.node.client.consumer import Consumer
from milena.protocol.errors import KafkaError
from milena.tiered.store.tier_names import parse_folder, parse_object

Hole: TypeAlias = tuple[int, int]
"""First and last offset."""
ASKING: Final = 2.0
"""Seconds for one offset."""


def starts(paths: Collection[str]) -> Mapping[TopicPartition, Sequence[int]]:
    """The start offsets of the segments whose objects these are, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        partition, named = parse_folder(folder.rpartition("/")[2]), parse_object(name)
        if partition is not None and named is not None:
            found.setdefault((partition.topic, partition.partition), []).append(named.start_offset)
    return found


async def hole_at(client: Cluster, place: TopicPartition, at: int, end: int, lost: Sequence[int]) -> Hole | None:
    """The hole that begins at an offset; None if no lost segment begins there or before. ``end``: where the log
    ends."""
    if not any(start <= at for start in lost):
        return None
    first = at
    while at < end and not await _is_read(client, place, at):
        at += 1
    return (first, at - 1) if at > first else None


async def _is_read(client: Cluster, place: TopicPartition, offset: int) -> bool:
    consumer = Consumer(client, reset=None)
    consumer.assign({place: offset})
    try:
        return bool(await consumer.poll(ASKING, max_records=1))
    except KafkaError:
        return False
    finally:
        await consumer.close()
