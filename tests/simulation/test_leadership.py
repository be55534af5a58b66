"""Leadership as clients and administrators see it: shutdown and failure of leaders, elections, reassignments, ELR."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from milena.client import admin, replicas
from milena.client.cluster import Cluster
from milena.client.producer import Producer
from milena.lab.cluster import CONTROLLER, SimulatedCluster, host_of, start_cluster
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from tests.simulation.steps import NO_CONFIGS, broker_image, create, partition_image, seeds, until, values

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
METADATA_REFRESH = 0.5
"""Seconds in which a client must find a leader that is already elected."""
KILLED = 1.0
"""Seconds to notice that a process has ended, elect another leader, and report it to clients."""


def on_three(
    scenario: Callable[[SimulatedCluster, Cluster], Awaitable[None]],
    *,
    brokers: int = 3,
    seed: int = 1,
    **overrides: object,
) -> None:
    async def run(world: World) -> None:
        cluster = await start_cluster(world, brokers, overrides)
        async with cluster.client() as client:
            await scenario(cluster, client)
        cluster.check_alive()

    simulate(run, seed=seed)


async def on(client: Cluster, *brokers: int, name: str = "t", configs: dict[str, str] | None = None) -> None:
    """Create a topic of one partition on these brokers, led by the first; wait until all brokers know it."""
    topic = admin.NewTopic(name, assignments={0: brokers}, configs=configs or NO_CONFIGS)
    assert await admin.create_topics(client, [topic]) == {name: None}
    attempt = 0
    while (await client.metadata([name])).topics[name].error:
        await client.pause(attempt)
        attempt += 1


@dataclass
class Load:
    """Sends records with acks=all one after the other, and notes the longest time of a send."""

    count: int = 0
    longest: float = 0.0
    stopped: bool = field(default=False)

    def begin(self) -> None:
        self.longest = 0.0


@asynccontextmanager
async def load(cluster: SimulatedCluster, client: Cluster) -> AsyncIterator[Load]:
    """Write numbers to ``t`` within the context; at its end check that each is in ``t`` once, in order."""
    clock, said = cluster.world.loop, Load()
    producer = Producer(client, request_timeout=5.0, delivery_timeout=60.0)

    async def write() -> None:
        while not said.stopped:
            began = clock.time()
            await producer.send("t", b"%d" % said.count, partition=0)
            said.count += 1
            said.longest = max(said.longest, clock.time() - began)
            await asyncio.sleep(0.005)

    task = asyncio.ensure_future(write())
    try:
        yield said
    finally:
        said.stopped = True
        await task
        await producer.close()
    assert await values(client, said.count) == list(range(said.count))


async def all_in_sync(cluster: SimulatedCluster, count: int = 3) -> None:
    await until(lambda: len(partition_image(cluster).isr) == count)


@pytest.mark.parametrize("seed", seeds(3))
def test_controlled_shutdowns_cause_no_unavailability(seed: int) -> None:
    """docs/kafka-semantics.md: Broker lifecycle."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3, configs={MIN_ISR: "2"})
        async with load(cluster, client) as seen:
            for broker in (1, 2, 3):
                await asyncio.sleep(1)
                seen.begin()
                await cluster.stop_broker(broker)
                await asyncio.sleep(1)
                assert seen.longest < METADATA_REFRESH
                assert broker not in partition_image(cluster).isr
                await cluster.start_broker(broker)
                await all_in_sync(cluster)
                assert seen.longest < METADATA_REFRESH

    on_three(scenario, seed=seed)


@pytest.mark.parametrize("seed", seeds(3))
def test_a_killed_leader_is_replaced_within_a_second_and_rejoins_at_once(seed: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3, configs={MIN_ISR: "2"})
        async with load(cluster, client) as seen:
            for _ in range(3):
                leader, epoch = partition_image(cluster).leader, partition_image(cluster).leader_epoch
                seen.begin()
                await cluster.kill(host_of(leader))
                await asyncio.sleep(2)
                assert seen.longest < KILLED
                assert partition_image(cluster).leader not in (leader, -1)
                assert partition_image(cluster).leader_epoch == epoch + 1
                began = cluster.world.loop.time()
                await cluster.start_broker(leader)
                assert cluster.world.loop.time() - began < KILLED
                await all_in_sync(cluster)

    on_three(scenario, seed=seed)


