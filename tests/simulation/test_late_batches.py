"""Batches of transactions that arrive late: after the marker, during the verification, in the next transaction
(KIP-890, KAFKA-17754). Broker 1 leads topic t, broker 2 is the coordinator."""

from __future__ import annotations

import asyncio

import pytest

from milena.broker.transactions import late as late_transactions
from milena.client.cluster import Cluster
from milena.client.transactional import TransactionalProducer
from milena.lab.cluster import CONTROLLER, SimulatedCluster, host_of
from milena.node.rules.rules import Rule, RuleAction, Side
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request
from milena.protocol.types import ProducerEpoch, ProducerIdAndEpoch
from tests.simulation.steps import until
from tests.simulation.transactional import (
    ID,
    committed,
    leader_of,
    led_log,
    on_three_brokers,
    producer,
    replica,
    transaction,
    write_marker,
)

ADDING = 12
"""The version of Produce from which on the broker adds the partition to the transaction."""


async def send_batch(
    client: Cluster, of: TransactionalProducer, sequence: int, *, version: int = 11, epoch: int | None = None
) -> ErrorCode:
    """Send a batch with the value ``late`` to broker 1, as a client sends it. Returns its error."""
    identity = of.identity
    data = build_batch(
        [Record(0, 0, None, b"late")],
        base_timestamp=client.runtime.clock.time_ms(),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch if epoch is None else ProducerEpoch(epoch),
        base_sequence=sequence,
        transactional=True,
    )
    request = ProduceRequest(ID, -1, 10_000, [("t", None, [(0, memoryview(data))])])
    response = await client.to(host_of(1), 9092).request_raw(
        ApiKey.PRODUCE,
        version,
        [encode_produce_request(version, request)],
        lambda body: decode_produce_response(version, body),
    )
    return ErrorCode(response.topics[0][2][0].error_code)


async def end_raw(client: Cluster, of: TransactionalProducer, *, commit: bool) -> None:
    """EndTxn of a client below transaction version 2: the epoch stays."""
    response = await client.to(host_of(2), 9092).request(
        ApiKey.END_TXN,
        4,
        transactional_id=ID,
        producer_id=of.identity.producer_id,
        producer_epoch=of.identity.epoch,
        committed=commit,
    )
    assert response.error_code == 0


