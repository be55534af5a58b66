"""A controller and two brokers under load and faults, from one seed: what happens, and whether it was right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from lab.cluster import SimulatedCluster, start_cluster
from lab.history import Ending, History, Stored, violations
from lab.nemesis import Nemesis
from lab.trace import Trace
from lab.workload import GROUP, Workload
from lab.world import World, simulate
from node.client import admin
from node.client.cluster import Cluster, ClusterView
from node.client.consumer import Consumer, TopicPartition
from node.client.offsets import EARLIEST, LATEST, find_offset
from node.outgoing import ChannelError
from protocol.errors import KafkaError
from runtime.randomness import Randomness

BROKERS: Final = 2
PARTITIONS: Final = 2
SYNCED: Final = "synced"
"""Every append is synced before it is answered."""
PLAIN: Final = "plain"
"""Synced when a segment is full, as Kafka does. Segments are small."""
TOPICS: Final = {
    SYNCED: {"flush.messages": "1", "internal.segment.bytes": "20000"},
    PLAIN: {"internal.segment.bytes": "5000"},
}
DISKS: Final = ("/data-1", "/data-2")
METADATA_DISK: Final = "/metadata"
"""Of the brokers. Without it a broker ends; it lives on with one of the others."""
SETTINGS: Final[dict[str, object]] = {
    "broker_session_timeout_ms": 3000,
    "broker_heartbeat_interval_ms": 500,
    "group_min_session_timeout_ms": 1000,
    "replica_high_watermark_checkpoint_interval_ms": 1000,
    "metadata_log_max_record_bytes_between_snapshots": 20_000,
}
FAULTS: Final = 6
"""Of nodes, in one run; those of links come on top."""
LONGEST_RUN: Final = 900.0
RECOVERY_SECONDS: Final = 120.0
"""Virtual time in which everything must work again after the last fault."""


@dataclass(frozen=True)
class Report:
    """One run. ``digest`` is of all that was delivered and noted: equal for equal seeds."""

    digest: str
    violations: list[str]
    trace: list[str]
    history: History


def run_seed(seed: int, *, faults: int = FAULTS, listener: Callable[[str], object] | None = None) -> Report:
    """Run one seed to its end. Raises what a broken invariant raises; rules that were broken are in the report."""

    async def run(world: World) -> Report:
        async with asyncio.timeout(LONGEST_RUN):
            return await _Run(world, seed, listener).run(faults)

    return simulate(run, seed=seed)


class _Run:
    def __init__(self, world: World, seed: int, listener: Callable[[str], object] | None) -> None:
        self._world = world
        self._random = Randomness(seed)
        self._trace = Trace(listener)
        self._history = History()
        self._workload: Workload

    async def run(self, faults: int) -> Report:
        of_brokers = {"log_dirs": ",".join(DISKS), "metadata_log_dir": METADATA_DISK}
        cluster = await start_cluster(self._world, BROKERS, SETTINGS, of_brokers=of_brokers, watched=True)
        self._trace.note(f"{BROKERS} brokers serve")
        async with cluster.client() as client:
            new = [admin.NewTopic(name, PARTITIONS, 1, configs=configs) for name, configs in TOPICS.items()]
            assert set((await admin.create_topics(client, new)).values()) == {None}
            await self._work(cluster, client, faults)
            ending = await self._find(client)
        self._check_failures(cluster)
        found = violations(self._history, ending) + _disagreements(cluster)
        for text in found:
            self._trace.note(f"WRONG: {text}")
        for broker in cluster.brokers:
            await cluster.stop_broker(broker)
        await cluster.stop_controller()
        self._trace.note(f"{len(self._history.writes)} records written, {len(self._history.seen)} read; all stopped")
        return Report(f"{self._world.digest()}-{self._trace.digest()}", found, self._trace.lines, self._history)

    async def _work(self, cluster: SimulatedCluster, client: Cluster, faults: int) -> None:
        """Clients work while faults come; then they work a little longer, on what is mended."""
        workload = self._workload = Workload(client, self._history, self._trace, self._random)
        nemesis = Nemesis(cluster, self._history, self._trace, self._random, (*DISKS, METADATA_DISK))
        partitions = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        working: list[Coroutine[Any, Any, None]] = [workload.write(*partition, pause=0.3) for partition in partitions]
        working += [workload.read(partitions), workload.share(SYNCED), workload.share(SYNCED), workload.administer()]
        async with asyncio.TaskGroup() as clients:
            for number, work in enumerate(working):
                clients.create_task(work, name=f"client {number}")
            async with asyncio.TaskGroup() as troubles:
                troubles.create_task(nemesis.trouble_nodes(faults))
                troubles.create_task(nemesis.trouble_links(faults // 3))
            self._trace.note("everything is mended")
            await asyncio.sleep(5)
            workload.stopping.set()

    async def _find(self, client: Cluster) -> Ending:
        """What the cluster holds now."""
        async with asyncio.timeout(RECOVERY_SECONDS):
            view = await self._healthy(client)
            logs = {
                (topic, number): await _read_all(client, topic, number)
                for topic in TOPICS
                for number in range(PARTITIONS)
            }
            await self._drain_group(client, logs)
            topics = {name: await _configs_of(client, name) for name in view.topics if name.startswith("made-")}
            commits = await admin.group_offsets(client, GROUP)
        hosts = {(topic, number): view.topics[topic].partitions[number].leader for topic, number in logs}
        return Ending(logs, hosts, frozenset((SYNCED,)), topics, commits)

    async def _healthy(self, client: Cluster) -> ClusterView:
        """The cluster, once all brokers are there and every partition has a leader."""
        while True:
            try:
                view = await client.metadata()
            except ChannelError:
                await asyncio.sleep(0.5)
                continue
            leaders = [one.leader for topic in view.topics.values() for one in topic.partitions.values()]
            if len(view.brokers) == BROKERS and -1 not in leaders:
                return view
            await asyncio.sleep(0.5)

    async def _drain_group(self, client: Cluster, logs: dict[TopicPartition, list[Stored]]) -> None:
        """The group gets to the end of its topic."""
        ends = {key: len(log) for key, log in logs.items() if key[0] == SYNCED}
        member = self._workload.member(SYNCED)
        while await admin.group_offsets(client, GROUP) != ends:
            await member.poll(1)
            try:
                await member.commit()
            except KafkaError as error:
                self._trace.note(f"group: {error}")
        await member.close()

    def _check_failures(self, cluster: SimulatedCluster) -> None:
        """Nodes end by themselves only where all of their disks have failed."""
        for name, machine in cluster.world.machines.items():
            for text, error in machine.failures:
                if not isinstance(error, OSError):
                    raise AssertionError(f"{name} has ended: {text}") from error


async def _read_all(client: Cluster, topic: str, number: int) -> list[Stored]:
    start = (await find_offset(client, topic, number, EARLIEST)).offset
    end = (await find_offset(client, topic, number, LATEST)).offset
    consumer = Consumer(client, reset=None)
    consumer.assign({(topic, number): start})
    stored: list[Stored] = []
    while len(stored) < end - start:
        for record in await consumer.poll(5):
            assert record.value is not None
            stored.append(Stored(record.offset, record.value, record.leader_epoch))
    await consumer.close()
    return stored


async def _configs_of(client: Cluster, topic: str) -> dict[str, str]:
    """What was set for a topic."""
    entries = await admin.describe_configs(client, 2, topic)
    return {entry.name: entry.value or "" for entry in entries if entry.source == 1}


def _disagreements(cluster: SimulatedCluster) -> list[str]:
    """Nodes whose metadata is not the controller's."""
    assert cluster.controller is not None
    truth = cluster.controller.state.image
    return [
        f"broker {number} and the controller disagree on the metadata"
        for number, broker in cluster.brokers.items()
        if broker.image.topics != truth.topics or broker.image.brokers != truth.brokers
    ]
