"""Followers' fetches at the leader: progress, acks=all, divergence, sessions; and fetches from followers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from milena.broker.apis.produce import handle as handle_produce
from milena.broker.replica.partition import Partition
from milena.node.metadata.image import BrokerImage, ListenerImage
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch_response import FetchedPartition
from milena.protocol.requests.produce import ProduceRequest, decode_produce_response, encode_produce_request
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, batch, led_by
from tests.unit.broker.follower_fetches import fetch, records, response, result
from tests.unit.broker.leading import REPLICAS, append, led, register


def produce(bench: Bench, *, timeout: int = 1000) -> Request:
    made = Request(ApiKey.PRODUCE, 12)
    body = encode_produce_request(12, ProduceRequest(None, -1, timeout, [("t", None, [(0, batch(b"x"))])]))
    bench.serve(made, handle_produce, bytearray(body))
    return made


def code(request: Request) -> int:
    return int(decode_produce_response(12, memoryview(request.body)).topics[0][2][0].error_code)


def log_end_of(partition: Partition, node: int) -> int:
    assert partition.leader_state is not None
    return partition.leader_state.followers[NodeId(node)].log_end


class TestAcksAll:
    def test_a_caught_up_fetch_completes_the_produce_and_waits(self, bench: Bench) -> None:
        led(bench, (1, 2))
        waiting = fetch(bench, 0)
        producing = produce(bench)
        assert not producing.answered
        assert len(records(result(waiting))) > 0, "answered at once, not after the wait"
        again = fetch(bench, 1)
        assert code(producing) == 0 and not again.answered

    def test_a_produce_waits_for_the_last_isr_member(self, bench: Bench) -> None:
        led(bench)
        producing = produce(bench)
        fetch(bench, 1)
        assert not producing.answered
        fetch(bench, 1, node=3)
        assert code(producing) == 0

    def test_too_few_replicas_at_the_commit_are_an_error_after_append(self, bench: Bench) -> None:
        partition = led(bench, (1, 2), min_isr=2)
        producing = produce(bench)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1,), partition_epoch=1))
        assert not producing.answered and partition.high_watermark == 0
        partition.online_log.set_high_watermark(partition.online_log.log_end_offset)
        partition.changed()
        assert code(producing) == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert code(produce(bench)) == ErrorCode.NOT_ENOUGH_REPLICAS

    def test_a_shrunken_isr_commits_what_the_others_have(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        producing = produce(bench, timeout=100_000)
        bench.clock.advance(31)
        assert partition.leader_state is not None
        partition.leader_state.maybe_shrink()
        assert not producing.answered
        bench.proposals.accept()
        assert code(producing) == 0

    def test_a_lost_leadership_fails_the_produce(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        producing = produce(bench)
        partition.become(led_by(OTHER, replicas=REPLICAS, isr=(1, 2), leader_epoch=1))
        assert code(producing) == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestProgress:
    def test_a_fetch_below_the_log_start_is_no_progress(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 3)
        for node in (2, 3):
            fetch(bench, 3, node=node)
        partition.delete_records(None)
        assert result(fetch(bench, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log_end_of(partition, 2) == 3

    def test_a_diverging_fetch_changes_nothing(self, bench: Bench) -> None:
        """KAFKA-13141: it lacks records below its offset."""
        partition = led(bench, (1, 2))
        append(partition, 2)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 2), leader_epoch=3))
        append(partition, 2)
        found = result(fetch(bench, 4, current_leader_epoch=3, last_fetched_epoch=2))
        assert found.diverging_epoch == (0, 2) and not records(found)
        assert log_end_of(partition, 2) == -1 and partition.high_watermark == 0

    @pytest.mark.parametrize("version", [13, 14, 15, 17, 18])
    def test_every_version_identifies_the_fetching_replica(self, bench: Bench, version: int) -> None:
        partition = led(bench, (1,))
        append(partition)
        fetch(bench, 1, version=version)
        assert log_end_of(partition, 2) == 1
        assert bench.proposals.members() == {1: 1, 2: 2 if version >= 15 else -1}

    def test_a_new_leader_epoch_ends_the_wait_of_a_follower(self, bench: Bench) -> None:
        partition = led(bench)
        waiting = fetch(bench, 0)
        partition.become(led_by(ME, replicas=REPLICAS, isr=REPLICAS, leader_epoch=1))
        assert result(waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH

    def test_a_divergence_ends_the_wait(self, bench: Bench) -> None:
        """The follower's last records were truncated at the leader, and others appended at their offsets."""
        partition = led(bench)
        append(partition, 3)
        waiting = fetch(bench, 3, current_leader_epoch=-1, last_fetched_epoch=0)
        partition.online_log.truncate_to(partition.online_log.log_start_offset)
        partition.online_log.assign_epoch(LeaderEpoch(2), partition.online_log.log_end_offset)
        partition.changed()
        assert waiting.answered and (result(waiting).diverging_epoch or result(waiting).error_code)