class TestAfterTheMarker:
    @pytest.mark.parametrize(
        ("version", "error"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
    )
    def test_the_verification_refuses_the_batch(self, version: int, error: ErrorCode) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            writing = await producer(client, newest=1)
            await transaction(writing, b"first")
            await until(lambda: led_log(cluster).last_stable_offset == 2)
            assert await send_batch(client, writing, 1, version=version) is error
            assert led_log(cluster).log_end_offset == 2
            assert await committed(client, cluster) == [b"first"]

        on_three_brokers(scenario)

    def test_without_verification_the_transaction_hangs_until_it_is_aborted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The control experiment. The coordinator does not know that the transaction is open in the partition."""
        monkeypatch.setattr(late_transactions, "BUFFER_MS", 3_000)

        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            writing = await producer(client, newest=1, transaction_timeout_ms=2_000)
            await transaction(writing, b"first")
            await until(lambda: led_log(cluster).last_stable_offset == 2)
            assert await send_batch(client, writing, 1) is ErrorCode.NONE
            await transaction(await producer(client, "other", transaction_timeout_ms=2_000), b"held back")
            assert await committed(client, cluster, is_open=True) == [b"first"]
            late = cluster.brokers[1].late_transactions
            assert late.count() == 0
            await asyncio.sleep(6)
            assert late.count() == 1 and cluster.brokers[2].late_transactions.count() == 0
            open_one = led_log(cluster).producers.oldest_open
            assert open_one is not None and open_one.first_offset == 2
            identity = writing.identity
            assert not await write_marker(client, 1, identity.producer_id, identity.epoch)
            assert late.count() == 0
            assert await committed(client, cluster) == [b"first", b"held back"]

        on_three_brokers(scenario, transaction_partition_verification_enable="false", transaction_max_timeout_ms=2_000)


class TestDuringTheVerification:
    """The coordinator has confirmed the transaction, and its answer is late."""

    def held(self, cluster: SimulatedCluster) -> Rule:
        rule = Rule(action=RuleAction.HOLD, side=Side.RESPONSE, api=ApiKey.ADD_PARTITIONS_TO_TXN, node=1)
        cluster.brokers[2].rules.add(rule)
        return rule

    def test_the_batch_is_refused_if_the_transaction_ends_meanwhile(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            writing = await producer(client, newest=1)
            writing.begin()
            await writing.send("t", b"first", partition=0)
            await end_raw(client, writing, commit=False)
            await until(lambda: led_log(cluster).last_stable_offset == 2)
            await self._add(client, writing)
            rule = self.held(cluster)
            sending = asyncio.ensure_future(send_batch(client, writing, 1))
            await until(lambda: len(rule.held) == 1)
            await end_raw(client, writing, commit=False)
            await until(lambda: led_log(cluster).log_end_offset == 3)
            cluster.brokers[2].rules.release(rule.number)
            assert await sending is ErrorCode.INVALID_TXN_STATE
            assert led_log(cluster).last_stable_offset == led_log(cluster).log_end_offset == 3

        on_three_brokers(scenario)

    async def _add(self, client: Cluster, writing: TransactionalProducer) -> None:
        """AddPartitionsToTxn of a client."""

        async def ask() -> ErrorCode:
            response = await client.to(host_of(2), 9092).request(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=writing.identity.producer_id,
                v3_and_below_producer_epoch=writing.identity.epoch,
                v3_and_below_topics=[{"name": "t", "partitions": [0]}],
            )
            (topic,) = response.results_by_topic_v3_and_below
            return ErrorCode(topic.results_by_partition[0].partition_error_code)

        for _ in range(50):
            error = await ask()
            if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0.1)
        assert error is ErrorCode.NONE

    def test_a_leader_that_is_replaced_meanwhile_does_not_append(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            writing = await producer(client)
            rule = self.held(cluster)
            sending = asyncio.ensure_future(send_batch(client, writing, 0, version=ADDING))
            await until(lambda: len(rule.held) == 1)
            cluster.world.fabric.cut(host_of(1), CONTROLLER)
            await until(lambda: leader_of(cluster) not in (1, -1), 30)
            cluster.world.fabric.heal(host_of(1), CONTROLLER)
            await until(lambda: not replica(cluster, 1).is_leader, 30)
            cluster.brokers[2].rules.release(rule.number)
            assert await sending is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert led_log(cluster).log_end_offset == 0

        on_three_brokers(scenario)


class TestInTheNextTransaction:
    """A batch of an aborted transaction arrives when the producer's next one is open in the partition."""

    def test_with_version_2_its_epoch_is_old(self) -> None:
        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            writing = await producer(client)
            old = (await self._second_transaction(writing)).epoch
            assert writing.identity.epoch == old + 1
            assert await send_batch(client, writing, 1, version=ADDING, epoch=old) is ErrorCode.INVALID_PRODUCER_EPOCH
            await writing.commit()
            assert await committed(client, cluster) == [b"second"]

        on_three_brokers(scenario)

    def test_below_version_2_it_becomes_part_of_the_transaction(self) -> None:
        """The control experiment: so it is in Kafka, too."""

        async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
            writing = await producer(client, newest=1)
            old = (await self._second_transaction(writing)).epoch
            assert writing.identity.epoch == old
            assert await send_batch(client, writing, 2) is ErrorCode.NONE
            await writing.commit()
            assert await committed(client, cluster) == [b"second", b"late"]

        on_three_brokers(scenario)

    async def _second_transaction(self, writing: TransactionalProducer) -> ProducerIdAndEpoch:
        """Abort one transaction and open another. Returns the identity of the first."""
        writing.begin()
        first = writing.identity
        await writing.send("t", b"first", partition=0)
        await writing.abort()
        writing.begin()
        await writing.send("t", b"second", partition=0)
        return first
