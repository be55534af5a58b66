"""Produce, from the bytes of a request to those of its response."""

from __future__ import annotations

from typing import Any

import pytest

from milena.broker.apis.produce import ADMIN_CLIENT
from milena.broker.replica.partition import ACKS_ALL
from milena.protocol.errors import ErrorCode
from milena.protocol.records.compression import Codec
from milena.protocol.requests.produce import decode_produce_response
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, batch, led_by, set_isr
from tests.unit.broker.produces import produce


def result(request: Request) -> Any:
    response = decode_produce_response(request.version, request.body)
    return response.topics[0][2][0]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_returns_the_offset(bench: Bench, version: int) -> None:
    bench.led().append(batch(b"before"), 1)
    answer = result(produce(bench, batch(b"a", b"b"), version=version))
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 1, -1)
    assert bench.partitions.get("t", 0).high_watermark == 3


def test_a_topic_with_log_append_time_returns_it(bench: Bench) -> None:
    bench.led(message_timestamp_type="LogAppendTime")
    assert result(produce(bench, batch(b"a"))).log_append_time_ms == bench.clock.time_ms()


def test_unknown_not_hosted_and_refused_partitions_have_their_errors(bench: Bench) -> None:
    bench.led()
    bench.topic("elsewhere", led_by(OTHER, leader_epoch=4))
    assert result(produce(bench, batch(b"a"), index=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result(produce(bench, batch(b"a"), topic="none")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result(produce(bench, batch(b"a"), topic="elsewhere")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert result(produce(bench, None)).error_code == ErrorCode.INVALID_RECORD
    assert result(produce(bench, batch(b"a"), acks=2)).error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize("version", [3, 12])
def test_no_record_goes_to_an_earlier_topic_of_the_name_that_is_not_removed_yet(bench: Bench, version: int) -> None:
    """The broker knows that the topic was deleted, or created again, and still hosts the former partition."""
    former = bench.led()
    bench.topic("other", led_by(ME))
    bench.topic("t", led_by(ME))
    again = result(produce(bench, batch(b"a"), version=version))
    del bench.image.topics["t"]
    deleted = result(produce(bench, batch(b"a"), version=version))
    assert again.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert former.online_log.log_end_offset == 0


def test_from_v10_on_the_response_has_the_leader_and_its_endpoint(bench: Bench) -> None:
    bench.topic("elsewhere", led_by(OTHER, leader_epoch=4))
    request = produce(bench, batch(b"a"), topic="elsewhere", version=10)
    assert result(request).current_leader == (OTHER, 4)
    endpoints = decode_produce_response(10, request.body).node_endpoints
    assert [(one.node_id, one.host, one.port) for one in endpoints] == [(OTHER, "plaintext-2", 9092)]


def test_invalid_acks_are_reported_after_partition_and_records_are_checked(bench: Bench) -> None:
    bench.led()
    assert result(produce(bench, batch(b"a"), acks=2, index=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result(produce(bench, None, acks=2)).error_code == ErrorCode.INVALID_RECORD
    assert result(produce(bench, batch(b"a")[:-3], acks=2)).error_code == ErrorCode.INVALID_RECORD
    old = memoryview(bytes(batch(b"a")[:16]) + b"\x01" + bytes(batch(b"a")[17:]))
    assert result(produce(bench, old, acks=2)).error_code == ErrorCode.INVALID_RECORD
    zipped = batch(b"a" * 100, codec=Codec.ZSTD)
    assert result(produce(bench, zipped, acks=2, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_truncated_zstd_batch_is_corrupt_in_old_versions(bench: Bench) -> None:
    bench.led()
    cut = batch(b"a" * 100, codec=Codec.ZSTD)[:-5]
    assert result(produce(bench, cut, version=6)).error_code == ErrorCode.INVALID_RECORD


def test_zstd_needs_version_7(bench: Bench) -> None:
    bench.led()
    zipped = batch(b"a" * 100, codec=Codec.ZSTD)
    assert result(produce(bench, zipped, version=6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert result(produce(bench, zipped, version=7)).error_code == 0


def test_only_the_admin_client_may_produce_to_internal_topics(bench: Bench) -> None:
    bench.led("__consumer_offsets")
    refused = produce(bench, batch(b"a"), topic="__consumer_offsets")
    assert result(refused).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result(produce(bench, batch(b"a"), topic="__consumer_offsets", client_id=ADMIN_CLIENT)).error_code == 0


def test_a_transactional_batch_without_a_transactional_id_is_refused(bench: Bench) -> None:
    partition = bench.led()
    flagged = batch(b"a", transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    assert result(produce(bench, flagged)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert partition.high_watermark == 0


class TestAcks:
    def test_acks_0_has_no_response_and_an_error_closes_the_connection(self, bench: Bench) -> None:
        bench.led()
        fine = produce(bench, batch(b"a"), acks=0)
        assert fine.ctx.parts == [] and not fine.answers.closed
        failed = produce(bench, batch(b"a"), acks=0, index=5)
        assert failed.ctx.parts is None and failed.answers.closed
        assert "UNKNOWN_TOPIC_OR_PARTITION" in (failed.answers.reason or "")

    def test_acks_all_is_answered_when_the_records_are_committed(self, bench: Bench) -> None:
        partition = bench.led()
        set_isr(partition, ME, OTHER)
        request = produce(bench, batch(b"a"), acks=ACKS_ALL)
        assert not request.answered
        set_isr(partition, ME)
        partition.become(led_by(ME))
        assert result(request).error_code == 0 and len(bench.purgatory) == 0

    def test_acks_all_times_out_and_the_record_stays(self, bench: Bench) -> None:
        partition = bench.led()
        set_isr(partition, ME, OTHER)
        request = produce(bench, batch(b"a"), acks=ACKS_ALL, timeout_ms=50)
        bench.clock.advance(0.06)
        assert result(request).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert partition.online_log.log_end_offset == 1

    def test_acks_all_fails_when_the_leadership_is_lost(self, bench: Bench) -> None:
        partition = bench.led()
        set_isr(partition, ME, OTHER)
        request = produce(bench, batch(b"a"), acks=ACKS_ALL)
        partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
        assert result(request).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_too_few_replicas_are_reported_before_the_append(self, bench: Bench) -> None:
        topic = bench.topic("t", led_by(ME, replicas=(1, 2)))
        partition = bench.host(topic, 0, min_insync_replicas=2)
        partition.become(led_by(ME, replicas=(1, 2)))
        answer = result(produce(bench, batch(b"a"), acks=ACKS_ALL))
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS and partition.online_log.log_end_offset == 0


class TestIdempotence:
    def test_a_duplicate_batch_is_answered_like_the_first(self, bench: Bench) -> None:
        partition = bench.led()
        sequenced = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        first = result(produce(bench, batch(b"a", b"b", **sequenced), acks=ACKS_ALL))
        again = result(produce(bench, batch(b"a", b"b", **sequenced), acks=ACKS_ALL))
        assert (first.error_code, first.base_offset) == (again.error_code, again.base_offset) == (0, 0)
        assert partition.high_watermark == 2

    def test_a_gap_is_out_of_order(self, bench: Bench) -> None:
        bench.led()
        produce(bench, batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
        answer = result(produce(bench, batch(b"c", producer_id=7, producer_epoch=0, base_sequence=2)))
        assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_record_errors_are_returned(bench: Bench) -> None:
    bench.led()
    late = batch(b"a", timestamp=bench.clock.time_ms() + 2 * 3_600_000)
    answer = result(produce(bench, late))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert answer.record_errors and answer.error_message


def test_an_error_result_has_the_log_start_offset(bench: Bench) -> None:
    partition = bench.led()
    partition.append(batch(b"gone"), 1)
    partition.delete_records(None)

    def start(records: memoryview) -> int:
        log_start: int = result(produce(bench, records)).log_start_offset
        return log_start

    assert start(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=-1)) == 1
    assert start(memoryview(bytearray(batch(b"a")) + bytearray(batch(b"b")))) == -1, (
        "refused before the log is looked at"
    )
    assert start(batch(b"x" * 2_000_000)) == -1, "MESSAGE_TOO_LARGE"


def test_old_formats_are_not_mistaken_for_transactional_batches(bench: Bench) -> None:
    bench.led()
    old = bytearray(b"\0" * 8 + b"\0\0\0\x19" + b"\0" * 4 + b"\1" + b"\xff" * 20)
    assert result(produce(bench, memoryview(old))).error_code == ErrorCode.INVALID_RECORD


def test_produced_records_are_counted(bench: Bench) -> None:
    partition = bench.led()
    produce(bench, batch(b"a", b"b"))
    produce(bench, None)
    meters = partition.meters
    assert (meters.messages_in.value, meters.produces.value, meters.failed_produces.value) == (2, 2, 1)
    assert meters.bytes_in.value == partition.online_log.size
