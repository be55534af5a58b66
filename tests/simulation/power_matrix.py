"""A matrix of power losses. A workload makes nodes write, rename and delete every kind of file. Each run cuts the power
of one, two or all machines right before one of these calls, starts all nodes again, and checks what is left.

Two runs of one seed are the same up to the call before which the power is lost, so that a run without a loss lists
the calls of all other runs. "Right after" a call is "before the next one": in between no disk changes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from milena.client import admin, replicas
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.client.producer import Producer
from milena.lab.cluster import CONTROLLER, SimulatedCluster, host_of
from milena.lab.world.disk import Storage
from milena.lab.world.world import World, simulate
from milena.protocol.records.records import Record, build_batch
from milena.storage.log.unified_log import UnifiedLog
from tests.simulation.steps import DIRS, OF_BROKERS, batches_in, partition_image, until
from tests.simulation.tiered_topics import TIERED, WITH_TIER

CHANGING: Final = frozenset({"open", "append", "write", "truncate", "sync", "rename", "remove"})
"""The operations that change the files of a disk, or which of their bytes are synced."""
BROKERS: Final = (1, 2, 3)
SETTINGS: Final[dict[str, object]] = {
    **WITH_TIER,
    "rlmm_config_remote_log_metadata_topic_num_partitions": 1,
    "rlmm_config_remote_log_metadata_topic_replication_factor": 3,
    "log_segment_delete_delay_ms": 500,
    "log_flush_offset_checkpoint_interval_ms": 1000,
    "replica_high_watermark_checkpoint_interval_ms": 1000,
    "metadata_log_max_record_bytes_between_snapshots": 3000,
    "replica_lag_time_max_ms": 3000,
}
SMALL: Final = {"internal.segment.bytes": "700", "min.insync.replicas": "2", "file.delete.delay.ms": "500"}
"""Four records fit into a segment."""
SYNCED: Final = {**SMALL, "flush.messages": "1"}
"""Every append is synced before it is acknowledged or fetched."""
FIRM, PLAIN, TIER, SHORT, CUT, AGAIN = "firm", "plain", "tiered", "short", "cut", "again"
TOPICS: Final[dict[str, dict[str, str]]] = {
    FIRM: SYNCED,
    PLAIN: SMALL,
    TIER: {**SMALL, **TIERED},
    SHORT: {**SYNCED, "retention.bytes": "1500"},
    CUT: SYNCED,
    AGAIN: SYNCED,
}
RECOVERY_SECONDS: Final = 120.0
LAST_ANSWERS: Final = 0.2
"""Seconds in which responses in flight still reach clients."""
DELETED_BEFORE: Final = 6
"""The log start offset of ``CUT`` after DeleteRecords."""


class Losers(Enum):
    """Which machines lose power."""

    ONE = "the machine whose call it is"
    TWO = "that and the next broker"
    ALL = "all machines, and the tier's disk"


@dataclass(frozen=True)
class Call:
    """One call of the workload that changes a disk; ``number`` among all of them."""

    number: int
    machine: str
    operation: str
    kind: str


_KINDS: Final = (
    (r"/__cluster_metadata-0/.*\.log(\.|$)", "metadata log"),
    (r"/__cluster_metadata-0/.*\.(index|timeindex)(\.|$)", "metadata log index"),
    (r"/__cluster_metadata-0/.*\.checkpoint(\.|$)", "metadata snapshot"),
    (r"/quorum-state", "quorum-state"),
    (r"/committed-offset$", "committed-offset"),
    (r"\.log(\.deleted)?$", "segment"),
    (r"\.(index|timeindex|txnindex)(\.deleted)?$", "index"),
    (r"\.snapshot(\.|$)", "producer snapshot"),
    (r"/leader-epoch-checkpoint", "leader-epoch-checkpoint"),
    (r"/partition\.metadata", "partition.metadata"),
    (r"/remote-log-metadata-cache", "remote-log-metadata-cache"),
    (r"/remote-storage-folder-checkpoint", "remote-storage-folder-checkpoint"),
    (r"/recovery-point-offset-checkpoint", "recovery-point-offset-checkpoint"),
    (r"/replication-offset-checkpoint", "replication-offset-checkpoint"),
    (r"/log-start-offset-checkpoint", "log-start-offset-checkpoint"),
    (r"/\.kafka_cleanshutdown", ".kafka_cleanshutdown"),
    (r"/meta\.properties", "meta.properties"),
    (r"/bootstrap\.checkpoint", "bootstrap.checkpoint"),
    (r"/\.lock$", ".lock"),
    (r"/milena-tier\.properties", "milena-tier.properties"),
    (r"/remote-log-index-cache", "remote-log-index-cache"),
    (r"-(future|delete|stray)$", "renamed folder"),
    (r"-\d+$", "partition folder"),
)


def kind_of(path: str) -> str:
    """The kind of a file, named as in ``docs/reliability.md``."""
    if path.startswith("/tier"):
        return "milena-tier.properties" if "milena-tier" in path else "object of the tier"
    for pattern, kind in _KINDS:
        if re.search(pattern, path):
            return kind
    return "log directory" if path in ("/", *DIRS, "/metadata", "/data") else path


@dataclass
class Matrix:
    """One run: the acknowledged records, and whether the power is lost."""

    world: World
    at: int | None
    losers: Losers
    calls: list[Call] = field(default_factory=list)
    acknowledged: dict[str, dict[int, str]] = field(default_factory=dict)
    """Topic, offset, value."""
    sent: dict[str, int] = field(default_factory=dict)
    topics: dict[str, None] = field(default_factory=dict)
    """The topics whose creation was acknowledged."""
    safe: dict[str, int] = field(default_factory=dict)
    """Topic to the offset below which no record may be lost, whichever machines lose power."""
    over: bool = False
    """The power is lost, or the workload has ended: further calls are not counted."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    cluster: SimulatedCluster | None = None
    lost: list[str] = field(default_factory=list)
    """The machines that lost power."""
    restarting: set[int] = field(default_factory=set)
    first_of_again: int = 0

    # The power

    def watch(self, machine: str, storage: Storage) -> None:
        storage.before = lambda operation, path: self._before(machine, operation, path)

    def _before(self, machine: str, operation: str, path: str) -> None:
        if operation not in CHANGING or self.over:
            return
        number = len(self.calls)
        self.calls.append(Call(number, machine, operation, kind_of(path)))
        if number == self.at:
            self._lose(machine)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def _lose(self, machine: str) -> None:
        self.over = True
        self.gone.set()
        machines = [CONTROLLER, *map(host_of, BROKERS)]
        place = machines.index(machine) if machine in machines else 1
        match self.losers:
            case Losers.ONE:
                self.lost = [machines[place]]
            case Losers.TWO:
                self.lost = [machines[place], machines[place % len(BROKERS) + 1]]
            case Losers.ALL:
                self.lost = machines
        self._note_safe()
        for name in self.lost:
            if self.world.machine(name).alive:
                self.world.machine(name).power_off()
        if self.losers is Losers.ALL:
            self.world.tier.lose_power()

    def _note_safe(self) -> None:
        """Note the offsets up to which every replica in the ISR has synced its log."""
        cluster = self.cluster
        if cluster is None or cluster.controller is None or not cluster.controller.ready:
            return
        for name in TOPICS:
            topic = cluster.controller.state.image.topics.get(name)
            logs = [
                log
                for broker in (topic.partitions[0].isr if topic is not None else ())
                if (log := cluster.brokers[broker].logs.get(name, 0)) is not None
            ]
            self.safe[name] = min((log.recovery_point for log in logs), default=0)

    # The workload

    async def start_and_work(self, cluster: SimulatedCluster) -> None:
        await cluster.start_controller()
        for broker in BROKERS:
            self.restarting.add(broker)
            await cluster.start_broker(broker)
            self.restarting.discard(broker)
        async with cluster.client() as client:
            await self.work(cluster, client)

    async def work(self, cluster: SimulatedCluster, client: Cluster) -> None:
        """Make brokers write, rename and delete every kind of file."""
        await self._create(client, *TOPICS)
        await self._write(client, 10, *TOPICS)
        await admin.delete_records(client, {(CUT, 0): DELETED_BEFORE})
        await self._make_again(client)
        await self._move(cluster, client)
        await self._truncate(cluster, client)
        await self._write(client, 6, *TOPICS)
        await asyncio.sleep(2)  # copies, retention, checkpoints, deletions
        await read_all(client, TIER)
        await self._restart(cluster, 2)
        await self._write(client, 5, *TOPICS)
        await self._restart(cluster, 3)
        await asyncio.sleep(2)
        await self._write(client, 1, *TOPICS)

    async def _create(self, client: Cluster, *names: str) -> None:
        """Create a topic that broker 1 leads."""
        new = [admin.NewTopic(name, assignments={0: list(BROKERS)}, configs=TOPICS[name]) for name in names]
        assert not any((await admin.create_topics(client, new)).values())
        self.topics.update(dict.fromkeys(names))

    async def _write(self, client: Cluster, count: int, *names: str) -> None:
        await asyncio.gather(*(self._write_one(client, count, name) for name in names))

    async def _write_one(self, client: Cluster, count: int, topic: str) -> None:
        """Write records of 100 bytes, each in a batch of its own."""
        producer = Producer(client, request_timeout=2.0, delivery_timeout=60.0)
        known = self.acknowledged.setdefault(topic, {})
        for _ in range(count):
            number = self.sent[topic] = self.sent.get(topic, 0) + 1
            value = f"{topic}:{number}"
            acknowledgement = await producer.send(topic, value.ljust(100).encode(), partition=0)
            known[acknowledgement.offset] = value
        await producer.close()

    async def _make_again(self, client: Cluster) -> None:
        del self.topics[AGAIN]
        self.acknowledged[AGAIN] = {}
        assert not any((await admin.delete_topics(client, [AGAIN])).values())
        self.first_of_again = self.sent[AGAIN] + 1
        await self._create(client, AGAIN)
        await self._write(client, 6, AGAIN)

    async def _move(self, cluster: SimulatedCluster, client: Cluster) -> None:
        """Move two logs of broker 1 to its other directory."""
        targets = {}
        for topic in (FIRM, TIER):
            targets[topic, 0] = DIRS[1 - DIRS.index(folder_of(cluster, 1, topic))]
        assert not any((await replicas.alter_replica_log_dirs(client, 1, targets)).values())
        await until(lambda: all(folder_of(cluster, 1, topic) == to for (topic, _), to in targets.items()))

    async def _truncate(self, cluster: SimulatedCluster, client: Cluster) -> None:
        """Let a leader that is cut off append records that no other replica has, and follow again."""
        fabric = self.world.fabric
        for peer in (CONTROLLER, host_of(2), host_of(3)):
            fabric.cut(host_of(1), peer)
        for name in (FIRM, PLAIN):
            partition = cluster.brokers[1].partitions.find(name, 0)
            assert partition is not None
            for number in range(6):
                data = build_batch([Record(0, 0, None, b"vain:%d" % number)], base_timestamp=1)
                partition.append(memoryview(bytearray(data)), 1)
        await until(lambda: leader_of(cluster, FIRM) != 1, 30)
        await self._write(client, 4, FIRM, PLAIN)
        self._heal()
        await until(lambda: all(isr_of(cluster, name) == set(BROKERS) for name in TOPICS), 60)

    def _heal(self) -> None:
        for peer in (CONTROLLER, host_of(2), host_of(3)):
            self.world.fabric.heal(host_of(1), peer)

    async def _restart(self, cluster: SimulatedCluster, broker: int) -> None:
        """Restart a broker with a controlled shutdown, which leaves the marker of a clean shutdown."""
        self.restarting.add(broker)
        await cluster.stop_broker(broker)
        if self.over:
            return  # stop_broker raises nothing if the power is lost meanwhile
        await cluster.start_broker(broker)
        self.restarting.discard(broker)
        await until(lambda: all(isr_of(cluster, name) == set(BROKERS) for name in TOPICS), 60)

    # Afterwards

    async def start_again(self, cluster: SimulatedCluster) -> None:
        """Start all nodes that are down, the controller first. Raises NodeEnded."""
        self._heal()
        for broker in self.restarting:
            await cluster.kill(host_of(broker))
        for name in self.lost:
            assert not self.world.machine(name).alive
            await self.world.machine(name).wait_ended()
        if not self.world.machine(CONTROLLER).alive:
            await cluster.start_controller()
        starting = [broker for broker in BROKERS if not self.world.machine(host_of(broker)).alive]
        await asyncio.gather(*(cluster.start_broker(broker) for broker in starting))

    async def judge(self, cluster: SimulatedCluster, client: Cluster) -> None:
        await self._all_in_sync(cluster)
        for name in TOPICS:
            if name in self.topics:
                await self._judge_log(client, name)
        for name in self.topics:
            await self._write(client, 1, name)
        await self._all_in_sync(cluster)
        for name in self.topics:
            await self._judge_replicas(cluster, name)
        cluster.check_alive()

    async def _all_in_sync(self, cluster: SimulatedCluster) -> None:
        """Wait until every partition has a leader and all replicas in its ISR, and every broker knows it."""
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while missing := self._not_in_sync(cluster):  # noqa: ASYNC110 - any state of any node may be meant
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise AssertionError(f"not healthy: {'; '.join(missing)}") from None

    def _not_in_sync(self, cluster: SimulatedCluster) -> list[str]:
        assert cluster.controller is not None
        topics = cluster.controller.state.image.topics
        missing = [f"topic {name} is not there" for name in self.topics if name not in topics]
        for name, topic in topics.items():
            for number, one in topic.partitions.items():
                if one.leader == -1 or len(one.isr) < len(one.replicas):
                    missing.append(f"{name}-{number} has leader {one.leader}, ISR {one.isr}")
                for broker in map(int, one.replicas):
                    found = cluster.brokers[broker].partitions.find(name, number)
                    if found is None or found.leader_epoch != one.leader_epoch:
                        missing.append(f"broker {broker} does not know of {name}-{number}'s epoch {one.leader_epoch}")
        return missing

    async def _judge_log(self, client: Cluster, topic: str) -> None:
        start, found = await read_all(client, topic)
        known = self.acknowledged.get(topic, {})
        assert start <= {CUT: DELETED_BEFORE, SHORT: max(known, default=0)}.get(topic, 0), f"{topic} starts at {start}"
        values = [value for value in found.values() if not value.startswith("vain")]
        assert len(values) == len(set(values)), f"{topic} has records twice"
        if topic == AGAIN:
            assert all(int(value.partition(":")[2]) >= self.first_of_again for value in values), f"{topic} came back"
        promised = {at: value for at, value in known.items() if at >= start and self._is_promised(topic, at)}
        lost = {at: value for at, value in promised.items() if found.get(at) != value}
        assert not lost, f"{topic} has lost {lost}; it starts at {start} and has {len(found)} records"

    def _is_promised(self, topic: str, offset: int) -> bool:
        if self.losers is Losers.ONE or TOPICS[topic].get("flush.messages") == "1":
            return True
        return offset < self.safe.get(topic, 0)

    async def _judge_replicas(self, cluster: SimulatedCluster, topic: str) -> None:
        logs = [log_of(cluster, broker, topic) for broker in BROKERS]
        await until(lambda: len({(log.log_end_offset, log.high_watermark) for log in logs}) == 1)
        start = max(log.local_log_start_offset for log in logs)
        contents = [records_of(log, start) for log in logs]
        assert contents[0] == contents[1] == contents[2], f"replicas of {topic} differ"
        epochs = [list(log.epochs.entries_in_range(start, log.log_end_offset)) for log in logs]
        assert epochs[0] == epochs[1] == epochs[2], f"epochs of {topic} differ"


