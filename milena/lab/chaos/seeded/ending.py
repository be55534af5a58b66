"""The final state of a simulated cluster after all faults, as events that end a history.

It must hold then:

- All brokers are there, and every partition has a leader. All replicas are in sync, except followers that need a lost
  object of the tier.
- Leaders of tiered partitions have copied all their closed segments below the high watermark.
- Every record from the log start to the end is read, with its value, from local or remote segments. Only records whose
  objects are lost may be missing, and reads of them fail with an error (``tier_losses``).
- The group reaches the ends of its topic; topics and configurations are as they were acknowledged.
- The tier has no segment of a deleted topic, unless the responsible leader has ended since.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Final

from milena.client import admin
from milena.client.cluster import Cluster, ClusterView
from milena.client.consumer import Consumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.lab.chaos.seeded.tier_losses import Losses
from milena.lab.chaos.seeded.workload import GROUP, name_of
from milena.lab.cluster import SimulatedCluster
from milena.lab.histories.events import AllTopics, Event, FinalLog, FinalTopic, RequestOutcome
from milena.lab.histories.group_events import NO_OFFSET, OffsetFetch
from milena.lab.world.tiering import FOLDER
from milena.node.links.outgoing import ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import TopicPartition
from milena.storage.log.unified_log import UnifiedLog
from milena.tiered.store.tier_names import ROOT, parse_folder


class NotHealthy(AssertionError):
    """The cluster did not recover."""


UNCLEAN: Final = 1
"""An election type."""
TOPIC_VALUE: Final = 1
"""The config source of a value that was set for a topic."""


async def healthy(
    client: Cluster, brokers: int, lost: Collection[TopicPartition], losses: Losses, *, seconds: float
) -> ClusterView:
    """The cluster's metadata, once all brokers are there, every partition has a leader and every replica is in sync, or
    excused.

    Partitions that have ``lost`` records may have no leader, for example if the disk of the last in-sync replica was
    replaced: an unclean election is then requested. Raises NotHealthy after ``seconds``.
    """
    missing = ["no broker answers"]
    try:
        async with asyncio.timeout(seconds):
            while missing:
                await asyncio.sleep(0.5)
                try:
                    view = await client.metadata()
                except ChannelError as error:
                    missing = [str(error)]
                else:
                    missing = _missing(view, brokers, losses)
                    await _elect_uncleanly(client, [partition for partition in lost if _is_leaderless(view, partition)])
    except TimeoutError:
        raise NotHealthy(f"after {seconds} seconds: {'; '.join(missing)}") from None
    return view


def _is_leaderless(view: ClusterView, partition: TopicPartition) -> bool:
    topic = view.topics.get(partition[0])
    return topic is not None and partition[1] in topic.partitions and topic.partitions[partition[1]].leader == -1


async def _elect_uncleanly(client: Cluster, partitions: Collection[TopicPartition]) -> None:
    for topic, number in partitions:
        with contextlib.suppress(ChannelError):
            await client.ask_any(
                ApiKey.ELECT_LEADERS,
                election_type=UNCLEAN,
                topic_partitions=[{"topic": topic, "partitions": [number]}],
                timeout_ms=5000,
            )


def _missing(view: ClusterView, brokers: int, losses: Losses) -> list[str]:
    found = [] if len(view.brokers) == brokers else [f"only brokers {sorted(view.brokers)} are there"]
    for topic in view.topics.values():
        for number, one in topic.partitions.items():
            behind = set(one.replicas).difference(one.isr)
            if one.leader == -1 or not all(losses.excuse((topic.name, number), broker) for broker in behind):
                name = f"{topic.name}-{number}"
                found.append(f"{name} has leader {one.leader}, replicas {one.replicas}, ISR {one.isr}")
    return found


async def copied(cluster: SimulatedCluster, *, seconds: float) -> None:
    """Wait until every leader of a tiered partition has copied all its closed segments, and the tier has nothing of
    deleted topics. Raises NotHealthy after ``seconds``."""
    missing = _not_copied(cluster) + _not_erased(cluster)
    try:
        async with asyncio.timeout(seconds):
            while missing:
                await asyncio.sleep(0.5)
                missing = _not_copied(cluster) + _not_erased(cluster)
    except TimeoutError:
        raise NotHealthy(f"after {seconds} seconds: {'; '.join(missing)}") from None


def _not_copied(cluster: SimulatedCluster) -> list[str]:
    found = []
    for number, broker in cluster.brokers.items():
        for partition in broker.partitions:
            log = partition.log
            if log is None or not partition.is_leader or not log.remote_enabled:
                continue
            copied, closed = log.highest_offset_in_remote_storage + 1, _closed(log)
            if max(copied, log.log_start_offset) < closed:
                found.append(f"{log.topic}-{log.partition} of broker {number}: {copied} of {closed} are in the tier")
    return found


def _closed(log: UnifiedLog) -> int:
    """The base offset of the last segment after all committed closed ones."""
    return max(
        (segment.base_offset for segment in log.segments if segment.base_offset <= log.high_watermark), default=0
    )


def _not_erased(cluster: SimulatedCluster) -> list[str]:
    assert cluster.controller is not None
    assert cluster.watch is not None
    topics, deletions = cluster.controller.state.image.topics_by_id, cluster.watch.deletions
    found = []
    for path in cluster.world.tier.files:
        if path.startswith(f"{FOLDER}/{ROOT}/"):
            partition = parse_folder(path.split("/")[-2])
            if partition is None or partition.topic_id in topics:
                continue
            if not deletions.is_excused(partition.topic_id, partition.partition):
                found.append(f"{path} is of a topic that was deleted")
    return found


async def final_logs(client: Cluster, partitions: Sequence[TopicPartition], losses: Losses) -> list[FinalLog]:
    """Each log from its start to its end."""
    return [await _final_log(client, topic, number, losses) for topic, number in partitions]


async def _final_log(client: Cluster, topic: str, number: int, losses: Losses) -> FinalLog:
    start = (await find_offset(client, topic, number, EARLIEST)).offset
    end = (await find_offset(client, topic, number, LATEST)).offset
    consumer = Consumer(client, reset=None)
    consumer.assign({(topic, number): start})
    found: list[tuple[int, str, int]] = []
    holes: list[tuple[int, int]] = []
    at = start
    while at < end:
        try:
            records = await consumer.poll(5)
        except KafkaError:
            hole = losses.hole_at((topic, number), at)
            if hole is None:
                raise
            holes.append(hole)
            at = hole[1] + 1
            consumer.seek(topic, number, at)
            continue
        for record in records:
            found.append((record.offset, name_of(record), record.leader_epoch))
            at = record.offset + 1
    await consumer.close()
    return FinalLog((topic, number), tuple(found), start, dense=True, holes=tuple(holes))


async def final_topics(client: Cluster, names: Collection[str]) -> list[Event]:
    """Each topic with its own configuration. A topic that was deleted meanwhile is left out: its deletion was still in
    flight, and is in the history."""
    found: list[Event] = []
    for name in names:
        try:
            entries = await admin.describe_configs(client, 2, name)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            continue
        found.append(
            FinalTopic(name, {entry.name: entry.value or "" for entry in entries if entry.source == TOPIC_VALUE})
        )
    return [*found, AllTopics(len(found))]


async def final_commits(client: Cluster, partitions: Collection[TopicPartition]) -> list[Event]:
    """The group's committed offset of each partition."""
    clock = client.runtime.clock
    begun = clock.monotonic()
    offsets = await admin.group_offsets(client, GROUP)
    head = (GROUP, "", begun, clock.monotonic(), RequestOutcome.OK)
    return [OffsetFetch(*head, partition, offsets.get(partition, NO_OFFSET)) for partition in partitions]
