"""The transactional producer: its requests with transaction versions 1 and 2, and what errors do to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from milena.client.membership import GroupMetadata
from milena.client.producer import OutcomeUnknown
from milena.client.transactional import State, TransactionalProducer, TransactionFailed
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.schemas.registry import VersionRange
from tests.unit.client.scripted_cluster import LOST, TOPIC, ScriptedCluster

GROUP = GroupMetadata("billing", 7, "member-1", "instance-1")


@asynccontextmanager
async def producing(cluster: ScriptedCluster, *, newest: int = 2) -> AsyncIterator[TransactionalProducer]:
    """A producer that has called ``init``."""
    producer = TransactionalProducer(cluster, "payments", newest=newest, delivery_timeout=20.0, max_block=10.0)
    await producer.init()
    cluster.requests.clear()
    try:
        yield producer
    finally:
        await producer.close()


async def test_init_obtains_the_producer_id_from_the_coordinator() -> None:
    cluster = ScriptedCluster()
    producer = TransactionalProducer(cluster, "payments", transaction_timeout_ms=1234)
    identity = await producer.init()
    request = cluster.request(ApiKey.INIT_PRODUCER_ID)
    assert (request.transactional_id, request.transaction_timeout) == ("payments", 1234)
    assert (identity.producer_id, identity.epoch, producer.state) == (4000, 0, State.READY)


async def test_with_version_2_nothing_is_added_and_each_end_gives_a_new_epoch() -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        for value in (b"a", b"b"):
            producer.begin()
            await producer.send(TOPIC, value, partition=0)
            await producer.commit()
    assert cluster.asked() == ["PRODUCE", "END_TXN"] * 2
    assert [(one.values, one.epoch, one.sequence) for one in cluster.log] == [([b"a"], 0, 0), ([b"b"], 1, 0)]
    assert all(one.transactional and one.version >= 12 for one in cluster.log)
    assert cluster.version(ApiKey.END_TXN) == 5
    assert producer.identity.epoch == 2


async def test_with_version_1_partitions_are_added_once_and_the_epoch_stays() -> None:
    cluster = ScriptedCluster(1)
    async with producing(cluster) as producer:
        for value in (b"a", b"b"):
            producer.begin()
            await producer.send(TOPIC, value, partition=0)
            await producer.send(TOPIC, value, partition=0)
            await producer.commit()
    assert cluster.asked() == ["ADD_PARTITIONS_TO_TXN", "PRODUCE", "PRODUCE", "END_TXN"] * 2
    assert [(one.epoch, one.sequence) for one in cluster.log] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert all(one.transactional and one.version == 11 for one in cluster.log)
    assert cluster.version(ApiKey.END_TXN) == 4


async def test_partitions_that_wait_to_be_added_are_added_in_one_request() -> None:
    cluster = ScriptedCluster(1)
    async with producing(cluster) as producer:
        producer.begin()
        await asyncio.gather(*(producer.send(TOPIC, b"", partition=one) for one in range(3)))
    added = [request for key, _, request in cluster.requests if key is ApiKey.ADD_PARTITIONS_TO_TXN]
    numbers = [one for request in added for topic in request.v3_and_below_topics for one in topic.partitions]
    assert sorted(numbers) == [0, 1, 2]
    assert len(added) == 2


async def test_the_error_of_one_partition_is_raised_and_not_that_of_those_added_with_it() -> None:
    cluster = ScriptedCluster(1)
    async with producing(cluster) as producer:
        producer.begin()
        cluster.errors[ApiKey.ADD_PARTITIONS_TO_TXN] += [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        await asyncio.gather(*(producer.send(TOPIC, b"", partition=one) for one in range(3)), return_exceptions=True)
        with pytest.raises(TransactionFailed) as caught:
            await producer.commit()
        assert (caught.value.code, caught.value.fatal) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)


@pytest.mark.parametrize(
    ("level", "asked"), [(2, ["TXN_OFFSET_COMMIT"]), (1, ["ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT"])]
)
async def test_offsets_are_committed_as_a_member_of_the_group(level: int, asked: list[str]) -> None:
    cluster = ScriptedCluster(level)
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send_offsets({(TOPIC, 1): 42}, GROUP, "host-1")
        await producer.commit()
    assert cluster.asked() == [*asked, "END_TXN"]
    assert cluster.version(ApiKey.TXN_OFFSET_COMMIT) == (5 if level == 2 else 4)
    request = cluster.request(ApiKey.TXN_OFFSET_COMMIT)
    assert (request.group_id, request.generation_id) == ("billing", 7)
    assert (request.member_id, request.group_instance_id) == ("member-1", "instance-1")
    [topic] = request.topics
    [one] = topic.partitions
    assert (one.partition_index, one.committed_offset, one.committed_metadata) == (1, 42, "host-1")


@pytest.mark.parametrize("level", [1, 2])
async def test_an_empty_transaction_sends_no_request(level: int) -> None:
    cluster = ScriptedCluster(level)
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send(TOPIC, b"")
        await producer.commit()
        cluster.requests.clear()
        producer.begin()
        await producer.commit()
        producer.begin()
        await producer.abort()
        assert (cluster.asked(), producer.state) == ([], State.READY)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, LOST])
async def test_a_coordinator_that_has_moved_is_looked_up_again(code: ErrorCode | str) -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send(TOPIC, b"")
        cluster.errors[ApiKey.END_TXN].append(code)
        before = cluster.lookups
        await producer.commit()
    assert cluster.lookups == before + 1
    assert cluster.asked() == ["PRODUCE", "END_TXN", "END_TXN"]


async def test_a_coordinator_that_is_busy_is_asked_again() -> None:
    cluster = ScriptedCluster(1)
    async with producing(cluster) as producer:
        producer.begin()
        cluster.errors[ApiKey.ADD_PARTITIONS_TO_TXN] += [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
        before = cluster.lookups
        await producer.send(TOPIC, b"")
    assert cluster.lookups == before
    assert cluster.asked() == [*["ADD_PARTITIONS_TO_TXN"] * 3, "PRODUCE"]


async def test_a_commit_without_an_answer_can_be_repeated_but_not_aborted() -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send(TOPIC, b"")
        cluster.errors[ApiKey.END_TXN] += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 11
        with pytest.raises(OutcomeUnknown):
            await producer.commit()
        with pytest.raises(ValueError, match="abort is not possible: 'payments' is committing"):
            await producer.abort()
        await producer.commit()
        assert producer.state is State.READY


async def test_a_record_that_was_not_written_prevents_the_commit() -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send(TOPIC, b"first", partition=0)
        cluster.errors[ApiKey.PRODUCE].append(ErrorCode.MESSAGE_TOO_LARGE)
        future = await producer.enqueue(TOPIC, b"too large", partition=1)
        with pytest.raises(TransactionFailed) as caught:
            await producer.commit()
        assert (caught.value.code, caught.value.fatal) == (ErrorCode.MESSAGE_TOO_LARGE, False)
        with pytest.raises(KafkaError):
            await future
        with pytest.raises(TransactionFailed):
            await producer.send(TOPIC, b"later")
        await producer.abort()
        producer.begin()
        await producer.send(TOPIC, b"again", partition=1)
        await producer.commit()
    assert cluster.request(ApiKey.END_TXN).committed
    assert [(one.values, one.epoch) for one in cluster.log] == [([b"first"], 0), ([b"again"], 1)]


@pytest.mark.parametrize("level", [1, 2])
async def test_a_record_with_an_unknown_outcome_is_followed_by_a_new_epoch(level: int) -> None:
    cluster = ScriptedCluster(level)
    async with producing(cluster) as producer:
        producer.begin()
        cluster.errors[ApiKey.PRODUCE] += [LOST] * 100
        with pytest.raises(OutcomeUnknown):
            await producer.send(TOPIC, b"lost", partition=0)
        cluster.errors[ApiKey.PRODUCE].clear()
        with pytest.raises(TransactionFailed) as caught:
            await producer.commit()
        assert caught.value.code is ErrorCode.TRANSACTION_ABORTABLE
        await producer.abort()
        producer.begin()
        await producer.send(TOPIC, b"next", partition=0)
    assert [(one.values, one.epoch, one.sequence) for one in cluster.log] == [([b"lost"], 0, 0), ([b"next"], 1, 0)]
    assert ("INIT_PRODUCER_ID" in cluster.asked()) == (level == 1)


async def test_with_version_1_and_an_old_coordinator_an_error_ends_the_producer() -> None:
    cluster = ScriptedCluster(1)
    cluster.versions[ApiKey.INIT_PRODUCER_ID] = VersionRange(0, 2)
    async with producing(cluster) as producer:
        producer.begin()
        cluster.errors[ApiKey.PRODUCE].append(ErrorCode.MESSAGE_TOO_LARGE)
        with pytest.raises(KafkaError):
            await producer.send(TOPIC, b"")
        with pytest.raises(TransactionFailed) as caught:
            await producer.abort()
        assert (caught.value.fatal, producer.state) == (True, State.FAILED)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_fenced_producer_cannot_begin_again(code: ErrorCode) -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send(TOPIC, b"")
        cluster.errors[ApiKey.END_TXN].append(code)
        with pytest.raises(TransactionFailed) as caught:
            await producer.commit()
        assert (caught.value.code, caught.value.fatal) == (ErrorCode.PRODUCER_FENCED, True)
        for call in (producer.abort, producer.commit, producer.init):
            with pytest.raises(TransactionFailed):
                await call()
        with pytest.raises(TransactionFailed):
            producer.begin()


@pytest.mark.parametrize(
    ("earlier", "uncertain"),
    [
        ([], False),
        ([ErrorCode.CONCURRENT_TRANSACTIONS], False),
        ([ErrorCode.NOT_COORDINATOR], True),
        ([LOST, ErrorCode.CONCURRENT_TRANSACTIONS], True),
    ],
)
async def test_a_refused_commit_may_have_taken_effect_in_an_earlier_attempt(
    earlier: list[ErrorCode | str], uncertain: bool
) -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send(TOPIC, b"")
        cluster.errors[ApiKey.END_TXN] += [*earlier, ErrorCode.PRODUCER_FENCED]
        with pytest.raises(TransactionFailed) as caught:
            await producer.commit()
        assert caught.value.uncertain is uncertain


async def test_an_old_epoch_of_a_batch_is_fatal_only_if_the_coordinator_says_so() -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        cluster.errors[ApiKey.PRODUCE].append(ErrorCode.INVALID_PRODUCER_EPOCH)
        with pytest.raises(KafkaError):
            await producer.send(TOPIC, b"")
        assert producer.state is State.MUST_ABORT
        cluster.errors[ApiKey.END_TXN].append(ErrorCode.PRODUCER_FENCED)
        with pytest.raises(TransactionFailed) as caught:
            await producer.abort()
        assert caught.value.fatal


@pytest.mark.parametrize(
    ("code", "fatal"),
    [
        (ErrorCode.ILLEGAL_GENERATION, False),
        (ErrorCode.FENCED_INSTANCE_ID, False),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
    ],
)
async def test_a_group_that_refuses_offsets_ends_the_transaction(code: ErrorCode, fatal: bool) -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        cluster.errors[ApiKey.TXN_OFFSET_COMMIT].append(code)
        with pytest.raises(TransactionFailed) as caught:
            await producer.send_offsets({(TOPIC, 0): 1}, GROUP)
        assert caught.value.fatal == fatal
        assert producer.state is (State.FAILED if fatal else State.MUST_ABORT)


async def test_an_abort_discards_queued_records_and_waits_for_those_in_flight() -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        arrived = asyncio.Event()
        cluster.before = lambda key: arrived.set()
        cluster.errors[ApiKey.PRODUCE].append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        first = await producer.enqueue(TOPIC, b"in flight", partition=0)
        await arrived.wait()
        second = await producer.enqueue(TOPIC, b"queued", partition=0)
        await producer.abort()
        await first
        with pytest.raises(KafkaError, match="the transaction was aborted"):
            await second
    assert cluster.asked() == ["PRODUCE", "PRODUCE", "END_TXN"]
    assert not cluster.request(ApiKey.END_TXN).committed


async def test_with_version_1_a_record_lost_during_an_abort_is_followed_by_a_new_epoch() -> None:
    cluster = ScriptedCluster(1)
    async with producing(cluster) as producer:
        producer.begin()
        arrived = asyncio.Event()
        cluster.before = lambda key: arrived.set() if key is ApiKey.PRODUCE else None
        cluster.errors[ApiKey.PRODUCE] += [LOST] * 100
        future = await producer.enqueue(TOPIC, b"lost", partition=0)
        await arrived.wait()
        await producer.abort()
        with pytest.raises(OutcomeUnknown):
            await future
    assert cluster.asked()[-2:] == ["END_TXN", "INIT_PRODUCER_ID"]


async def test_an_abort_that_the_coordinator_refuses_ends_the_producer() -> None:
    cluster = ScriptedCluster()
    async with producing(cluster) as producer:
        producer.begin()
        await producer.send(TOPIC, b"")
        cluster.errors[ApiKey.END_TXN].append(ErrorCode.TRANSACTION_ABORTABLE)
        with pytest.raises(TransactionFailed) as caught:
            await producer.abort()
        assert caught.value.fatal


async def test_a_raised_transaction_version_is_used_from_the_next_transaction_on() -> None:
    cluster = ScriptedCluster(1)
    async with producing(cluster) as producer:
        producer.begin()
        cluster.finalize(2)
        await producer.send(TOPIC, b"old", partition=0)
        await producer.commit()
        producer.begin()
        await producer.send(TOPIC, b"new", partition=0)
        await producer.commit()
    assert cluster.asked() == ["ADD_PARTITIONS_TO_TXN", "PRODUCE", "END_TXN", "INIT_PRODUCER_ID", "PRODUCE", "END_TXN"]
    assert [one.version for one in cluster.log] == [11, 12]
    assert [one.epoch for one in cluster.log] == [0, 1]


async def test_a_client_of_an_older_release_stays_at_version_1() -> None:
    cluster = ScriptedCluster()
    async with producing(cluster, newest=1) as producer:
        producer.begin()
        await producer.send(TOPIC, b"")
        await producer.commit()
    assert cluster.asked() == ["ADD_PARTITIONS_TO_TXN", "PRODUCE", "END_TXN"]


async def test_sending_needs_a_transaction() -> None:
    async with producing(ScriptedCluster()) as producer:
        with pytest.raises(ValueError, match="send is not possible: 'payments' is ready"):
            await producer.send(TOPIC, b"")