def records_of(log: UnifiedLog, start: int) -> list[tuple[int, int, bytes]]:
    """Offset, leader epoch and bytes of each local batch from ``start`` on."""
    data = b"".join(bytes(segment.file().pread(segment.size, 0)) for segment in log.segments)
    return [
        (batch.base_offset, batch.leader_epoch, bytes(batch.memory))
        for batch in batches_in(data)
        if batch.base_offset >= start
    ]


async def read_all(client: Cluster, topic: str) -> tuple[int, dict[int, str]]:
    """The log start offset, and all values from there to the end; fails if an offset is missing."""
    start = (await find_offset(client, topic, 0, EARLIEST)).offset
    end = (await find_offset(client, topic, 0, LATEST)).offset
    consumer = Consumer(client, reset=None)
    consumer.assign({(topic, 0): start})
    found: dict[int, str] = {}
    async with asyncio.timeout(RECOVERY_SECONDS):
        while start + len(found) < end:
            for record in await consumer.poll(5):
                assert record.offset == start + len(found), f"{topic} has a hole before {record.offset}"
                found[record.offset] = (record.value or b"").decode().rstrip()
    await consumer.close()
    return start, found


def log_of(cluster: SimulatedCluster, broker: int, topic: str) -> UnifiedLog:
    log = cluster.brokers[broker].logs.get(topic, 0)
    assert log is not None, f"broker {broker} has no log of {topic}"
    return log


