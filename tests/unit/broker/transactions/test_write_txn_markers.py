"""WriteTxnMarkers: the markers that a leader appends, and when it says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from milena.broker.apis import write_txn_markers
from milena.broker.apis.write_txn_markers import APPENDS_PER_YIELD
from milena.broker.replica.partition import Partition
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.control_records import AbortMarker, CommitMarker, EndMarkerRequest, control_of
from milena.protocol.records.records import iter_records
from milena.protocol.requests import messages
from milena.protocol.types import OFFSETS_TOPIC, Offset, TopicPartition
from milena.storage.state.producer_state import NO_GUARD
from tests.unit.broker.fixtures import ME, Bench, Request, batch, led_by, set_isr
from tests.unit.broker.leading import fetch, led

PRODUCER = 5
OTHER_PRODUCER = 6
KEY = ApiKey.WRITE_TXN_MARKERS


@dataclass
class HandGroups:
    """A group coordinator whose results the test gives."""

    asked: list[tuple[int, EndMarkerRequest]] = field(default_factory=list)
    open: list[Callable[[ErrorCode], None]] = field(default_factory=list)

    def complete_transaction(self, index: int, marker: EndMarkerRequest, done: Callable[[ErrorCode], None]) -> None:
        self.asked.append((index, marker))
        self.open.append(done)


def marker(
    *partitions: TopicPartition,
    producer: int = PRODUCER,
    epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 3,
    version: int = 0,
) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": indexes} for topic, indexes in topics.items()],
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": version,
    }


class Asked:
    """A request, and its results by producer id and partition once it is answered."""

    def __init__(self, bench: Bench, *markers: dict[str, Any], version: int = 2) -> None:
        self.request = Request(KEY, version)
        self.work = write_txn_markers.handle(bench, self.request.ctx, decoded(*markers, version=version))  # type: ignore[arg-type]

    @property
    def answered(self) -> bool:
        return self.request.answered

    @property
    def results(self) -> dict[int, dict[TopicPartition, ErrorCode]]:
        return {
            found.producer_id: {
                (topic.name, one.partition_index): ErrorCode(one.error_code)
                for topic in found.topics
                for one in topic.partitions
            }
            for found in self.request.response.markers
        }

    @property
    def codes(self) -> dict[TopicPartition, ErrorCode]:
        """The results of the only producer id."""
        ((_, codes),) = self.results.items()
        return codes


def decoded(*markers: dict[str, Any], version: int = 2) -> Any:
    return messages.decode_request(KEY, version, messages.encode_request(KEY, version, markers=markers))


def ask(bench: Bench, *markers: dict[str, Any], version: int = 2) -> Asked:
    asked = Asked(bench, *markers, version=version)
    run_now(asked.work)
    return asked


def transactional(*values: bytes, epoch: int = 0, producer: int = PRODUCER, sequence: int = 0) -> memoryview:
    return batch(
        *values,
        timestamp=1_700_000_000_000,
        transactional=True,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def begin(partition: Partition, *, epoch: int = 0, producer: int = PRODUCER) -> None:
    """Append the first batch of a transaction."""
    partition.append(transactional(b"x", epoch=epoch, producer=producer), 1, guard=NO_GUARD)


def batches(partition: Partition) -> list[BatchView]:
    log = partition.online_log
    return list(iter_batches(log.read_bytes(Offset(0), 1 << 20, upper=log.log_end_offset, min_one=True)))


def controls(partition: Partition) -> list[Any]:
    return [control_of(record) for one in batches(partition) if one.is_control for record in iter_records(one)]


@pytest.mark.parametrize(("commit", "kind"), [(True, CommitMarker), (False, AbortMarker)])
def test_the_marker_ends_the_transaction_in_the_partition(
    bench: Bench, commit: bool, kind: type[CommitMarker | AbortMarker]
) -> None:
    partition = bench.led()
    begin(partition)
    assert partition.online_log.last_stable_offset == 0
    answer = ask(bench, marker(("t", 0), commit=commit, coordinator_epoch=8))
    assert answer.codes == {("t", 0): ErrorCode.NONE}
    (control,) = controls(partition)
    assert isinstance(control, kind) and control.coordinator_epoch == 8
    assert partition.online_log.last_stable_offset == 2
    aborted = partition.online_log.aborted_transactions(Offset(0), Offset(2))
    assert len(aborted) == (0 if commit else 1)


def test_the_batch_of_a_marker_is_that_of_kafka(bench: Bench) -> None:
    partition = bench.led()
    ask(bench, marker(("t", 0), epoch=4))
    (written,) = batches(partition)
    assert written.is_control and written.is_transactional and written.count == 1
    assert (written.producer_id, written.producer_epoch, written.base_sequence) == (PRODUCER, 4, -1)
    assert written.max_timestamp == bench.clock.time_ms() and len(written.memory) == 78


def test_one_request_ends_transactions_of_several_producers(bench: Bench) -> None:
    partition = bench.led(count=2)
    begin(partition)
    begin(partition, producer=OTHER_PRODUCER)
    answer = ask(
        bench,
        marker(("t", 0), ("t", 1)),
        marker(("t", 0), ("nowhere", 4), producer=OTHER_PRODUCER, commit=False),
    )
    assert answer.results == {
        PRODUCER: {("t", 0): ErrorCode.NONE, ("t", 1): ErrorCode.NONE},
        OTHER_PRODUCER: {("t", 0): ErrorCode.NONE, ("nowhere", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert [type(control) for control in controls(partition)] == [CommitMarker, AbortMarker]


def test_a_request_without_markers_is_answered(bench: Bench) -> None:
    assert ask(bench).results == {}
    assert ask(bench, marker()).results == {}


def test_a_partition_that_this_broker_does_not_host_or_that_is_offline_is_unknown(bench: Bench) -> None:
    partition = bench.led(count=2)
    bench.topic("elsewhere", led_by(2))
    partition.take_offline()
    codes = ask(bench, marker(("t", 0), ("t", 1), ("elsewhere", 0))).codes
    assert codes == {
        ("t", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 1): ErrorCode.NONE,
        ("elsewhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_follower_writes_no_marker(bench: Bench) -> None:
    image = led_by(2, replicas=(1, 2))
    bench.host(bench.topic("t", image), 0).become(image)
    assert ask(bench, marker(("t", 0))).codes == {("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_no_marker_is_written_to_an_earlier_topic_of_the_name(bench: Bench) -> None:
    partition = bench.led()
    bench.topic("t", led_by(ME))
    assert ask(bench, marker(("t", 0))).codes == {("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert partition.online_log.log_end_offset == 0


def test_a_marker_needs_enough_replicas_in_sync(bench: Bench) -> None:
    partition = led(bench, isr=(1,), min_isr=2)
    assert ask(bench, marker(("t", 0))).codes == {("t", 0): ErrorCode.NOT_ENOUGH_REPLICAS}
    assert partition.online_log.log_end_offset == 0


def test_the_response_waits_until_the_marker_is_committed(bench: Bench) -> None:
    partition = led(bench)
    answer = ask(bench, marker(("t", 0)))
    fetch(bench, partition, 2, 1)
    assert not answer.answered
    fetch(bench, partition, 3, 1)
    assert answer.codes == {("t", 0): ErrorCode.NONE}


def test_a_marker_that_is_not_committed_in_time_is_reported(bench: Bench) -> None:
    partition = led(bench)
    answer = ask(bench, marker(("t", 0)))
    bench.clock.advance(bench.config.get_int("request.timeout.ms") / 1000)
    assert answer.codes == {("t", 0): ErrorCode.REQUEST_TIMED_OUT}
    assert partition.online_log.log_end_offset == 1


def test_a_leader_that_resigns_reports_it(bench: Bench) -> None:
    partition = led(bench)
    answer = ask(bench, marker(("t", 0)))
    partition.become(led_by(2, replicas=(1, 2, 3), leader_epoch=1))
    assert answer.codes == {("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_marker_that_too_few_replicas_have_is_reported(bench: Bench) -> None:
    partition = led(bench, min_isr=2)
    answer = ask(bench, marker(("t", 0)))
    set_isr(partition, 1)
    partition.online_log.raise_high_watermark(Offset(1))
    partition.changed()
    assert answer.codes == {("t", 0): ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


def test_the_marker_of_an_older_producer_epoch_is_refused(bench: Bench) -> None:
    partition = bench.led()
    begin(partition, epoch=2)
    codes = ask(bench, marker(("t", 0), epoch=1)).codes
    assert codes == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH} and not controls(partition)


def test_the_marker_of_an_older_coordinator_is_refused(bench: Bench) -> None:
    partition = bench.led()
    ask(bench, marker(("t", 0), coordinator_epoch=7))
    codes = ask(bench, marker(("t", 0), coordinator_epoch=6)).codes
    assert codes == {("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED} and len(controls(partition)) == 1


def test_with_transaction_version_2_a_marker_has_a_newer_epoch(bench: Bench) -> None:
    partition = bench.led()
    begin(partition, epoch=2)
    refused = ask(bench, marker(("t", 0), epoch=2, version=2))
    assert refused.codes == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert ask(bench, marker(("t", 0), epoch=3, version=2)).codes == {("t", 0): ErrorCode.NONE}
    again = ask(bench, marker(("t", 0), epoch=3, version=2))
    assert again.codes == {("t", 0): ErrorCode.NONE} and len(controls(partition)) == 2


def test_version_1_has_no_transaction_version(bench: Bench) -> None:
    partition = bench.led()
    begin(partition, epoch=2)
    assert ask(bench, marker(("t", 0), epoch=2, version=2), version=1).codes == {("t", 0): ErrorCode.NONE}


def test_a_partition_that_a_marker_names_twice_gets_it_once(bench: Bench) -> None:
    partition = bench.led()
    repeated = marker(("t", 0))
    repeated["topics"] *= 3
    assert ask(bench, repeated).codes == {("t", 0): ErrorCode.NONE}
    assert len(controls(partition)) == 1


def test_the_last_marker_of_a_producer_determines_the_result(bench: Bench) -> None:
    partition = bench.led()
    begin(partition, epoch=2)
    codes = ask(bench, marker(("t", 0), epoch=2), marker(("t", 0), epoch=1)).codes
    assert codes == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH} and len(controls(partition)) == 1


@pytest.mark.parametrize(("producer", "epoch"), [(-1, 0), (PRODUCER, -1)])
def test_a_marker_without_a_producer_is_refused(bench: Bench, producer: int, epoch: int) -> None:
    partition = bench.led()
    answer = ask(bench, marker(("t", 0), producer=OTHER_PRODUCER), marker(("t", 0), producer=producer, epoch=epoch))
    refused = answer.results[producer]
    assert refused == {("t", 0): ErrorCode.UNKNOWN_SERVER_ERROR} and len(controls(partition)) == 1


def test_an_error_of_the_request_is_that_of_all_partitions() -> None:
    request = decoded(marker(("t", 0), ("u", 1)), marker(("t", 0), producer=OTHER_PRODUCER))
    context = Request(KEY, 2)
    context.ctx.respond_fields(
        **write_txn_markers.failed(context.ctx, request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    )
    refused = [
        (found.producer_id, topic.name, one.partition_index, ErrorCode(one.error_code))
        for found in context.response.markers
        for topic in found.topics
        for one in topic.partitions
    ]
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert refused == [(PRODUCER, "t", 0, error), (PRODUCER, "u", 1, error), (OTHER_PRODUCER, "t", 0, error)]


def test_the_group_coordinator_ends_transactions_of_offsets(bench: Bench) -> None:
    groups = HandGroups()
    bench.groups = groups  # type: ignore[attr-defined]
    bench.led(OFFSETS_TOPIC)
    partition = bench.led("t")
    answer = ask(bench, marker((OFFSETS_TOPIC, 0), ("t", 0), epoch=2, commit=False, version=2))
    assert groups.asked == [(0, EndMarkerRequest(PRODUCER, 2, 3, False, 2))]  # type: ignore[arg-type]
    assert len(controls(partition)) == 1 and not answer.answered
    groups.open.pop()(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert answer.codes == {(OFFSETS_TOPIC, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER, ("t", 0): ErrorCode.NONE}


def test_the_response_waits_for_the_slower_of_groups_and_partitions(bench: Bench) -> None:
    groups = HandGroups()
    bench.groups = groups  # type: ignore[attr-defined]
    bench.led(OFFSETS_TOPIC)
    partition = led(bench)
    answer = ask(bench, marker((OFFSETS_TOPIC, 0), ("t", 0)))
    groups.open.pop()(ErrorCode.NONE)
    assert not answer.answered
    for node in (2, 3):
        fetch(bench, partition, node, 1)
    assert answer.codes == {(OFFSETS_TOPIC, 0): ErrorCode.NONE, ("t", 0): ErrorCode.NONE}


def test_a_client_that_has_disconnected_gets_no_answer(bench: Bench) -> None:
    groups = HandGroups()
    bench.groups = groups  # type: ignore[attr-defined]
    bench.led(OFFSETS_TOPIC)
    answer = ask(bench, marker((OFFSETS_TOPIC, 0)))
    answer.request.answers.closed = True
    groups.open.pop()(ErrorCode.NONE)
    assert not answer.answered


@pytest.mark.parametrize("partitions", [1, 200])
def test_nothing_more_is_written_for_a_client_that_has_disconnected(bench: Bench, partitions: int) -> None:
    bench.led(count=partitions)
    of_marker = [("t", index) for index in range(partitions)]
    asked = Asked(bench, *[marker(*of_marker, producer=producer) for producer in range(200 // partitions)])
    next(asked.work)
    written = appended(bench)
    asked.request.answers.closed = True
    run_now(asked.work)
    assert 0 < written == appended(bench)


def appended(bench: Bench) -> int:
    return sum(hosted.online_log.log_end_offset for hosted in bench.partitions)


def steps(work: Iterable[None]) -> int:
    return sum(1 for _ in work)


def test_a_large_request_yields_between_its_markers(bench: Bench) -> None:
    count = 1_000
    bench.led()
    asked = Asked(bench, *[marker(("t", 0), producer=producer) for producer in range(count)])
    assert steps(asked.work) == 2 * count // APPENDS_PER_YIELD and len(asked.results) == count
    wide = marker(*[("t", index) for index in range(count)])
    assert steps(Asked(bench, wide).work) == count // APPENDS_PER_YIELD


def test_appends_before_a_yield_may_be_truncated_since(bench: Bench) -> None:
    partition = led(bench)
    asked = Asked(bench, *[marker(("t", 0), producer=producer) for producer in range(APPENDS_PER_YIELD)])
    next(iter(asked.work))
    partition.become(led_by(2, replicas=(1, 2, 3), leader_epoch=1))
    partition.become(led_by(ME, replicas=(1, 2, 3), isr=(1, 2, 3), leader_epoch=2))
    run_now(asked.work)
    for node in (2, 3):
        fetch(bench, partition, node, APPENDS_PER_YIELD)
    first, last = (list(asked.results[producer].values()) for producer in (0, APPENDS_PER_YIELD - 1))
    assert (first, last) == ([ErrorCode.NOT_LEADER_OR_FOLLOWER], [ErrorCode.NONE])


def test_all_markers_of_a_partition_wait_for_the_last_one(bench: Bench) -> None:
    partition = led(bench)
    answer = ask(bench, *[marker(("t", 0), producer=producer) for producer in range(3)])
    for node in (2, 3):
        fetch(bench, partition, node, 2)
    assert not answer.answered
    for node in (2, 3):
        fetch(bench, partition, node, 3)
    assert answer.results == {producer: {("t", 0): ErrorCode.NONE} for producer in range(3)}


def test_if_the_last_marker_of_a_partition_is_not_committed_none_counts(bench: Bench) -> None:
    led(bench)
    answer = ask(bench, *[marker(("t", 0), producer=producer) for producer in range(3)])
    bench.clock.advance(bench.config.get_int("request.timeout.ms") / 1000)
    assert answer.results == {producer: {("t", 0): ErrorCode.REQUEST_TIMED_OUT} for producer in range(3)}


def test_a_topic_with_small_batches_takes_markers(bench: Bench) -> None:
    """In Kafka the marker is too large, and the coordinator's broker ends."""
    partition = bench.led(max_message_bytes=70)
    assert ask(bench, marker(("t", 0))).codes == {("t", 0): ErrorCode.NONE}
    assert len(controls(partition)) == 1
