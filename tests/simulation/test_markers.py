"""Markers of transactions on three brokers: through replication, elections, truncation, and the end of coordinators."""

from __future__ import annotations

import asyncio

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.transactional import TransactionalProducer
from milena.lab.cluster import CONTROLLER, SimulatedCluster, host_of
from milena.node.rules.rules import RuleAction, Side
from milena.protocol.errors import ErrorCode
from milena.protocol.records.control_records import EndMarkerRequest
from milena.protocol.records.validation import Origin
from milena.protocol.types import TRANSACTION_TOPIC, ProducerEpoch
from tests.simulation.steps import create, partition_image, seeds, until
from tests.simulation.transactional import (
    BROKERS,
    committed,
    coordinator_of,
    leader_of,
    led_log,
    markers,
    on_three_brokers,
    others,
    producer,
    release,
    replica,
    stop_markers,
    transaction,
    until_equal,
    write_marker,
)

LATER = 20.0
"""Seconds in which a broker that does not answer is fenced, and its partitions get other leaders."""


async def begun(client: Cluster, value: bytes = b"open") -> TransactionalProducer:
    """A producer with one finished transaction and an open one."""
    writing = await producer(client)
    await transaction(writing, b"before")
    writing.begin()
    await writing.send("t", value, partition=0)
    return writing