def folder_of(cluster: SimulatedCluster, broker: int, topic: str) -> str:
    return log_of(cluster, broker, topic).folder.rpartition("/")[0]


def leader_of(cluster: SimulatedCluster, topic: str) -> int:
    return int(partition_image(cluster, topic).leader)


def isr_of(cluster: SimulatedCluster, topic: str) -> set[int]:
    return set(map(int, partition_image(cluster, topic).isr))


def run(seed: int, at: int | None, losers: Losers = Losers.ONE, pause: float = 0.0) -> Matrix:
    """Play one run. ``at``: the number of the call before which the power is lost; None: it is not lost. ``pause``:
    seconds until the machines are started again."""

    async def scenario(world: World) -> Matrix:
        matrix = Matrix(world, at, losers)
        least: dict[str, object] = {"offsets_topic_replication_factor": 3, "offsets_topic_num_partitions": 1}
        cluster = matrix.cluster = SimulatedCluster(world, overrides=least | SETTINGS, broker_overrides=OF_BROKERS)
        for machine in (CONTROLLER, *map(host_of, BROKERS)):
            matrix.watch(machine, world.machine(machine).storage)
        matrix.watch("tier", world.tier)
        working = world.loop.create_task(matrix.start_and_work(cluster))
        going = world.loop.create_task(matrix.gone.wait())
        await asyncio.wait((working, going), return_when=asyncio.FIRST_COMPLETED)
        if matrix.gone.is_set():
            await asyncio.sleep(LAST_ANSWERS)
            working.cancel()
            await asyncio.wait((working,))
            await asyncio.sleep(pause)
            await matrix.start_again(cluster)
        else:
            going.cancel()
            await working
            matrix.over = True
        async with cluster.client("judge") as client:
            await matrix.judge(cluster, client)
        return matrix

    return simulate(scenario, seed=seed)