def test_a_leader_without_power_is_replaced_after_its_session_timeout() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3, configs={MIN_ISR: "2"})
        async with load(cluster, client) as seen:
            await asyncio.sleep(1)
            await cluster.lose_power(host_of(1))
            await asyncio.sleep(7)
            assert partition_image(cluster).leader == 1, "no node can know whether it is down"
            await until(lambda: partition_image(cluster).leader in (2, 3), 3 + 1)
            await asyncio.sleep(10)
            assert seen.longest < 9 + 1 + 5, "its session, a second, and the time of a request to it"

    on_three(scenario)


def test_a_cut_between_controller_and_broker_within_a_session_has_no_effect() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3)
        before = partition_image(cluster)
        for _ in range(3):
            cluster.world.fabric.cut(host_of(1), CONTROLLER)
            await asyncio.sleep(5)
            cluster.world.fabric.heal(host_of(1), CONTROLLER)
            await asyncio.sleep(5)
        assert not broker_image(cluster, 1).fenced
        assert partition_image(cluster).leader_epoch == before.leader_epoch

    on_three(scenario)


def test_a_restarted_controller_fences_no_running_broker() -> None:
    """The connections of all heartbeats break at once, while the listeners of the brokers can be reached."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3)
        before = partition_image(cluster)
        for _ in range(2):
            await cluster.kill(CONTROLLER)
            await cluster.start_controller()
            await asyncio.sleep(12)
        assert not any(broker_image(cluster, broker).fenced for broker in (1, 2, 3))
        assert partition_image(cluster) == before

    on_three(scenario)


def test_an_election_on_request_makes_the_preferred_replicas_lead() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3)
        await cluster.stop_broker(1)
        assert await elected(client, [("t", 0)]) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        await cluster.start_broker(1)
        await all_in_sync(cluster)
        assert partition_image(cluster).leader == 2
        assert await elected(client, None) == {("t", 0): None}
        assert partition_image(cluster).leader == 1
        assert await elected(client, [("t", 0)]) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
        assert await elected(client, None) == {}
        assert await elected(client, [("t", 3), ("none", 0)]) == {
            ("t", 3): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    on_three(scenario)


async def elected(
    client: Cluster, partitions: Sequence[tuple[str, int]] | None, *, unclean: bool = False
) -> dict[tuple[str, int], ErrorCode | None]:
    outcomes = await replicas.elect_leaders(client, partitions, unclean=unclean)
    return {partition: error.code if error else None for partition, error in outcomes.items()}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_controller_rebalances_to_the_preferred_replicas_by_itself(enabled: bool) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3)
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
        await all_in_sync(cluster)
        assert partition_image(cluster).leader == 2
        await asyncio.sleep(12)
        assert partition_image(cluster).leader == (1 if enabled else 2)

    on_three(
        scenario,
        leader_imbalance_check_interval_seconds=10,
        auto_leader_rebalance_enable=str(enabled).lower(),
    )


async def without_leader(cluster: SimulatedCluster, client: Cluster) -> None:
    """Create ``t`` on brokers 1, 2 and 3, let 1 be the last one in the ISR, and kill it."""
    await on(client, 1, 2, 3)
    for broker in (2, 3, 1):
        await cluster.kill(host_of(broker))
        await until(lambda number=broker: broker_image(cluster, number).fenced)  # type: ignore[misc]
    for broker in (2, 3):
        await cluster.start_broker(broker)
    assert (partition_image(cluster).leader, partition_image(cluster).isr) == (-1, (1,))


def test_an_unclean_election_happens_only_on_request() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await without_leader(cluster, client)
        assert await elected(client, None) == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert await elected(client, [("t", 0)], unclean=True) == {("t", 0): None}
        assert partition_image(cluster).leader == 2
        await until(lambda: partition_image(cluster).recovery_state == 0)
        await cluster.start_broker(1)
        await all_in_sync(cluster)

    on_three(scenario)


@pytest.mark.parametrize("resource", [(2, "t"), (4, "")])
def test_allowing_unclean_elections_elects_at_once(resource: tuple[int, str]) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await without_leader(cluster, client)
        await admin.alter_configs(client, *resource, {UNCLEAN: "true"})
        await until(lambda: partition_image(cluster).leader == 2, 0.1)

    on_three(scenario)


def test_replicas_are_moved_under_load() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3, configs={MIN_ISR: "2"})
        async with load(cluster, client) as seen:
            for target in ((4, 2, 3), (4, 1), (2, 3, 4), (1, 2, 3)):
                await asyncio.sleep(0.5)
                seen.begin()
                assert await replicas.alter_reassignments(client, {("t", 0): target}) == {("t", 0): None}
                await until(lambda: not partition_image(cluster).reassigning)
                assert partition_image(cluster).replicas == target
                assert set(partition_image(cluster).isr) == set(target)
                await asyncio.sleep(0.5)
                assert seen.longest < METADATA_REFRESH
        assert await replicas.list_reassignments(client) == {}

    on_three(scenario, brokers=4)


def test_a_reassignment_that_cannot_complete_is_listed_and_can_be_cancelled() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3)
        await cluster.stop_broker(4)
        assert await replicas.alter_reassignments(client, {("t", 0): (1, 2, 4)}) == {("t", 0): None}
        await asyncio.sleep(5)
        going_on = replicas.Reassignment((1, 2, 4, 3), (4,), (3,))
        assert await replicas.list_reassignments(client) == {("t", 0): going_on}
        assert await replicas.list_reassignments(client, [("t", 0), ("none", 0)]) == {("t", 0): going_on}
        assert await replicas.alter_reassignments(client, {("t", 0): None}) == {("t", 0): None}
        assert partition_image(cluster).replicas == (1, 2, 3)
        (error,) = (await replicas.alter_reassignments(client, {("t", 0): None})).values()
        assert error is not None
        assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    on_three(scenario, brokers=4)


def test_a_broker_that_does_not_return_can_be_unregistered() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await on(client, 1, 2, 3)
        await cluster.kill(host_of(1))
        await until(lambda: partition_image(cluster).leader != 1)
        await replicas.unregister_broker(client, 1)
        assert cluster.controller is not None
        assert 1 not in cluster.controller.state.image.brokers
        described = await replicas.describe_partitions(client, "t")
        assert (described[0].replicas, described[0].isr, described[0].offline) == ((1, 2, 3), (2, 3), (1,))
        with pytest.raises(KafkaError) as failure:
            await replicas.unregister_broker(client, 1)
        assert failure.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
        await cluster.start_broker(1)
        await all_in_sync(cluster)

    on_three(scenario)


def test_describe_quorum_returns_the_log_end_offsets_of_the_observers() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await asyncio.sleep(1)
        quorum = await replicas.describe_quorum(client)
        assert (quorum.leader, list(quorum.voters), sorted(quorum.observers)) == (1000, [1000], [1, 2, 3])
        assert all(quorum.high_watermark - end < 3 for end in quorum.observers.values())

    on_three(scenario)


def test_eligible_replicas_are_elected_where_the_feature_is_on() -> None:
    """KIP-966: former members of an ISR below min.insync.replicas may lead, unless their shutdown was unclean."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        update = {"feature": "eligible.leader.replicas.version", "max_version_level": 1, "upgrade_type": 1}
        answer = await client.ask_any(ApiKey.UPDATE_FEATURES, feature_updates=[update], timeout_ms=5000)
        assert answer.error_code == 0
        await on(client, 1, 2, 3, configs={MIN_ISR: "2"})
        await cluster.stop_broker(3)
        await cluster.stop_broker(2)
        described = (await replicas.describe_partitions(client, "t"))[0]
        assert (described.leader, described.isr, described.elr) == (1, (1,), (2,))
        await cluster.kill(host_of(1))
        await until(lambda: partition_image(cluster).leader == -1)
        assert (partition_image(cluster).isr, partition_image(cluster).elr) == ((), (1, 2))
        assert partition_image(cluster).last_known_elr == (1,)
        await cluster.start_broker(3)
        assert partition_image(cluster).leader == -1, "it left while there were enough"
        await cluster.start_broker(2)
        await until(lambda: partition_image(cluster).leader == 2)
        assert partition_image(cluster).recovery_state == 0
        await cluster.start_broker(1)
        assert 1 not in partition_image(cluster).elr, "it ended uncleanly"
        await all_in_sync(cluster)
        assert partition_image(cluster).elr == ()

    on_three(scenario)


def test_changing_min_insync_replicas_clears_the_elr() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        update = {"feature": "eligible.leader.replicas.version", "max_version_level": 1, "upgrade_type": 1}
        await client.ask_any(ApiKey.UPDATE_FEATURES, feature_updates=[update], timeout_ms=5000)
        await on(client, 1, 2, 3, configs={MIN_ISR: "3"})
        await cluster.stop_broker(3)
        assert partition_image(cluster).elr == (3,)
        await admin.alter_configs(client, 2, "t", {MIN_ISR: "2"})
        assert partition_image(cluster).elr == ()

    on_three(scenario)


def test_a_returning_broker_joins_the_isr_of_topics_that_were_created_meanwhile() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await cluster.stop_broker(2)
        await create(client, replicas=3)
        assert 2 not in partition_image(cluster).isr
        await cluster.start_broker(2)
        await all_in_sync(cluster)

    on_three(scenario)