@pytest.mark.parametrize("newest", [0, 2])
def test_all_replicas_end_transactions_alike(newest: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await producer(client, newest=newest)
        for number in range(6):
            await transaction(writing, b"a%d" % number, b"b%d" % number, commit=number % 3 != 1)
        await until_equal(cluster)
        outcomes = [outcome for outcome, _, _ in markers(led_log(cluster))]
        assert outcomes == ["commit", "abort", "commit", "commit", "abort", "commit"]
        assert led_log(cluster).last_stable_offset == led_log(cluster).log_end_offset == 18
        expected = [b"%s%d" % (name, number) for number in (0, 2, 3, 5) for name in (b"a", b"b")]
        assert await committed(client, cluster) == expected

    on_three_brokers(scenario)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("seed", seeds(4))
def test_the_next_leader_gets_the_marker_that_its_predecessor_did_not_write(seed: int, commit: bool) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await begun(client)
        old = leader_of(cluster)
        stop_markers(cluster, old)
        await (writing.commit() if commit else writing.abort())
        await asyncio.sleep(0.1 * seed)
        assert len(markers(led_log(cluster))) == 1
        await cluster.kill(host_of(old))
        await until(lambda: leader_of(cluster) not in (old, -1), LATER)
        await until(lambda: led_log(cluster).last_stable_offset == led_log(cluster).log_end_offset, LATER)
        await cluster.start_broker(old)
        await until_equal(cluster)
        assert [outcome for outcome, _, _ in markers(led_log(cluster))] == ["commit", "commit" if commit else "abort"]
        assert await committed(client, cluster) == [b"before", b"open"][: 2 if commit else 1]
        await transaction(writing, b"after")
        assert (await committed(client, cluster))[-1] == b"after"

    on_three_brokers(scenario, seed=seed)


@pytest.mark.parametrize("side", Side)
def test_the_next_coordinator_writes_the_markers_of_a_prepared_transaction(side: Side) -> None:
    """Its predecessor has written the prepare record, and did not learn whether the marker was written."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await begun(client)
        old = coordinator_of(cluster)
        held = stop_markers(cluster, *BROKERS, side=side)
        await writing.commit()
        await asyncio.sleep(1)
        assert len(markers(led_log(cluster))) == (1 if side is Side.REQUEST else 2)
        await cluster.kill(host_of(old))
        release(cluster, {broker: rule for broker, rule in held.items() if broker != old})
        await until(lambda: coordinator_of(cluster) not in (old, -1), LATER)
        await transaction(writing, b"after", commit=True)
        await cluster.start_broker(old)
        await until_equal(cluster)
        assert await committed(client, cluster) == [b"before", b"open", b"after"]
        await until_equal(cluster, TRANSACTION_TOPIC)

    on_three_brokers(scenario)


def test_a_coordinator_that_was_replaced_is_fenced() -> None:
    """It is cut off from the controller only, and sends its marker late. The next one has a newer epoch."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await begun(client)
        old, fabric = coordinator_of(cluster), cluster.world.fabric
        held = stop_markers(cluster, *BROKERS)
        await writing.commit()
        fabric.cut(host_of(old), CONTROLLER)
        await until(lambda: coordinator_of(cluster) not in (old, -1), LATER)
        late = {broker: rule for broker, rule in held.items() if rule.held}
        assert late
        fabric.heal(host_of(old), CONTROLLER)
        await until(lambda: any(len(rule.held) > 1 for rule in held.values()), LATER)
        # The newer coordinator's request is handled first.
        for broker, rule in held.items():
            for _, go_on in reversed(list(rule.held.items())):
                go_on()
                await asyncio.sleep(0.2)
            rule.held.clear()
            cluster.brokers[broker].rules.release(rule.number)
        await until_equal(cluster)
        newest = partition_image(cluster, TRANSACTION_TOPIC).leader_epoch
        written = [(outcome, coordinator_epoch) for outcome, _, coordinator_epoch in markers(led_log(cluster))]
        assert written == [("commit", 0), ("commit", newest)] and newest > 0
        assert await committed(client, cluster) == [b"before", b"open"]

    on_three_brokers(scenario, request_timeout_ms=60_000)


def test_a_marker_that_only_a_former_leader_has_is_truncated() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await begun(client)
        old, fabric = leader_of(cluster), cluster.world.fabric
        await until_equal(cluster)
        away = [CONTROLLER, *map(host_of, others(old))]
        for peer in away:
            fabric.cut(host_of(old), peer)
        lost = EndMarkerRequest(writing.identity.producer_id, ProducerEpoch(writing.identity.epoch + 1), 0, True, 2)
        batch = memoryview(bytearray(lost.batch(1)))
        replica(cluster, old).append(batch, 1, origin=Origin.COORDINATOR, transaction_version=2)
        assert replica(cluster, old).online_log.last_stable_offset == 2  # the marker is not committed
        await until(lambda: leader_of(cluster) != old, LATER)
        await writing.abort()
        for peer in away:
            fabric.heal(host_of(old), peer)
        await until_equal(cluster)
        assert [outcome for outcome, _, _ in markers(replica(cluster, old).online_log)] == ["commit", "abort"]
        assert await committed(client, cluster) == [b"before"]

    on_three_brokers(scenario)


def test_records_of_a_transaction_that_only_a_former_leader_has_are_truncated() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await begun(client)
        await writing.abort()
        await until_equal(cluster)
        old, fabric = leader_of(cluster), cluster.world.fabric
        end = led_log(cluster).log_end_offset
        away = [CONTROLLER, *map(host_of, others(old))]
        writing.begin()
        await writing.enqueue("t", b"lost", partition=0)
        for peer in away:
            fabric.cut(host_of(old), peer)
        await until(lambda: leader_of(cluster) != old, LATER)
        former = replica(cluster, old).online_log
        for peer in away:
            fabric.heal(host_of(old), peer)
        await writing.flush()
        await writing.commit()
        await until_equal(cluster)
        assert former.last_stable_offset == former.log_end_offset > end
        assert await committed(client, cluster) == [b"before", b"lost"]

    on_three_brokers(scenario)


@pytest.mark.parametrize("partitions", [2, 5])
def test_a_partition_without_replicas_delays_the_end_of_its_transactions_only(partitions: int) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "narrow", partitions, 1)
        writing, other = await producer(client), await producer(client, "other")
        at = [leader_of(cluster, "narrow", index) for index in range(partitions)]
        lost = next(broker for broker in at if broker != coordinator_of(cluster))
        writing.begin()
        for index in range(partitions):
            await writing.send("narrow", b"v", partition=index)
        held = stop_markers(cluster, lost)
        await writing.commit()
        await cluster.kill(host_of(lost))
        del held
        await until(lambda: leader_of(cluster, "narrow", at.index(lost)) == -1, LATER)
        await transaction(other, b"in time")
        markers_sender = cluster.brokers[coordinator_of(cluster)].markers
        await until(lambda: markers_sender.without_leader == 1, LATER)
        ended = [index for index in range(partitions) if at[index] != lost]
        assert all(len(markers(led_log(cluster, "narrow", index))) == 1 for index in ended)
        await cluster.start_broker(lost)
        await until(lambda: all(len(markers(led_log(cluster, "narrow", at))) == 1 for at in range(partitions)), LATER)
        await transaction(writing, b"after")
        assert await committed(client, cluster) == [b"in time", b"after"]

    on_three_brokers(scenario)


def test_a_topic_that_is_deleted_needs_no_marker() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "doomed", replicas=3)
        writing = await producer(client)
        writing.begin()
        await writing.send("t", b"kept", partition=0)
        await writing.send("doomed", b"lost", partition=0)
        held = stop_markers(cluster, *BROKERS)
        await writing.commit()
        await admin.delete_topics(client, ["doomed"])
        await until(lambda: all("doomed" not in cluster.brokers[one].image.topics for one in BROKERS), 10)
        release(cluster, held)
        await transaction(writing, b"after")
        assert await committed(client, cluster) == [b"kept", b"after"]

    on_three_brokers(scenario)


