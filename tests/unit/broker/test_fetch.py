"""Fetch, from the bytes of a request to those of its response, with waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milena.broker.apis.fetch import handle
from milena.broker.reading.fetching import FILES_BEFORE_COPIES, MAX_COPIED_RANGE, MAX_FILES
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch_request import FetchRequest, encode_fetch_request
from milena.runtime.network import FileRange
from tests.unit.broker.consumer_fetches import fetch, response, results, values, want
from tests.unit.broker.fixtures import OTHER, Bench, Request, batch, led_by


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_returns_appended_records(bench: Bench, version: int) -> None:
    partition = bench.led()
    partition.append(batch(b"a", b"b"), 1)
    partition.append(batch(b"c"), 1)
    (found,) = results(fetch(bench, want(), version=version))
    assert values(found.records) == [b"a", b"b", b"c"]
    assert (found.error_code, found.high_watermark, found.last_stable_offset) == (0, 3, 3)
    (rest,) = results(fetch(bench, want(offset=2), version=version))
    assert values(rest.records) == [b"c"]


def test_read_committed_gets_a_list_of_aborted_transactions(bench: Bench) -> None:
    bench.led().append(batch(b"a"), 1)
    assert results(fetch(bench, want(), isolation_level=1))[0].aborted == []
    assert results(fetch(bench, want(), isolation_level=0))[0].aborted is None


@pytest.mark.parametrize(("offset", "max_bytes", "aborted"), [(0, 1, None), (0, 0, []), (1, 1, []), (0, 1 << 20, [])])
def test_the_list_is_null_if_the_first_batch_exceeds_the_limit(
    bench: Bench, offset: int, max_bytes: int, aborted: list[Any] | None
) -> None:
    bench.led(count=2).append(batch(b"a"), 1)
    other = bench.partitions.find("t", 1)
    assert other is not None
    other.append(batch(b"a"), 1)
    asked = want(0), want(1, offset, max_bytes)
    assert results(fetch(bench, *asked, isolation_level=1))[1].aborted == aborted


class TestErrors:
    def test_each_partition_has_its_own_error(self, bench: Bench) -> None:
        bench.led(leader_epoch=3, count=4).append(batch(b"a"), 1)
        asked = [
            want(),
            want(5),
            want(1, offset=9),
            want(2, current_leader_epoch=2),
            want(3, current_leader_epoch=4),
        ]
        assert [one.error_code for one in results(fetch(bench, *asked))] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
        ]

    def test_a_partition_led_elsewhere_names_its_leader_from_v16_on(self, bench: Bench) -> None:
        bench.topic("t", led_by(OTHER, leader_epoch=4))
        request = fetch(bench, want(), version=16)
        (found,) = results(request)
        assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and found.current_leader == (OTHER, 4)
        assert [one.node_id for one in response(request).node_endpoints] == [OTHER]

    def test_a_broker_that_is_not_a_replica_may_not_fetch(self, bench: Bench) -> None:
        bench.led()
        for replica, expected in ((-2, ErrorCode.NONE), (2, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
            assert results(fetch(bench, want(), replica_id=replica, max_wait_ms=0))[0].error_code == expected

    def test_an_unknown_topic_has_an_empty_list_of_aborted_transactions(self, bench: Bench) -> None:
        bench.led()
        unknown, beyond = results(fetch(bench, want(5), want(offset=9)))
        assert unknown.aborted == [] and beyond.aborted is None

    def test_old_versions_get_another_code_for_the_storage_error(self, bench: Bench) -> None:
        partition = bench.led()
        log = partition.online_log
        partition.take_offline()
        assert results(fetch(bench, want(), version=6))[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert results(fetch(bench, want(), version=5))[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        log.close()

    def test_a_diverging_reader_is_answered_at_once(self, bench: Bench) -> None:
        partition = bench.led(leader_epoch=1)
        partition.append(batch(b"a"), 1)
        (found,) = results(fetch(bench, want(offset=1, last_fetched_epoch=1), max_wait_ms=0))
        assert found.diverging_epoch is None
        partition.become(led_by(1, leader_epoch=3))
        partition.append(batch(b"b"), 1)
        (found,) = results(fetch(bench, want(offset=2, last_fetched_epoch=2)))
        assert found.diverging_epoch == (1, 1) and not bytes(found.records)


class TestLimits:
    def test_the_first_batch_is_complete_and_the_next_partition_gets_the_remaining_bytes(self, bench: Bench) -> None:
        bench.led(count=3)
        sizes = [bench.partitions.get("t", index).append(batch(b"x" * 100), 1).size for index in range(3)]
        tiny = results(fetch(bench, *[want(index) for index in range(3)], max_bytes=1))
        assert [len(bytes(one.records)) for one in tiny] == [sizes[0], 0, 0]
        two = results(fetch(bench, *[want(index) for index in range(3)], max_bytes=sizes[0] + sizes[1]))
        assert [len(bytes(one.records)) for one in two] == [sizes[0], sizes[1], 0]

    def test_a_partition_returns_at_most_its_max_bytes(self, bench: Bench) -> None:
        partition = bench.led()
        sizes = [partition.append(batch(b"x" * 100), 1).size for _ in range(3)]
        (found,) = results(fetch(bench, want(max_bytes=sizes[0] * 2 + 5)))
        assert len(bytes(found.records)) == sizes[0] * 2 + 5, "the tail may be a part of a batch"


class TestWaiting:
    def test_an_append_completes_the_fetch_at_once(self, bench: Bench) -> None:
        partition = bench.led()
        request = fetch(bench, want())
        assert not request.answered
        partition.append(batch(b"a"), 1)
        assert values(results(request)[0].records) == [b"a"] and len(bench.purgatory) == 0

    def test_a_fetch_waits_for_min_bytes_over_all_partitions(self, bench: Bench) -> None:
        bench.led(count=2)
        size = bench.partitions.get("t", 0).append(batch(b"a"), 1).size
        request = fetch(bench, want(0), want(1), min_bytes=size * 2 + 1)
        bench.partitions.get("t", 1).append(batch(b"b"), 1)
        assert not request.answered
        bench.partitions.get("t", 0).append(batch(b"c"), 1)
        assert [values(one.records) for one in results(request)] == [[b"a", b"c"], [b"b"]]

    def test_after_its_wait_it_is_answered_with_the_present_records(self, bench: Bench) -> None:
        bench.led().append(batch(b"a"), 1)
        request = fetch(bench, want(), min_bytes=1 << 19, max_wait_ms=100)
        assert not request.answered
        bench.clock.advance(0.1)
        assert values(results(request)[0].records) == [b"a"]

    def test_the_loss_of_leadership_ends_the_wait(self, bench: Bench) -> None:
        partition = bench.led()
        request, aware = fetch(bench, want(), version=10), fetch(bench, want(current_leader_epoch=0))
        partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
        assert results(request)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert results(aware)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH

    def test_a_removed_partition_ends_the_wait(self, bench: Bench) -> None:
        partition = bench.led()
        request = fetch(bench, want())
        log = partition.online_log
        del bench.image.topics["t"]
        bench.partitions.remove(partition)
        assert results(request)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log.close()

    def test_a_disconnected_client_is_not_answered(self, bench: Bench) -> None:
        partition = bench.led()
        request = fetch(bench, want())
        request.answers.closed = True
        partition.append(batch(b"a"), 1)
        assert not request.answered and len(bench.purgatory) == 0

    def test_a_fetch_without_partitions_is_answered_at_once(self, bench: Bench) -> None:
        assert results(fetch(bench)) == []


class TestSessions:
    def test_an_incremental_response_has_only_changed_partitions(self, bench: Bench) -> None:
        bench.led(count=2)
        session = response(fetch(bench, want(0), want(1), version=13, session_epoch=0, max_wait_ms=0)).session_id
        assert session
        quiet = fetch(bench, version=13, session_id=session, session_epoch=1, max_wait_ms=0)
        assert results(quiet) == [] and response(quiet).session_id == session
        bench.partitions.get("t", 1).append(batch(b"a"), 1)
        (found,) = results(fetch(bench, version=13, session_id=session, session_epoch=2, max_wait_ms=0))
        assert found.partition == 1 and values(found.records) == [b"a"]
        moved = fetch(bench, want(1, offset=1), version=13, session_id=session, session_epoch=3, max_wait_ms=0)
        assert results(moved) == []

    def test_a_session_waits_like_any_fetch(self, bench: Bench) -> None:
        bench.led(count=2)
        session = response(fetch(bench, want(0), want(1), version=13, session_epoch=0, max_wait_ms=0)).session_id
        request = fetch(bench, version=13, session_id=session, session_epoch=1)
        bench.partitions.get("t", 0).append(batch(b"a"), 1)
        assert [one.partition for one in results(request)] == [0]

    def test_partitions_omitted_by_the_limits_are_read_next_time(self, bench: Bench) -> None:
        bench.led(count=2)
        sizes = [bench.partitions.get("t", index).append(batch(b"x" * 100), 1).size for index in range(2)]
        first = fetch(bench, want(0), want(1), version=13, session_epoch=0, max_bytes=sizes[0])
        assert [len(bytes(one.records)) for one in results(first)] == [sizes[0], 0]
        session = response(first).session_id
        again = fetch(bench, want(0, offset=1), version=13, session_id=session, session_epoch=1, max_bytes=sizes[0])
        assert [(one.partition, len(bytes(one.records))) for one in results(again)] == [(1, sizes[1])]

    def test_a_session_waits_for_min_bytes_over_many_appends(self, bench: Bench) -> None:
        bench.led(count=2)
        session = response(fetch(bench, want(0), want(1), version=13, session_epoch=0, max_wait_ms=0)).session_id
        size = len(batch(b"a"))
        request = fetch(bench, version=13, session_id=session, session_epoch=1, min_bytes=3 * size)
        for index in (0, 1):
            bench.partitions.get("t", index).append(batch(b"a"), 1)
            assert not request.answered
        bench.partitions.get("t", 0).append(batch(b"b"), 1)
        assert {one.partition: values(one.records) for one in results(request)} == {0: [b"a", b"b"], 1: [b"a"]}

    def test_a_lost_leadership_completes_a_session_fetch(self, bench: Bench) -> None:
        partition = bench.led()
        wanted = want(current_leader_epoch=0)
        session = response(fetch(bench, wanted, version=13, session_epoch=0, max_wait_ms=0)).session_id
        request = fetch(bench, version=13, session_id=session, session_epoch=1)
        partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
        assert results(request)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        again = fetch(bench, version=13, session_id=session, session_epoch=2)
        assert results(again)[0].error_code == ErrorCode.FENCED_LEADER_EPOCH, (
            "an error is sent with each response until it is resolved"
        )

    def test_a_moved_log_start_is_sent(self, bench: Bench) -> None:
        partition = bench.led()
        partition.append(batch(b"a"), 1)
        session = response(fetch(bench, want(offset=1), version=13, session_epoch=0, max_wait_ms=0)).session_id
        partition.delete_records(None)
        (found,) = results(fetch(bench, version=13, session_id=session, session_epoch=1, max_wait_ms=0))
        assert found.log_start_offset == 1
        assert results(fetch(bench, version=13, session_id=session, session_epoch=2, max_wait_ms=0)) == []

    def test_an_unknown_session_fails_the_whole_request(self, bench: Bench) -> None:
        bench.led()
        refused = response(fetch(bench, version=12, session_id=99, session_epoch=1))
        assert (refused.error_code, refused.topics) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])

    def test_an_unknown_topic_id_stays_in_the_session_until_it_resolves(self, bench: Bench) -> None:
        topic = bench.topic("later", led_by(1))
        del bench.image.topics["later"], bench.image.topics_by_id[topic.id]
        request = FetchRequest(0, 1, 1 << 20, [(None, topic.id, [want()])], session_epoch=0)
        made = Request(ApiKey.FETCH, 13)
        bench.serve(made, handle, bytearray(encode_fetch_request(13, request)))
        assert results(made)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        session = response(made).session_id
        bench.image.topics["later"] = bench.image.topics_by_id[topic.id] = topic
        bench.host(topic, 0).become(led_by(1))
        again = fetch(bench, version=13, session_id=session, session_epoch=1, max_wait_ms=0)
        assert results(again)[0].error_code == 0

    def test_a_topic_id_that_was_resolved_once_is_never_unknown(self, bench: Bench) -> None:
        partition = bench.led()
        session = response(fetch(bench, want(), version=13, session_epoch=0, max_wait_ms=0)).session_id
        old = bench.image.topics.pop("t")
        del bench.image.topics_by_id[old.id]
        bench.partitions.remove(partition)
        gone = fetch(bench, version=13, session_id=session, session_epoch=1, max_wait_ms=0)
        assert results(gone)[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        bench.topic("other", led_by(OTHER))
        new = bench.topic("t", led_by(1))
        Path(bench.folder / "t-0").rename(bench.folder / "t-0-delete")
        bench.host(new, 0).become(led_by(1))
        stale = fetch(bench, version=13, session_id=session, session_epoch=2, max_wait_ms=0)
        assert results(stale)[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID

    def test_a_session_may_begin_without_partitions(self, bench: Bench) -> None:
        bench.led()
        begun = fetch(bench, version=12, session_epoch=0)
        assert begun.answered
        session = response(begun).session_id
        again = fetch(bench, want(), version=12, session_id=session, session_epoch=1, max_wait_ms=0)
        assert [one.partition for one in results(again)] == [0]


def test_a_waiting_fetch_holds_the_later_requests_of_its_connection(bench: Bench) -> None:
    partition = bench.led()
    waiting = fetch(bench, want())
    assert (waiting.answered, waiting.answers.held) == (False, True)
    partition.append(batch(b"a"), 1)
    assert values(results(waiting)[0].records) == [b"a"]
    assert not fetch(bench, want()).answers.held, "a fetch that is answered at once holds no later request"


def test_no_operation_waits_for_a_disconnected_client(bench: Bench) -> None:
    partition = bench.led()
    waiting = fetch(bench, want(), max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
    assert len(bench.purgatory) == 1 and waiting.ctx.forget is not None
    waiting.answers.closed = True
    waiting.ctx.forget()
    assert len(bench.purgatory) == 0
    partition.append(batch(b"a"), 1)
    assert not waiting.answered


@pytest.mark.parametrize(
    ("size", "files", "served"), [(10, FILES_BEFORE_COPIES, 300), (MAX_COPIED_RANGE, MAX_FILES, 300 - 44)]
)
def test_a_response_with_many_ranges_holds_few_files(bench: Bench, size: int, files: int, served: int) -> None:
    """Each range holds a file descriptor until it is sent; a client may fetch thousands of partitions."""
    bench.led(count=300)
    for index in range(300):
        partition = bench.partitions.find("t", index)
        assert partition is not None
        partition.append(batch(b"%d" % index + b" " * size), 1)
    made = fetch(bench, *(want(index) for index in range(300)), max_bytes=1 << 24)
    found = [values(one.records) for one in results(made)]
    assert [int(one[0] or b"") for one in found if one] == list(range(served))
    assert sum(isinstance(part, FileRange) for part in made.ctx.parts or ()) == files
