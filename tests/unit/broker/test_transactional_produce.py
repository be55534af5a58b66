"""Produce requests of transactions: their verification at the coordinator, and the append (KIP-890)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from milena.broker.apis import produce
from milena.broker.replica.partition import Partition
from milena.broker.transactions.verification import Operation
from milena.node.serving import scheduler
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import BatchView
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard
from tests.unit.broker.fixtures import Bench, Request, batch, led_by
from tests.unit.broker.hand_clock import HandClock
from tests.unit.broker.long_produces import goes


@dataclass
class Sent:
    request: Request
    buffer: bytearray
    """The receive buffer."""

    @property
    def results(self) -> list[Any]:
        response = decode_produce_response(self.request.version, self.request.body)
        return [result for _, _, results in response.topics for result in results]

    @property
    def codes(self) -> list[ErrorCode]:
        return [ErrorCode(result.error_code) for result in self.results]

    @property
    def held(self) -> bool:
        """Whether later requests of the connection wait."""
        return self.request.answers.held


def transactional(value: bytes = b"x", *, sequence: int = 0, epoch: int = 0, producer: int = 5) -> memoryview:
    return batch(value, transactional=True, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def send(
    bench: Bench,
    *records: memoryview,
    version: int = 11,
    acks: int = 1,
    transactional_id: str | None = "tx",
) -> Sent:
    """Send one batch to each partition of the topic."""
    name, topic_id = ("t", None) if version < 13 else (None, bench.image.topics["t"].id)
    made = ProduceRequest(transactional_id, acks, 1000, [(name, topic_id, list(enumerate(records)))])
    buffer = bytearray(encode_produce_request(version, made))
    request = Request(ApiKey.PRODUCE, version)
    bench.serve(request, produce.handle, buffer)
    return Sent(request, buffer)


def led(bench: Bench, *, count: int = 1) -> list[Partition]:
    """Partitions whose logs need verifications."""
    bench.led(count=count)
    partitions = [bench.partitions.get("t", index) for index in range(count)]
    for partition in partitions:
        partition.online_log.context.verifies_transactions = True
    return partitions


def end_of(partition: Partition) -> int:
    return partition.online_log.log_end_offset


class TestVerification:
    @pytest.mark.parametrize(
        ("version", "operation"),
        [
            (3, Operation.DEFAULT_ERROR),
            (10, Operation.DEFAULT_ERROR),
            (11, Operation.GENERIC_ERROR),
            (12, Operation.ADD_PARTITION),
            (13, Operation.ADD_PARTITION),
        ],
    )
    def test_the_coordinator_is_asked_in_the_way_of_the_version(
        self, bench: Bench, version: int, operation: Operation
    ) -> None:
        led(bench)
        sent = send(bench, transactional(), version=version)
        assert not sent.request.answered
        verification = bench.verifications.answer()
        assert (
            verification.transactional_id,
            verification.producer,
            verification.partitions,
            verification.operation,
        ) == (
            "tx",
            (5, 0),
            [("t", 0)],
            operation,
        )
        assert sent.codes == [ErrorCode.NONE]

    def test_the_batch_is_appended_after_the_answer_from_a_copy(self, bench: Bench) -> None:
        (partition,) = led(bench)
        sent = send(bench, transactional(b"kept"))
        assert sent.held
        assert end_of(partition) == 0
        sent.buffer[:] = b"\xee" * len(sent.buffer)  # the receive buffer is used again
        bench.verifications.answer()
        assert sent.codes == [ErrorCode.NONE]
        log = partition.online_log
        records = log.read_bytes(log.log_start_offset, 1000, upper=log.log_end_offset, min_one=True)
        assert b"kept" in bytes(records) and BatchView(records).is_valid

    def test_later_batches_of_the_transaction_are_appended_at_once(self, bench: Bench) -> None:
        led(bench)
        send(bench, transactional())
        bench.verifications.answer()
        sent = send(bench, transactional(sequence=1))
        assert sent.codes == [ErrorCode.NONE] and not sent.held

    def test_only_new_partitions_are_verified(self, bench: Bench) -> None:
        led(bench, count=3)
        send(bench, transactional())
        bench.verifications.answer()
        sent = send(bench, transactional(sequence=1), transactional(), transactional())
        assert bench.verifications.answer().partitions == [("t", 1), ("t", 2)]
        assert sent.codes == [ErrorCode.NONE] * 3

    def test_plain_batches_of_a_transactional_producer_are_not_verified(self, bench: Bench) -> None:
        led(bench)
        assert send(bench, batch(b"x")).codes == [ErrorCode.NONE]

    def test_a_partition_that_is_led_elsewhere_is_not_verified(self, bench: Bench) -> None:
        partitions = led(bench, count=2)
        partitions[0].become(led_by(2, replicas=(1, 2), leader_epoch=1))
        sent = send(bench, transactional(), transactional())
        assert bench.verifications.answer().partitions == [("t", 1)]
        assert sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    def test_a_fenced_producer_is_refused_without_a_verification(self, bench: Bench) -> None:
        led(bench)
        send(bench, transactional(epoch=2))
        bench.verifications.answer()
        assert send(bench, transactional(epoch=1)).codes == [ErrorCode.INVALID_PRODUCER_EPOCH]
        assert bench.verifications.open == []

    def test_a_request_without_a_transactional_id_is_refused(self, bench: Bench) -> None:
        led(bench, count=2)
        sent = send(bench, batch(b"x"), transactional(), transactional_id=None)
        assert sent.codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2

    def test_a_request_of_two_producers_is_refused(self, bench: Bench) -> None:
        partitions = led(bench, count=2)
        sent = send(bench, transactional(), transactional(producer=6))
        assert sent.codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert [end_of(partition) for partition in partitions] == [0, 0]

    def test_a_batch_that_is_cut_off_is_refused_without_a_verification(self, bench: Bench) -> None:
        led(bench)
        assert send(bench, transactional()[:40]).codes == [ErrorCode.INVALID_RECORD]

    def test_with_acks_0_the_batch_is_appended_without_a_response(self, bench: Bench) -> None:
        (partition,) = led(bench)
        sent = send(bench, transactional(), acks=0)
        bench.verifications.answer()
        assert sent.request.ctx.parts == [] and end_of(partition) == 1


class TestDisabled:
    def test_without_verification_the_batch_is_appended_at_once(self, bench: Bench) -> None:
        (partition,) = led(bench)
        partition.online_log.context.verifies_transactions = False
        bench.verification.is_enabled = False
        assert send(bench, transactional()).codes == [ErrorCode.NONE]

    def test_partitions_are_added_for_clients_of_version_2_all_the_same(self, bench: Bench) -> None:
        led(bench)
        bench.verification.is_enabled = False
        sent = send(bench, transactional(), version=12)
        bench.verifications.answer()
        assert sent.codes == [ErrorCode.NONE]


class TestErrors:
    @pytest.mark.parametrize(
        ("version", "error", "code"),
        [
            (11, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
            (11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
            (11, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
            (11, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
            (11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
            (12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
            (12, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ],
    )
    def test_an_unverified_batch_is_not_appended(
        self, bench: Bench, version: int, error: ErrorCode, code: ErrorCode
    ) -> None:
        (partition,) = led(bench)
        sent = send(bench, transactional(), version=version)
        bench.verifications.answer(error)
        (result,) = sent.results
        assert (result.error_code, result.base_offset, result.log_start_offset) == (code, -1, -1)
        assert not sent.held and end_of(partition) == 0

    def test_the_other_partitions_of_the_request_are_appended(self, bench: Bench) -> None:
        partitions = led(bench, count=2)
        sent = send(bench, transactional(), transactional())
        (verification,) = bench.verifications.open
        verification.done({("t", 0): ErrorCode.INVALID_TXN_STATE})
        assert sent.codes == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]
        assert [end_of(partition) for partition in partitions] == [0, 1]

    def test_a_batch_is_refused_if_its_transaction_was_ended_during_the_verification(self, bench: Bench) -> None:
        (partition,) = led(bench)
        sent = send(bench, transactional())
        producers = partition.online_log.producers
        guard = producers.begin_verification(5, 0, 0, 0, bumps_epoch=False)
        producers.end_verification(5, guard)
        bench.verifications.answer()
        assert sent.codes == [ErrorCode.INVALID_TXN_STATE] and end_of(partition) == 0

    def test_a_partition_may_lose_its_leadership_during_the_verification(self, bench: Bench) -> None:
        (partition,) = led(bench)
        sent = send(bench, transactional())
        partition.become(led_by(2, replicas=(1, 2), leader_epoch=1))
        bench.verifications.answer()
        assert sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    @pytest.mark.parametrize(("acks", "appended"), [(1, 0), (0, 1)])
    def test_without_a_connection_only_acks_0_is_appended(self, bench: Bench, acks: int, appended: int) -> None:
        """The client repeats what was not acknowledged."""
        (partition,) = led(bench)
        sent = send(bench, transactional(), acks=acks)
        sent.request.answers.closed = True
        bench.verifications.answer()
        assert end_of(partition) == appended

    def test_the_verification_of_a_producer_that_the_coordinator_does_not_know_is_dropped(self, bench: Bench) -> None:
        (partition,) = led(bench)
        send(bench, transactional(sequence=3))
        bench.verifications.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert partition.begin_verification(5, 0, 9, 0, bumps_epoch=False) is not NO_GUARD
        sent = send(bench, transactional(sequence=9))
        bench.verifications.answer()
        assert sent.codes == [ErrorCode.NONE]

    def test_too_many_bytes_of_waiting_requests_close_the_connection(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        led(bench, count=2)
        monkeypatch.setattr(scheduler, "MAX_RESERVED_BYTES", 100)
        first, second = send(bench, transactional()), send(bench, transactional())
        assert not first.request.answers.closed and second.request.answers.closed
        bench.verifications.answer()
        assert bench.scheduler.reserved == 0 and first.codes == [ErrorCode.NONE]


class TestRetries:
    def advance(self, clock: HandClock) -> None:
        clock.advance(0.02)

    def test_a_new_transaction_waits_until_the_previous_one_is_completed(self, bench: Bench) -> None:
        led(bench)
        sent = send(bench, transactional(), version=12)
        bench.verifications.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert bench.verifications.open == [] and not sent.request.answered
        self.advance(bench.clock)
        bench.verifications.answer()
        assert sent.codes == [ErrorCode.NONE]

    def test_only_partitions_with_that_error_are_asked_for_again(self, bench: Bench) -> None:
        led(bench, count=2)
        sent = send(bench, transactional(), transactional(), version=12)
        (verification,) = bench.verifications.open
        bench.verifications.open.clear()
        verification.done({("t", 1): ErrorCode.CONCURRENT_TRANSACTIONS})
        self.advance(bench.clock)
        assert bench.verifications.answer().partitions == [("t", 1)]
        assert sent.codes == [ErrorCode.NONE] * 2

    def test_the_client_retries_after_a_while(self, bench: Bench) -> None:
        led(bench)
        sent = send(bench, transactional(), version=12)
        for _ in range(3):
            bench.verifications.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            self.advance(bench.clock)
        bench.verifications.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert sent.codes == [ErrorCode.CONCURRENT_TRANSACTIONS]

    def test_the_first_pauses_are_short(self, bench: Bench) -> None:
        led(bench)
        bench.verification.retry_max = 1.0
        send(bench, transactional(), version=12)
        waits = []
        for _ in range(5):
            bench.verifications.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            pause = bench.clock.timers[-1].when - bench.clock.now
            waits.append(round(1000 * pause, 1))
            bench.clock.advance(pause + 0.0001)
        assert waits == [2.5, 5.0, 10.0, 20.0, 20.0]

    def test_a_partition_that_is_lost_meanwhile_has_its_error(self, bench: Bench) -> None:
        (partition,) = led(bench)
        sent = send(bench, transactional(), version=12)
        bench.verifications.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        partition.become(led_by(2, replicas=(1, 2), leader_epoch=1))
        self.advance(bench.clock)
        assert bench.verifications.open == [] and sent.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_request_for_many_partitions_is_verified_in_steps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 30
    monkeypatch.setattr(produce, "MAX_IMMEDIATE_ELEMENTS", 10)
    monkeypatch.setattr(produce, "PARTITIONS_PER_YIELD", 5)
    partitions = led(bench, count=count)
    begun: list[int] = []
    begin = Partition.begin_verification

    def counted(partition: Partition, *args: int, bumps_epoch: bool) -> VerificationGuard:
        begun.append(partition.index)
        return begin(partition, *args, bumps_epoch=bumps_epoch)

    monkeypatch.setattr(Partition, "begin_verification", counted)
    sent = send(bench, *[transactional() for _ in range(count)])
    steps = [0]
    while not bench.verifications.open:
        assert sent.held
        await goes(bench.clock)
        steps.append(len(begun))
    assert all(after - before <= 5 for before, after in pairwise(steps)) and steps[-1] == count
    assert end_of(partitions[0]) == 0
    assert len(bench.verifications.answer().partitions) == count
    while not sent.request.answered:
        assert sent.held
        await goes(bench.clock)
    assert sent.codes == [ErrorCode.NONE] * count
    assert not sent.held and bench.scheduler.reserved == 0
