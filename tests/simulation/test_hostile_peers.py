"""Peers that send malformed responses to a broker: it keeps running, retries with backoff, and recovers.

In the simulation an unexpected error ends the node (``runtime.containment``), so that these tests find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from milena.broker.server import Broker
from milena.broker.transactions.model import Transaction
from milena.client import admin
from milena.client.cluster import Cluster
from milena.config.node_config import NodeConfig
from milena.lab.cluster import SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.types import TRANSACTION_TOPIC
from milena.runtime.context import Runtime
from milena.runtime.randomness import Randomness
from tests.simulation.hostile import (
    MISDEEDS,
    HostileNetwork,
    Misdeed,
    closed,
    ones,
    trailing,
    truncated,
    wrong_correlation,
)
from tests.simulation.steps import QUICK, create, partition_image, seeds, storage_of, until, values, write
from tests.simulation.transactional import ID, OF_STATES, committed, create_assigned, producer

VICTIM = 2
SNAPSHOTS = {"metadata_log_max_record_bytes_between_snapshots": 2000}
NO_REFUSALS = (wrong_correlation, truncated, trailing, ones, closed)
"""Misdeeds without invalid values: a refused registration would end the broker."""
BROKERS = (1, 2, 3)


class Attack:
    """A cluster of three brokers. From ``begin`` to ``end`` the second one gets malformed responses."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self.cluster = cluster
        self.networks: list[HostileNetwork] = []
        self.from_the_start: frozenset[int] = frozenset()
        """The APIs whose responses to the next process are malformed from its first request on."""
        self._seed = seed
        cluster.makers = {host_of(VICTIM): self._make}

    def _make(self, runtime: Runtime, config: NodeConfig) -> Broker:
        network = HostileNetwork(runtime.network, Randomness(self._seed))
        self.networks.append(network)
        if self.from_the_start:
            network.misdeeds, network.one_in, network.keys = NO_REFUSALS, 1, self.from_the_start
        return Broker(replace(runtime, network=network), config)

    def begin(self, *keys: ApiKey, one_in: int = 3, misdeeds: Sequence[Misdeed] = MISDEEDS) -> None:
        network = self.networks[-1]
        network.misdeeds, network.one_in = misdeeds, one_in
        network.keys = frozenset(map(int, keys)) if keys else None

    def end(self) -> None:
        self.networks[-1].misdeeds = ()

    @property
    def hit(self) -> set[int]:
        return {key for network in self.networks for key in network.done}


def under_attack(scenario: Callable[[Attack, Cluster], Awaitable[None]], seed: int) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, 0, QUICK | {"default_replication_factor": 3} | SNAPSHOTS)
        attack = Attack(cluster, seed)
        for number in BROKERS:
            await cluster.start_broker(number)
        async with cluster.client() as client:
            await scenario(attack, client)
        cluster.check_alive()

    simulate(run, seed=seed)


def in_sync(cluster: SimulatedCluster) -> bool:
    return all(sorted(partition_image(cluster, "t", index).isr) == list(BROKERS) for index in range(3))


@pytest.mark.parametrize("seed", seeds(6))
def test_a_broker_survives_malformed_responses_and_recovers(seed: int) -> None:
    """Responses to heartbeats, metadata, fetches as a follower, AlterPartition, forwarded requests, producer ids."""

    async def scenario(attack: Attack, client: Cluster) -> None:
        cluster = attack.cluster
        await create(client, partitions=3, replicas=3)
        await until(lambda: in_sync(cluster), 30)
        attack.begin()
        for turn in range(10):
            await write(client, 3, partition=0, first=3 * turn)
            await _ask_the_victim(client, turn)
            await asyncio.sleep(1)
            cluster.check_alive()
        attack.end()
        assert {ApiKey.BROKER_HEARTBEAT, ApiKey.FETCH} <= attack.hit
        await asyncio.sleep(5)
        cluster.check_alive()
        await cluster.kill(host_of(VICTIM))
        # A broker believes the controller if a response can be decoded: its copy of the metadata may be wrong.
        files = storage_of(cluster, VICTIM).files
        for path in [path for path in files if "/__cluster_metadata-0/" in path]:
            del files[path]
        await cluster.start_broker(VICTIM)
        await until(lambda: in_sync(cluster), 60)
        assert await values(client, 30) == list(range(30))

    under_attack(scenario, seed)


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.ENVELOPE,
        ApiKey.CREATE_TOPICS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.API_VERSIONS,
    ],
    ids=lambda key: key.name,
)
def test_a_broker_survives_that_all_responses_of_one_api_are_malformed(key: ApiKey) -> None:
    async def scenario(attack: Attack, client: Cluster) -> None:
        cluster = attack.cluster
        await create(client, partitions=3, replicas=3)
        await until(lambda: in_sync(cluster), 30)
        attack.begin(key, one_in=1)
        for turn in range(6):
            await cluster.kill(host_of(3))
            await _ask_the_victim(client, turn)
            await cluster.start_broker(3)
            await write(client, 3, partition=0, first=3 * turn)
            cluster.check_alive()
        asked = sum(attack.networks[-1].done.values())
        await asyncio.sleep(10)
        assert sum(attack.networks[-1].done.values()) - asked < 500, "it asks again with pauses"
        assert attack.hit == {key}
        attack.end()
        await until(lambda: in_sync(cluster), 60)
        await _create_through_the_victim(client)
        assert await values(client, 18) == list(range(18))

    under_attack(scenario, 1)


