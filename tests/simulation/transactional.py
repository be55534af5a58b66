"""Helpers of tests with transactions on three simulated brokers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from milena.broker.replica.partition import Partition
from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.transactional import TransactionalProducer
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.node.rules.rules import Rule, RuleAction, Side
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.control_records import AbortMarker, CommitMarker, control_of
from milena.protocol.records.records import iter_records
from milena.protocol.types import TRANSACTION_TOPIC
from milena.storage.log.unified_log import UnifiedLog
from tests.simulation.steps import NO_CONFIGS, QUICK, partition_image, until

BROKERS: Final = (1, 2, 3)
ID: Final = "tx"
REPLICATED: Final[Mapping[str, object]] = {
    "replica_socket_timeout_ms": 2000,
}
OF_STATES: Final = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
SAFE: Final = {"min.insync.replicas": "2"}
Scenario = Callable[[SimulatedCluster, Cluster], Awaitable[None]]


def on_three_brokers(
    scenario: Scenario,
    *,
    seed: int = 1,
    configs: Mapping[str, str] = SAFE,
    of_brokers: Mapping[str, object] | None = None,
    partitions: int = 1,
    **overrides: object,
) -> None:
    """Play ``scenario`` with topic t on three brokers. Broker 1 leads it, broker 2 is the coordinator. The invariants
    are checked after every event."""

    async def run(world: World) -> None:
        cluster = await start_cluster(
            world, 3, {**QUICK, **REPLICATED, **overrides}, of_brokers=of_brokers, watched=True
        )
        async with cluster.client() as client:
            await create_assigned(client, "t", *[BROKERS] * partitions, configs=configs)
            await create_assigned(client, TRANSACTION_TOPIC, (2, 3, 1), configs=OF_STATES)
            await until(lambda: len(partition_image(cluster).isr) == 3, 10)
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


async def create_assigned(
    client: Cluster, name: str, *replicas: Sequence[int], configs: Mapping[str, str] = NO_CONFIGS
) -> None:
    """Create a topic; the first replica of each partition leads it."""
    topic = admin.NewTopic(name, assignments=dict(enumerate(replicas)), configs=configs)
    assert await admin.create_topics(client, [topic]) == {name: None}
    attempt = 0
    while (await client.metadata([name])).topics[name].error:
        await client.pause(attempt)
        attempt += 1


# -- brokers and logs


def leader_of(cluster: SimulatedCluster, topic: str = "t", partition: int = 0) -> int:
    return int(partition_image(cluster, topic, partition).leader)


def coordinator_of(cluster: SimulatedCluster) -> int:
    return leader_of(cluster, TRANSACTION_TOPIC)


def others(*brokers: int) -> list[int]:
    return [broker for broker in BROKERS if broker not in brokers]


def replica(cluster: SimulatedCluster, broker: int, topic: str = "t", partition: int = 0) -> Partition:
    found = cluster.brokers[broker].partitions.find(topic, partition)
    assert found is not None
    return found


def led_log(cluster: SimulatedCluster, topic: str = "t", partition: int = 0) -> UnifiedLog:
    return replica(cluster, leader_of(cluster, topic, partition), topic, partition).online_log


def content(log: UnifiedLog) -> bytes:
    data, offset = b"", log.local_log_start_offset
    while offset < log.log_end_offset:
        piece = log.read_bytes(offset, 1 << 20, upper=log.log_end_offset, min_one=True)
        if not piece:
            break
        for batch in iter_batches(piece):
            offset = batch.next_offset
        data += piece
    return data


def markers(log: UnifiedLog) -> list[tuple[str, int, int]]:
    """The markers in a log: outcome, producer epoch, coordinator epoch."""
    found = list[tuple[str, int, int]]()
    for batch in iter_batches(memoryview(bytearray(content(log)))):
        for record in iter_records(batch) if batch.is_control else ():
            control = control_of(record)
            assert isinstance(control, CommitMarker | AbortMarker)
            outcome = "commit" if isinstance(control, CommitMarker) else "abort"
            found.append((outcome, batch.producer_epoch, control.coordinator_epoch))
    return found


def producers(log: UnifiedLog) -> dict[int, tuple[object, ...]]:
    """What a log knows of each producer."""
    return {
        producer_id: (entry.epoch, entry.coordinator_epoch, entry.txn_first_offset, tuple(entry.batches))
        for producer_id, entry in log.producers
    }


def state(log: UnifiedLog) -> tuple[object, ...]:
    """What all replicas of a partition have in common once they are in sync."""
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    return content(log), log.last_stable_offset, log.high_watermark, producers(log), aborted


async def until_equal(cluster: SimulatedCluster, topic: str = "t", partition: int = 0) -> None:
    """Wait until all replicas are in sync, and have the same log, last stable offset, producers and aborted
    transactions."""
    await until(lambda: len(partition_image(cluster, topic, partition).isr) == 3)
    logs = [replica(cluster, broker, topic, partition).online_log for broker in BROKERS]
    await until(lambda: state(logs[0]) == state(logs[1]) == state(logs[2]), 10)


# -- clients


async def producer(client: Cluster, transactional_id: str = ID, **options: Any) -> TransactionalProducer:
    made = TransactionalProducer(client, transactional_id, **({"request_timeout": 2.0} | options))
    await made.init()
    return made


async def transaction(
    writing: TransactionalProducer, *values: bytes, commit: bool = True, topic: str = "t", partition: int = 0
) -> None:
    """Write the values in one transaction."""
    writing.begin()
    for value in values:
        await writing.send(topic, value, partition=partition)
    await (writing.commit() if commit else writing.abort())


async def committed(
    client: Cluster,
    cluster: SimulatedCluster,
    topic: str = "t",
    partition: int = 0,
    *,
    since: int = 0,
    is_open: bool = False,
) -> list[bytes | None]:
    """What a read_committed consumer reads: all of the log, once its transactions have ended. ``is_open``: up to a
    transaction that does not end."""

    def is_stable() -> bool:
        log = led_log(cluster, topic, partition)
        return log.last_stable_offset == log.log_end_offset

    if not is_open:
        await until(is_stable)
    client.forget_topic(topic)
    consumer = Consumer(client, committed=True, max_wait_ms=50)
    consumer.assign({(topic, partition): since})
    found: list[bytes | None] = []
    async with asyncio.timeout(60):
        while (consumer.position(topic, partition) or 0) < led_log(cluster, topic, partition).last_stable_offset:
            found += [record.value for record in await consumer.poll(0.1)]
    await consumer.close()
    return found


async def write_marker(
    client: Cluster,
    broker: int,
    producer_id: int,
    epoch: int,
    *,
    commit: bool = False,
    coordinator_epoch: int = 0,
    version: int = 0,
    topic: str = "t",
    partition: int = 0,
) -> ErrorCode:
    """Send one marker to a broker, as an administrator does who aborts a transaction."""
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": [partition]}],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": version,
    }
    response = await client.to(host_of(broker), 9092).request(ApiKey.WRITE_TXN_MARKERS, markers=[marker])
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


# -- rules


def stop_markers(
    cluster: SimulatedCluster, *brokers: int, action: RuleAction = RuleAction.HOLD, side: Side = Side.REQUEST
) -> dict[int, Rule]:
    """Let the brokers hold, or treat otherwise, all WriteTxnMarkers requests."""
    rules = {broker: Rule(action=action, side=side, api=ApiKey.WRITE_TXN_MARKERS) for broker in brokers}
    for broker, rule in rules.items():
        cluster.brokers[broker].rules.add(rule)
    return rules


def release(cluster: SimulatedCluster, rules: Mapping[int, Rule]) -> None:
    for broker, rule in rules.items():
        cluster.brokers[broker].rules.release(rule.number)


# -- a load of interleaved transactions


class Interleaved:
    """Transactions of several producers in one partition, which begin and end in random order."""

    def __init__(self, writing: Sequence[TransactionalProducer], seed: int, *, keys: int = 5) -> None:
        self._idle = list(writing)
        self._open: dict[TransactionalProducer, list[tuple[int, bytes, bytes]]] = {}
        self._random = random.Random(seed)
        self._keys = keys
        self._count = 0
        self._committed: list[tuple[int, bytes, bytes]] = []
        """Offset, key and value of the records of committed transactions."""

    async def run(self, steps: int) -> None:
        """Begin or continue transactions, and end some of them."""
        for _ in range(steps):
            if self._idle and (not self._open or self._random.random() < 0.4):
                writing = self._idle.pop(self._random.randrange(len(self._idle)))
                writing.begin()
                self._open[writing] = []
            writing = self._random.choice(list(self._open))
            await self._write(writing)
            if self._random.random() < 0.4:
                await self._end(writing, commit=self._random.random() < 0.6)

    async def finish(self) -> None:
        """End the open transactions."""
        for writing in list(self._open):
            await self._end(writing, commit=self._random.random() < 0.6)

    @property
    def begun(self) -> dict[int, int]:
        """The first offsets of open transactions, by producer id."""
        return {writing.identity.producer_id: written[0][0] for writing, written in self._open.items() if written}

    @property
    def committed(self) -> list[bytes]:
        """The committed values in the order of their offsets."""
        return [value for _, _, value in sorted(self._committed)]

    @property
    def last(self) -> dict[bytes, bytes]:
        """The last committed value of each key."""
        return {key: value for _, key, value in sorted(self._committed)}

    async def _write(self, writing: TransactionalProducer) -> None:
        for _ in range(self._random.randint(1, 3)):
            key, value = b"%d" % self._random.randrange(self._keys), b"%-60d" % self._count
            self._count += 1
            produced = await writing.send("t", value, key=key, partition=0)
            self._open[writing].append((produced.offset, key, value))

    async def _end(self, writing: TransactionalProducer, *, commit: bool) -> None:
        await (writing.commit() if commit else writing.abort())
        written = self._open.pop(writing)
        self._idle.append(writing)
        if commit:
            self._committed += written


async def interleaved(client: Cluster, seed: int, producers: int = 3, *, keys: int = 5) -> Interleaved:
    return Interleaved([await producer(client, f"{ID}-{number}") for number in range(producers)], seed, keys=keys)