class TestSessions:
    def open(self, bench: Bench, offset: int, **options: Any) -> int:
        return response(fetch(bench, offset, session=(0, 0), wait=0, **options)).session_id

    def test_an_idle_partition_is_not_read_and_does_not_lag(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        session = self.open(bench, 0)
        assert partition.leader_state is not None
        for number in range(1, 20):
            bench.clock.advance(10)
            assert response(fetch(bench, None, session=(session, number), wait=0)).topics == []
        held = bench.sessions.plan(session, 20, [], [], privileged=True, uses_topic_ids=True).session
        assert held is not None and not held.to_read
        append(partition)
        partition.leader_state.maybe_shrink()
        assert bench.proposals.open == []

    def test_a_partition_outside_the_isr_is_read_with_every_fetch(self, bench: Bench) -> None:
        led(bench, (1,))
        register(bench, 2, 2, fenced=True)
        session = self.open(bench, 0)
        fetch(bench, None, session=(session, 1), wait=0)
        assert bench.proposals.open == []
        register(bench, 2, 2)
        fetch(bench, None, session=(session, 2), wait=0)
        assert bench.proposals.members() == {1: 1, 2: 2}

    def test_the_session_of_a_former_incarnation_is_refused_for_each_partition(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        session = self.open(bench, 0)
        assert partition.leader_state is not None
        before = partition.leader_state.followers[OTHER].caught_up_ms
        register(bench, 2, 9)
        bench.clock.advance(5)
        stale = result(fetch(bench, None, session=(session, 1), wait=0))
        assert stale.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.leader_state.followers[OTHER].caught_up_ms == before

    def test_a_session_is_stale_after_a_fetch_of_the_next_incarnation(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        old = self.open(bench, 0)
        self.open(bench, 0, epoch=9)
        assert result(fetch(bench, None, session=(old, 1), wait=0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.leader_state is not None and partition.leader_state.followers[OTHER].broker_epoch == 9

    def test_a_changed_high_watermark_is_sent(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition)
        session = self.open(bench, 1)
        fetch(bench, 1, node=3)
        (topic,) = response(fetch(bench, None, session=(session, 1), wait=0)).topics
        assert topic[2][0].high_watermark == 1
        assert response(fetch(bench, None, session=(session, 2), wait=0)).topics == []

    def test_a_waiting_follower_gets_the_high_watermark_with_its_next_response(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition)
        session = self.open(bench, 1)
        waiting = fetch(bench, None, session=(session, 1))
        fetch(bench, 1, node=3)
        assert partition.high_watermark == 1 and not waiting.answered
        bench.clock.advance(0.5)
        assert result(waiting).high_watermark == 1
        after = fetch(bench, None, session=(session, 2))
        append(partition)
        assert len(records(result(after))) > 0, "it still listens"


class TestNearerReplicas:
    """KIP-392."""

    def three_racks(self, bench: Bench, *, selects: bool = True) -> Partition:
        partition = led(bench)
        for node, rack in ((1, "a"), (2, "b"), (3, "b")):
            register(bench, node, node)
            endpoints = (ListenerImage("PLAINTEXT", f"host-{node}", 9092),)
            old = bench.image.brokers[node]
            bench.image.brokers[node] = BrokerImage(old.id, old.epoch, old.incarnation, endpoints, {}, rack, False)
        append(partition, 4)
        fetch(bench, 4, wait=0, log_start_offset=0)
        fetch(bench, 2, node=3, wait=0, log_start_offset=0)
        bench.selects_replicas = selects
        return partition

    def ask(self, bench: Bench, offset: int = 0, *, rack: str = "b", version: int = 12) -> FetchedPartition:
        return result(fetch(bench, offset, node=-1, rack=rack, version=version))

    def test_the_rack_replica_with_the_highest_log_end_is_returned_without_records(self, bench: Bench) -> None:
        self.three_racks(bench)
        found = self.ask(bench)
        assert (found.preferred_read_replica, records(found), found.error_code) == (2, b"", 0)
        assert found.high_watermark == 2

    @pytest.mark.parametrize("rack", ["", "a", "c"])
    def test_the_leader_serves_without_a_rack_replica_or_in_its_own_rack(self, bench: Bench, rack: str) -> None:
        self.three_racks(bench)
        found = self.ask(bench, rack=rack)
        assert found.preferred_read_replica == -1 and len(records(found)) > 0

    def test_only_in_sync_replicas_with_the_offset_are_candidates(self, bench: Bench) -> None:
        partition = self.three_racks(bench)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 3), partition_epoch=1))
        assert self.ask(bench, 1).preferred_read_replica == 3
        register(bench, 3, 3, fenced=True)
        assert self.ask(bench, 1).preferred_read_replica == -1

    @pytest.mark.parametrize("gone", ["fenced", "unregistered", "without the listener"])
    def test_unreachable_brokers_are_not_candidates(self, bench: Bench, gone: str) -> None:
        self.three_racks(bench)
        if gone == "unregistered":
            del bench.image.brokers[OTHER]
        else:
            changed = {"fenced": True} if gone == "fenced" else {"endpoints": ()}
            bench.image.brokers[OTHER] = replace(bench.image.brokers[OTHER], **changed)
        assert self.ask(bench, 1).preferred_read_replica == 3

    def test_a_replica_serves_the_offset_after_its_last_record(self, bench: Bench) -> None:
        partition = self.three_racks(bench)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 3), partition_epoch=1))
        assert self.ask(bench, 2).preferred_read_replica == 3

    def test_a_leader_in_the_same_rack_is_preferred(self, bench: Bench) -> None:
        self.three_racks(bench)
        bench.image.brokers[ME] = replace(bench.image.brokers[ME], rack="b")
        assert self.ask(bench).preferred_read_replica == -1

    def test_there_is_no_redirect_without_a_selector_or_below_version_11(self, bench: Bench) -> None:
        self.three_racks(bench, selects=False)
        assert self.ask(bench).preferred_read_replica == -1
        bench.selects_replicas = True
        assert self.ask(bench, version=10).preferred_read_replica == -1

    def test_a_follower_serves_consumers_up_to_its_own_high_watermark(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 3)
        partition.become(led_by(OTHER, replicas=REPLICAS, isr=REPLICAS, leader_epoch=1))
        partition.online_log.set_high_watermark(partition.online_log.log_start_offset)
        wanted: dict[str, Any] = {"node": -1, "wait": 0, "current_leader_epoch": 1}
        assert records(result(fetch(bench, 1, version=12, **wanted))) == b"", "above its high watermark"
        assert result(fetch(bench, 4, version=12, **wanted)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert result(fetch(bench, 0, version=10, **wanted)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result(fetch(bench, 0, **(wanted | {"node": 3}))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_fetches_remote_records_gets_an_error_with_the_offsets(bench: Bench) -> None:
    partition = led(bench)
    append(partition, 3)
    partition.online_log.set_high_watermark(partition.online_log.log_end_offset)
    log = partition.online_log
    log.remote_enabled = True
    log.roll()
    log.raise_highest_offset_in_remote_storage(Offset(log.log_end_offset - 1))
    log.move_local_start(log.log_end_offset)
    log.drop(log.segments.take_first(1))
    ((_, _, (found,)),) = response(fetch(bench, 1)).topics
    assert found.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    assert (found.high_watermark, found.log_start_offset, found.last_stable_offset) == (log.high_watermark, 0, -1)
    assert partition.leader_state is not None
    assert partition.leader_state.followers[NodeId(2)].log_end < 0, "such a fetch is no progress of the follower"