@pytest.mark.parametrize("one_in", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_malformed_responses_delay_markers(one_in: int) -> None:
    """The victim coordinates transactions, and leads one of their partitions. It sends markers again with pauses."""

    async def scenario(attack: Attack, client: Cluster) -> None:
        cluster = attack.cluster
        await create_assigned(client, TRANSACTION_TOPIC, (2, 3, 1), configs=OF_STATES)
        await create_assigned(client, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
        writing = await producer(client)

        def found() -> Transaction:
            transaction = cluster.brokers[VICTIM].transactions.find(ID)
            assert transaction is not None
            return transaction

        for number in range(4):
            attack.begin(ApiKey.WRITE_TXN_MARKERS, one_in=one_in, misdeeds=NO_REFUSALS)
            writing.begin()
            for index in range(3):
                await writing.send("t", b"%d" % number, partition=index)
            await writing.commit()
            asked = sum(attack.networks[-1].done.values())
            await asyncio.sleep(10)
            assert sum(attack.networks[-1].done.values()) - asked < 50
            cluster.check_alive()
            attack.end()
            await until(lambda: found().state is TransactionState.COMPLETE_COMMIT, 5)
            for index in range(3):
                values_so_far = [b"%d" % done for done in range(number + 1)]
                assert await committed(client, cluster, partition=index) == values_so_far
        assert attack.hit == {ApiKey.WRITE_TXN_MARKERS}

    under_attack(scenario, 1)


@pytest.mark.parametrize("one_in", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_malformed_responses_delay_batches_of_transactions(one_in: int) -> None:
    """The victim leads a partition, and asks the coordinator about its transactions."""

    async def scenario(attack: Attack, client: Cluster) -> None:
        cluster = attack.cluster
        await create_assigned(client, TRANSACTION_TOPIC, (1, 2, 3), configs=OF_STATES)
        await create_assigned(client, "t", (2, 3, 1))
        writing = await producer(client)
        for number in range(4):
            attack.begin(ApiKey.ADD_PARTITIONS_TO_TXN, one_in=one_in, misdeeds=NO_REFUSALS)
            writing.begin()
            sent = await writing.enqueue("t", b"%d" % number, partition=0)
            asked = sum(attack.networks[-1].done.values())
            await asyncio.sleep(10)
            assert sum(attack.networks[-1].done.values()) - asked < 200
            cluster.check_alive()
            attack.end()
            await sent
            await writing.commit()
        assert attack.hit == {ApiKey.ADD_PARTITIONS_TO_TXN}
        assert await committed(client, cluster) == [b"0", b"1", b"2", b"3"]

    under_attack(scenario, 1)


@pytest.mark.parametrize(
    "key",
    [ApiKey.BROKER_REGISTRATION, ApiKey.FETCH_SNAPSHOT, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH],
    ids=lambda key: key.name,
)
def test_a_broker_that_gets_malformed_responses_at_start_up_waits_until_they_end(key: ApiKey) -> None:
    """A broker without its disk needs the metadata snapshot. A broker with its disk has led in a former epoch, and the
    log of the new leader begins after its own end."""

    async def scenario(attack: Attack, client: Cluster) -> None:
        cluster = attack.cluster
        await create(client, partitions=3, replicas=3)
        await until(lambda: in_sync(cluster), 30)
        await create(client, "many", partitions=40)
        for index in range(3):
            await write(client, 10, partition=index)
        await cluster.kill(host_of(VICTIM))
        if key in (ApiKey.BROKER_REGISTRATION, ApiKey.FETCH_SNAPSHOT):
            cluster.wipe(host_of(VICTIM))
        await until(lambda: VICTIM not in partition_image(cluster).isr, 30)
        await write(client, 10, partition=0, first=10)
        await admin.delete_records(client, {("t", 0): 15})
        await asyncio.sleep(5)
        attack.from_the_start = frozenset({key})
        starting = asyncio.create_task(cluster.start_broker(VICTIM))
        await asyncio.sleep(20)
        cluster.check_alive()
        assert key in attack.hit
        assert sum(attack.networks[-1].done.values()) < 300, "it asks again with pauses"
        attack.end()
        await starting
        await until(lambda: in_sync(cluster), 60)

    under_attack(scenario, 2)


async def _create_through_the_victim(client: Cluster) -> None:
    channel = client.separate_channel(host_of(VICTIM), 9092)
    topic = {"name": "last", "num_partitions": 1, "replication_factor": 3, "assignments": [], "configs": []}
    answer = await channel.request(ApiKey.CREATE_TOPICS, timeout=10.0, topics=[topic], timeout_ms=5000)
    assert answer.topics[0].error_code == 0
    channel.close()


async def _ask_the_victim(client: Cluster, turn: int) -> None:
    """Send requests for which the broker has to ask the controller."""
    channel = client.separate_channel(host_of(VICTIM), 9092)
    topic = {"name": f"n{turn}", "num_partitions": 2, "replication_factor": 3, "assignments": [], "configs": []}
    for key, fields in (
        (ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 1000}),
        (ApiKey.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 0}),
        (ApiKey.METADATA, {"topics": [{"name": f"auto{turn}"}], "allow_auto_topic_creation": True}),
    ):
        try:
            await channel.request(key, timeout=2.0, **fields)
        except (KafkaError, ConnectionError):
            continue
    channel.close()