def test_a_topic_that_is_created_again_gets_a_harmless_marker() -> None:
    """A marker names its topic, as in Kafka."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await create(client, "again", replicas=3)
        writing = await producer(client)
        writing.begin()
        await writing.send("again", b"lost", partition=0)
        held = stop_markers(cluster, *BROKERS)
        await writing.commit()
        await admin.delete_topics(client, ["again"])
        await until(lambda: all("again" not in cluster.brokers[one].image.topics for one in BROKERS), 10)
        client.forget_topic("again")
        await create(client, "again", replicas=3)
        release(cluster, held)
        await transaction(writing, b"kept", topic="again")
        await until_equal(cluster, "again")
        assert await committed(client, cluster, "again") == [b"kept"]

    on_three_brokers(scenario)


@pytest.mark.parametrize(
    ("action", "side"),
    [
        (RuleAction.DROP, Side.REQUEST),
        (RuleAction.DROP, Side.RESPONSE),
        (RuleAction.DISCONNECT, Side.REQUEST),
        (RuleAction.DISCONNECT, Side.RESPONSE),
        (RuleAction.FAIL, Side.REQUEST),
        (RuleAction.DUPLICATE, Side.REQUEST),
    ],
)
def test_requests_that_are_lost_refused_or_repeated_end_the_transaction_once(action: RuleAction, side: Side) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        rules = stop_markers(cluster, *BROKERS, action=action, side=side)
        for rule in rules.values():
            rule.count = 1
        writing = await producer(client)
        for number in range(4):
            await transaction(writing, b"%d" % number, commit=number % 2 == 0)
        await until_equal(cluster)
        assert await committed(client, cluster) == [b"0", b"2"]
        log = led_log(cluster)
        assert len(log.aborted_transactions(log.log_start_offset, log.log_end_offset)) == 2
        assert any(rule.hits for rule in rules.values())

    on_three_brokers(scenario, request_timeout_ms=2_000)


def test_an_administrator_ends_a_transaction_that_its_coordinator_has_forgotten() -> None:
    """An unclean election has removed the marker, and the coordinator does not know (KIP-664)."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await begun(client)
        await until_equal(cluster)
        stale = others(leader_of(cluster), coordinator_of(cluster))[0]
        await cluster.kill(host_of(stale))
        await until(lambda: stale not in partition_image(cluster).isr, LATER)
        identity = writing.identity
        await writing.commit()
        await until(lambda: led_log(cluster).last_stable_offset == 4, 10)
        in_sync = [broker for broker in BROKERS if broker != stale]
        for broker in in_sync:
            await cluster.kill(host_of(broker))
        await cluster.start_broker(stale)
        await until(lambda: leader_of(cluster) == stale, LATER)  # unclean: it has not seen the marker
        for broker in in_sync:
            await cluster.start_broker(broker)
        await until(lambda: len(partition_image(cluster).isr) == 3, LATER)
        log = led_log(cluster)
        await asyncio.sleep(5)
        assert log.last_stable_offset == 2 < log.log_end_offset
        assert await committed(client, cluster, is_open=True) == [b"before"]
        refused = await write_marker(client, leader_of(cluster), identity.producer_id, identity.epoch - 1)
        assert refused is ErrorCode.INVALID_PRODUCER_EPOCH
        written = await write_marker(client, leader_of(cluster), identity.producer_id, identity.epoch)
        assert written is ErrorCode.NONE
        await until_equal(cluster)
        assert led_log(cluster).last_stable_offset == led_log(cluster).log_end_offset
        assert await committed(client, cluster) == [b"before"]

    on_three_brokers(scenario, configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})


def test_after_an_unclean_election_a_marker_without_its_records_blocks_no_reader() -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        writing = await producer(client)
        await transaction(writing, b"before")
        await until_equal(cluster)
        stale = others(leader_of(cluster), coordinator_of(cluster))[0]
        await cluster.kill(host_of(stale))
        await until(lambda: stale not in partition_image(cluster).isr, LATER)
        writing.begin()
        await writing.send("t", b"lost", partition=0)
        old = leader_of(cluster)
        held = stop_markers(cluster, *others(stale))
        await writing.commit()
        in_sync = [broker for broker in BROKERS if broker != stale]
        del held
        for broker in in_sync:
            await cluster.kill(host_of(broker))
        await cluster.start_broker(stale)
        await until(lambda: leader_of(cluster) == stale, LATER)
        for broker in in_sync:
            await cluster.start_broker(broker)
        assert old != stale
        await transaction(writing, b"after")
        await until_equal(cluster)
        assert led_log(cluster).last_stable_offset == led_log(cluster).log_end_offset
        assert await committed(client, cluster) == [b"before", b"after"]

    on_three_brokers(scenario, configs={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
