"""LeaderState: ISR changes, the controller's responses, and the high watermark."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milena.broker.apis import delete_records
from milena.broker.replica.isr import Committed, PendingExpand, Reaction, reaction
from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import BrokerEpoch, NodeId, Offset
from tests.fixtures.properties import examples
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, at_once, batch, led_by
from tests.unit.broker.leading import LAG, REPLICAS, THIRD, append, fetch, led, register, shrink, state_of


def refusal_of(bench: Bench, partition: Partition, node: int, offset: int, epoch: int) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        fetch(bench, partition, node, offset, epoch=epoch)
    return error.value.code


class TestExpanding:
    def test_a_follower_with_all_committed_records_is_proposed_with_its_broker_epoch(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        append(partition, 2)
        fetch(bench, partition, OTHER, 1)
        assert bench.proposals.open == [], "the high watermark is 2"
        fetch(bench, partition, OTHER, 2)
        assert bench.proposals.members() == {1: 1, 2: 2}
        assert (partition.isr, partition.maximal_isr) == ((1,), (1, 2))
        bench.proposals.accept()
        assert (partition.isr, partition.maximal_isr, partition.partition_epoch) == ((1, 2), (1, 2), 1)
        assert bench.replication.meters.expands.value == 1

    def test_only_one_change_is_pending(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        fetch(bench, partition, OTHER, 0)
        fetch(bench, partition, THIRD, 0)
        assert bench.proposals.members() == {1: 1, 2: 2}
        bench.proposals.accept()
        fetch(bench, partition, THIRD, 0)
        assert bench.proposals.members() == {1: 1, 2: 2, 3: 3}

    def test_a_follower_needs_everything_up_to_the_start_of_the_leader_epoch(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition, 3)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 2), leader_epoch=1))
        assert partition.high_watermark == 0
        fetch(bench, partition, THIRD, 2)
        assert bench.proposals.open == []
        fetch(bench, partition, THIRD, 3)
        assert bench.proposals.members() == {1: 1, 2: -1, 3: 3}, "nothing was heard of 2 in this leadership"

    @pytest.mark.parametrize(
        "state", [{"fenced": True}, {"leaving": True}, {"epoch": 3}], ids=["fenced", "in controlled shutdown", "ahead"]
    )
    def test_ineligible_followers_are_not_proposed(self, bench: Bench, state: dict[str, int]) -> None:
        partition = led(bench, (1,))
        fetched_with = state.get("epoch", 2)
        register(bench, OTHER, 2, fenced=bool(state.get("fenced")), leaving=bool(state.get("leaving")))
        fetch(bench, partition, OTHER, 0, epoch=fetched_with)
        assert bench.proposals.open == [] and partition.may_join_isr(OTHER)
        register(bench, OTHER, fetched_with)
        fetch(bench, partition, OTHER, 0, epoch=fetched_with)
        assert bench.proposals.members() == {1: 1, 2: fetched_with}

    def test_a_follower_of_an_old_metadata_version_is_proposed_without_an_epoch(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        fetch(bench, partition, OTHER, 0, epoch=-1)
        assert bench.proposals.members() == {1: 1, 2: -1}


class TestStaleIncarnations:
    """KIP-903: a stale broker epoch, by the metadata or by an earlier fetch, causes an error and nothing else."""

    def test_a_broker_epoch_below_the_registered_one_is_stale(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        register(bench, OTHER, 7)
        assert refusal_of(bench, partition, OTHER, 0, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert bench.proposals.open == [] and partition.leader_state is not None
        assert partition.leader_state.followers[OTHER].log_end == -1

    def test_a_broker_epoch_below_that_of_a_fenced_broker_is_stale(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        register(bench, OTHER, 7, fenced=True)
        assert refusal_of(bench, partition, OTHER, 0, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_broker_epoch_below_an_earlier_fetchs_is_stale(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        append(partition, 5)
        fetch(bench, partition, OTHER, 1, epoch=7)
        assert refusal_of(bench, partition, OTHER, 5, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.leader_state is not None
        held = partition.leader_state.followers[OTHER]
        assert (held.log_end, held.broker_epoch) == (1, 7) and bench.proposals.open == []

    def test_a_read_with_a_stale_broker_epoch_is_refused(self, bench: Bench) -> None:
        partition = led(bench)
        register(bench, OTHER, 7)
        with pytest.raises(KafkaError) as error:
            partition.require_follower(OTHER, BrokerEpoch(2), current_leader_epoch=0)
        assert error.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_node_that_is_not_a_replica_gets_unknown_leader_epoch_if_it_names_one(self, bench: Bench) -> None:
        partition, codes = led(bench), []
        for epoch in (0, None):
            with pytest.raises(KafkaError) as error:
                partition.require_follower(NodeId(9), BrokerEpoch(9), current_leader_epoch=epoch)
            codes.append(error.value.code)
        assert codes == [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]


class TestShrinking:
    def test_lagging_followers_are_removed_from_the_isr(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition)
        bench.clock.advance(LAG)
        fetch(bench, partition, OTHER, 1)
        shrink(bench, partition, 1)
        assert bench.proposals.members() == {1: 1, 2: 2}
        assert partition.isr == partition.maximal_isr == (1, 2, 3), "until it is committed"
        assert partition.high_watermark == 0
        bench.proposals.accept()
        assert list(partition.isr) == [1, 2] and partition.high_watermark == 1
        assert bench.replication.meters.shrinks.value == 1

    def test_a_caught_up_follower_stays_without_fetches(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition)
        for node in (OTHER, THIRD):
            fetch(bench, partition, node, 1)
        shrink(bench, partition, 10 * LAG)
        assert bench.proposals.open == []

    def test_a_new_leader_epoch_resets_the_followers_times(self, bench: Bench) -> None:
        """A member of the ISR that did not fetch in the last epoch has the whole lag time again."""
        partition = led(bench)
        append(partition)
        bench.clock.advance(LAG - 1)
        partition.become(led_by(ME, replicas=REPLICAS, isr=REPLICAS, leader_epoch=1))
        shrink(bench, partition, LAG - 1)
        assert bench.proposals.open == []
        shrink(bench, partition, 2)
        assert bench.proposals.members() == {1: 1}

    def test_removed_replicas_do_not_hold_the_high_watermark(self, bench: Bench) -> None:
        """The follower was caught up in the previous epoch, but not in the new one."""
        partition = led(bench)
        for node in (OTHER, THIRD):
            fetch(bench, partition, node, 0)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 2), leader_epoch=1))
        append(partition)
        fetch(bench, partition, OTHER, 1)
        assert partition.high_watermark == 1

    def test_no_follower_is_removed_while_a_change_is_pending(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition)
        fetch(bench, partition, THIRD, 1)
        shrink(bench, partition)
        assert bench.proposals.members() == {1: 1, 2: -1, 3: 3}


class TestAnswers:
    def expanding(self, bench: Bench) -> Partition:
        partition = led(bench, (1,))
        fetch(bench, partition, OTHER, 0)
        assert isinstance(state_of(partition), PendingExpand)
        return partition

    @pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
    def test_a_rejected_change_is_rolled_back_and_proposed_again_later(self, bench: Bench, error: ErrorCode) -> None:
        partition = self.expanding(bench)
        bench.proposals.refuse(error)
        assert isinstance(state_of(partition), Committed) and list(partition.maximal_isr) == [1]
        assert bench.replication.meters.failed.value == 1
        fetch(bench, partition, OTHER, 0)
        assert bench.proposals.members() == {1: 1, 2: 2}

    @pytest.mark.parametrize(
        "error",
        [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.INVALID_UPDATE_VERSION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NEW_LEADER_ELECTED,
        ],
    )
    def test_a_possibly_applied_change_stays_pending_until_the_metadata_arrive(
        self, bench: Bench, error: ErrorCode
    ) -> None:
        partition = self.expanding(bench)
        bench.proposals.refuse(error)
        assert partition.maximal_isr == (1, 2) and bench.proposals.open == []
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1,), partition_epoch=1))
        assert isinstance(state_of(partition), Committed) and list(partition.maximal_isr) == [1]

    @pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
    def test_other_errors_send_the_same_proposal_again(self, bench: Bench, error: ErrorCode) -> None:
        partition = self.expanding(bench)
        # The follower comes back without its log meanwhile: that one has not been judged.
        register(bench, OTHER, 8)
        append(partition)
        fetch(bench, partition, OTHER, 0, epoch=8)
        bench.proposals.refuse(error)
        assert bench.proposals.members() == {1: 1, 2: 2}

    def test_a_late_response_is_ignored(self, bench: Bench) -> None:
        partition = self.expanding(bench)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 3), partition_epoch=5))
        bench.proposals.accept()
        assert (partition.isr, partition.partition_epoch) == ((1, 3), 5)

    def test_responses_after_the_leadership_are_ignored(self, bench: Bench) -> None:
        partition = self.expanding(bench)
        partition.become(led_by(OTHER, replicas=REPLICAS, isr=(1, 2), leader_epoch=1))
        bench.proposals.accept()
        assert (partition.leader, partition.partition_epoch, partition.maximal_isr) == (OTHER, 1, (1, 2))

    def test_metadata_of_the_same_partition_epoch_keep_the_proposal_pending(self, bench: Bench) -> None:
        partition = self.expanding(bench)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1,)))
        assert partition.maximal_isr == (1, 2), "the controller may have let it in by now"

    def test_a_proposal_during_an_unanswered_one_is_rolled_back(self, bench: Bench) -> None:
        partition = self.expanding(bench)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1,), leader_epoch=1))
        fetch(bench, partition, THIRD, 0)
        assert isinstance(state_of(partition), Committed) and len(bench.proposals.open) == 1

    def test_every_error_has_its_reaction(self) -> None:
        known = {error: reaction(error) for error in ErrorCode}
        assert [error.name for error, what in known.items() if what is Reaction.ROLL_BACK] == [
            "OPERATION_NOT_ATTEMPTED",
            "INELIGIBLE_REPLICA",
        ]
        assert sum(what is Reaction.WAIT for what in known.values()) == 6


class TestHighWatermark:
    def test_the_high_watermark_is_the_lowest_log_end_of_the_isr(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 3)
        fetch(bench, partition, OTHER, 3)
        assert partition.high_watermark == 0
        fetch(bench, partition, THIRD, 2)
        assert partition.high_watermark == 2

    def test_it_waits_for_a_proposed_member(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        append(partition, 2)
        fetch(bench, partition, OTHER, 2)
        append(partition)
        assert partition.high_watermark == 2
        fetch(bench, partition, OTHER, 3)
        assert partition.high_watermark == 3

    def test_it_waits_only_for_eligible_followers_that_are_about_to_join(self, bench: Bench) -> None:
        partition = self.held_back_by_the_third(bench)
        register(bench, THIRD, 3, fenced=True)
        append(partition)
        fetch(bench, partition, OTHER, 3)
        assert partition.high_watermark == 3

    def held_back_by_the_third(self, bench: Bench) -> Partition:
        """A partition whose high watermark waits for broker 3, which is about to join and does not fetch again."""
        partition = led(bench, (1, 2))
        append(partition)
        fetch(bench, partition, THIRD, 1)
        bench.proposals.refuse(ErrorCode.INELIGIBLE_REPLICA)
        append(partition)
        fetch(bench, partition, OTHER, 2)
        assert partition.high_watermark == 1
        return partition

    def test_it_does_not_wait_for_a_replica_in_a_failed_log_directory(self, bench: Bench) -> None:
        partition = self.held_back_by_the_third(bench)
        directories = (UUID(int=1001), UUID(int=1002), UUID(int=1003))
        image = led_by(ME, replicas=REPLICAS, isr=(1, 2), partition_epoch=1)
        bench.image.brokers[THIRD] = replace(bench.image.brokers[THIRD], log_dirs=(UUID(int=2003),))
        partition.become(replace(image, directories=directories))
        assert partition.high_watermark == 2

    def test_it_stops_waiting_for_a_follower_that_lags(self, bench: Bench) -> None:
        partition = self.held_back_by_the_third(bench)
        results: list[bool] = []
        partition.on_high_watermark(Offset(2), results.append, seconds=100)
        bench.clock.advance(LAG - 1)
        fetch(bench, partition, OTHER, 2)
        assert (partition.high_watermark, results) == (1, [])
        bench.clock.advance(2)
        partition.check_isr()
        assert (partition.high_watermark, results) == (2, [True])

    def test_it_stops_waiting_for_a_follower_that_is_fenced(self, bench: Bench) -> None:
        partition = self.held_back_by_the_third(bench)
        register(bench, THIRD, 3, fenced=True)
        partition.check_isr()
        assert partition.high_watermark == 2

    def test_it_does_not_move_below_min_insync_replicas(self, bench: Bench) -> None:
        partition = led(bench, (1,), min_isr=2)
        append(partition)
        assert partition.high_watermark == 0
        fetch(bench, partition, OTHER, 1)
        assert partition.high_watermark == 0, "a proposed member does not count"
        bench.proposals.accept()
        assert partition.high_watermark == 1

    def test_acks_all_checks_the_committed_isr_before_the_append(self, bench: Bench) -> None:
        partition = led(bench, (1,), min_isr=2)
        fetch(bench, partition, OTHER, 0)
        with pytest.raises(KafkaError) as error:
            partition.append(batch(b"x"), ACKS_ALL)
        assert error.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        bench.proposals.accept()
        partition.append(batch(b"x"), ACKS_ALL)

    def test_a_new_leader_has_no_offsets_of_its_followers(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition)
        for node in (OTHER, THIRD):
            fetch(bench, partition, node, 1)
        partition.become(led_by(OTHER, replicas=REPLICAS, isr=REPLICAS, leader_epoch=1))
        partition.become(led_by(ME, replicas=REPLICAS, isr=REPLICAS, leader_epoch=2))
        append(partition)
        assert partition.leader_state is not None and partition.high_watermark == 1
        assert all(one.broker_epoch is None for one in partition.leader_state.followers.values())


class TestLowWatermark:
    def test_the_low_watermark_is_the_lowest_log_start_of_unfenced_replicas(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 3)
        for node in (2, 3):
            fetch(bench, partition, node, 3)
        partition.delete_records(Offset(2))
        assert partition.low_watermark == 0
        fetch(bench, partition, OTHER, 3, log_start=2)
        assert partition.low_watermark == 0
        register(bench, THIRD, 3, fenced=True)
        assert partition.low_watermark == 2

    def test_delete_records_is_answered_when_the_followers_have_deleted(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 3)
        for node in (2, 3):
            fetch(bench, partition, node, 3)
        early, late = delete(bench, 2), delete(bench, 3, timeout_ms=500)
        fetch(bench, partition, OTHER, 3, log_start=2)
        assert not early.answered
        fetch(bench, partition, THIRD, 3, log_start=2)
        assert deleted(early) == (0, 2) and not late.answered
        bench.clock.advance(0.5)
        assert deleted(late) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    def test_of_a_partition_that_delete_records_lists_twice_the_last_offset_counts(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 3)
        for node in (2, 3):
            fetch(bench, partition, node, 3)
        request = delete(bench, 2, 1)
        assert partition.log is not None and partition.log.log_start_offset == 1
        for node in (2, 3):
            fetch(bench, partition, node, 3, log_start=1)
        assert len(request.response.topics[0].partitions) == 1 and deleted(request) == (0, 1)


def delete(bench: Bench, *offsets: int, timeout_ms: int = 10_000) -> Request:
    """Delete the records of partition 0 up to an offset, or list it several times."""
    request = Request(ApiKey.DELETE_RECORDS, 2)
    partitions = [{"partition_index": 0, "offset": offset} for offset in offsets]
    fields = {"topics": [{"name": "t", "partitions": partitions}], "timeout_ms": timeout_ms}
    body = messages.decode_request(21, 2, messages.encode_request(21, 2, **fields))
    answer = at_once(delete_records.handle(bench, request.ctx, body))
    if answer is not None:
        request.ctx.respond_fields(**answer)
    return request


def deleted(request: Request) -> tuple[int, int]:
    found = request.response.topics[0].partitions[0]
    return int(found.error_code), found.low_watermark


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.just(0), st.just(0)),
        st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 3)),
        st.tuples(st.just("answer"), st.just(0), st.sampled_from([0, 0, 0, ErrorCode.INELIGIBLE_REPLICA])),
        st.tuples(st.just("time"), st.just(0), st.integers(1, 40)),
        st.tuples(st.just("fence"), st.sampled_from([2, 3]), st.integers(0, 1)),
    ),
    max_size=40,
)


@given(actions, st.integers(1, 3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=examples(60))
def test_every_electable_replica_has_all_committed_records(
    bench: Bench, history: list[tuple[str, int, int]], min_isr: int
) -> None:
    """Dumb oracle: whatever the order of fetches, answers and time, all whom the controller has let in, or may have by
    an answer still on its way, have everything below the high watermark; and that moves only with enough of them."""
    bench.proposals.open.clear()
    bench.image.topics.clear()
    for hosted in list(bench.partitions):
        hosted.online_log.truncate_fully_and_start_at(Offset(0))
        hosted.online_log.close()
        bench.partitions.remove(hosted)
    partition = led(bench, min_isr=min_isr)
    has, committed, before = {2: 0, 3: 0}, set(REPLICAS), 0
    for what, node, count in history:
        match what:
            case "append":
                append(partition)
            case "fetch":
                fetch(bench, partition, node, has[node])
                has[node] = min(has[node] + count, partition.online_log.log_end_offset)
            case "answer" if bench.proposals.open:
                if count:
                    bench.proposals.refuse(ErrorCode(count))
                else:
                    committed = set(bench.proposals.members())
                    bench.proposals.accept()
            case "time":
                shrink(bench, partition, count)
            case "fence":
                register(bench, node, node, fenced=bool(count))
        possible = [committed] + [set(dict(one.members)) for one in bench.proposals.open]
        assert set(partition.isr) == committed
        assert all(has.get(one, 1 << 40) >= partition.high_watermark for isr in possible for one in isr)
        assert partition.high_watermark >= before
        assert partition.high_watermark == before or len(committed) >= min_isr
        before = partition.high_watermark
