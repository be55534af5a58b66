"""LeaderState: metadata that contradict a proposal, notifications, and its description."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from milena.broker.replica.isr import Committed, PendingExpand
from milena.broker.replica.isr_proposals import AlteredIsr
from milena.broker.replica.partition import Partition
from milena.broker.replica.replica_state import FollowerFetch
from milena.protocol.errors import ErrorCode
from milena.protocol.types import LeaderEpoch, Offset, PartitionEpoch
from tests.unit.broker.fixtures import ME, OTHER, Bench, led_by
from tests.unit.broker.leading import LAG, REPLICAS, THIRD, append, fetch, led, register, state_of

DIRECTORIES = (UUID(int=1001), UUID(int=1002), UUID(int=1003))


def expanding(bench: Bench, *, leader_epoch: int = 0) -> Partition:
    """A leader that has proposed broker 2 and has no response yet."""
    partition = led(bench, (1,), leader_epoch=leader_epoch)
    fetch(bench, partition, OTHER, 0)
    assert isinstance(state_of(partition), PendingExpand)
    return partition


class TestMetadata:
    def test_metadata_of_the_same_epoch_change_nothing_after_a_rejection(self, bench: Bench) -> None:
        partition = expanding(bench)
        bench.proposals.refuse(ErrorCode.INELIGIBLE_REPLICA)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1,)))
        assert isinstance(state_of(partition), Committed) and partition.maximal_isr == (1,)

    def test_a_proposal_ends_if_one_of_its_members_is_no_longer_a_replica(self, bench: Bench) -> None:
        """The answer that let 2 in has also ended a reassignment (KIP-455), which the leader does not know when it
        proposes 3: the controller refuses that, and no later partition epoch would settle it."""
        partition = expanding(bench)
        bench.proposals.accept()
        fetch(bench, partition, THIRD, 0)
        assert isinstance(state_of(partition), PendingExpand)
        partition.become(led_by(ME, replicas=(1, 2), isr=(1, 2), partition_epoch=1))
        assert isinstance(state_of(partition), Committed) and partition.maximal_isr == (1, 2)

    def test_another_isr_in_the_metadata_is_not_counted_as_an_expansion(self, bench: Bench) -> None:
        partition = expanding(bench)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 3), partition_epoch=1))
        assert bench.replication.meters.expands.value == 0

    def test_a_follower_on_a_registered_directory_is_proposed_and_one_on_a_failed_directory_is_not(
        self, bench: Bench
    ) -> None:
        partition = led(bench, (1,))
        partition.become(replace(led_by(ME, replicas=REPLICAS, isr=(1,), partition_epoch=1), directories=DIRECTORIES))
        bench.image.brokers[OTHER] = replace(bench.image.brokers[OTHER], log_dirs=(UUID(int=2002),))
        fetch(bench, partition, OTHER, 0)
        assert bench.proposals.open == []
        bench.image.brokers[OTHER] = replace(bench.image.brokers[OTHER], log_dirs=(DIRECTORIES[1], UUID(int=2002)))
        fetch(bench, partition, OTHER, 0)
        assert bench.proposals.members() == {1: 1, 2: 2}

    def test_a_follower_on_an_unregistered_broker_may_fetch_and_neither_joins_nor_holds_the_high_watermark(
        self, bench: Bench
    ) -> None:
        partition = led(bench, (1,))
        append(partition)
        del bench.image.brokers[OTHER], bench.image.brokers[THIRD]
        fetch(bench, partition, OTHER, 1)
        assert partition.leader_state is not None and partition.leader_state.followers[OTHER].log_end == 1
        assert bench.proposals.open == []
        partition.delete_records(Offset(1))
        assert partition.low_watermark == 1


class TestAnswers:
    @pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(3, 5), (5, 5), (4, 3)])
    def test_a_response_of_another_leader_epoch_or_older_state_keeps_the_proposal_pending(
        self, bench: Bench, leader_epoch: int, partition_epoch: int
    ) -> None:
        partition = expanding(bench, leader_epoch=4)
        self.answer(bench, leader_epoch, partition_epoch)
        assert isinstance(state_of(partition), PendingExpand) and (partition.isr, partition.partition_epoch) == (
            (1,),
            4,
        )
        assert bench.replication.meters.failed.value == 1

    def test_a_response_with_the_same_partition_epoch_commits_the_proposal(self, bench: Bench) -> None:
        """The controller already had this ISR."""
        partition = expanding(bench, leader_epoch=4)
        self.answer(bench, 4, 4)
        assert isinstance(state_of(partition), Committed) and (partition.isr, partition.partition_epoch) == ((1, 2), 4)

    def answer(self, bench: Bench, leader_epoch: int, partition_epoch: int) -> None:
        proposal = bench.proposals.open.pop()
        epochs = {"leader_epoch": LeaderEpoch(leader_epoch), "partition_epoch": PartitionEpoch(partition_epoch)}
        proposal.done(AlteredIsr(**epochs, isr=(ME, OTHER)))  # type: ignore[arg-type]

    def test_nothing_is_proposed_while_a_change_may_be_applied(self, bench: Bench) -> None:
        partition = expanding(bench)
        bench.proposals.refuse(ErrorCode.INVALID_UPDATE_VERSION)
        fetch(bench, partition, THIRD, 0)
        assert bench.proposals.open == [] and partition.maximal_isr == (1, 2)


class TestNews:
    """Waiting operations are notified only of changes."""

    def test_a_fetch_at_the_same_offset_notifies_no_operation(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition, 2)
        assert [self.fetched(bench, partition, 1), self.fetched(bench, partition, 1)] == [True, False]

    def test_a_fetch_that_does_not_move_the_high_watermark_notifies_no_operation(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 2)
        fetch(bench, partition, THIRD, 0)
        assert not self.fetched(bench, partition, 1) and partition.high_watermark == 0

    def test_a_caught_up_fetch_without_new_records_notifies_no_operation(self, bench: Bench) -> None:
        """The follower restarts with a shorter log: the high watermark stays."""
        partition = led(bench, (1, 2))
        append(partition, 2)
        assert self.fetched(bench, partition, 2) and partition.high_watermark == 2
        assert not self.fetched(bench, partition, 1) and partition.high_watermark == 2

    def test_a_risen_log_start_notifies_waiting_operations(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition, 2)
        self.fetched(bench, partition, 2)
        assert self.fetched(bench, partition, 2, log_start=1)

    def fetched(self, bench: Bench, partition: Partition, offset: int, *, log_start: int = -1) -> bool:
        """A fetch of broker 2, whose log start is known."""
        leading = partition.leader_state
        assert leading is not None
        return leading.fetched(
            leading.followers[OTHER],
            FollowerFetch(
                node=OTHER,
                broker_epoch=bench.image.brokers[OTHER].epoch,
                offset=Offset(offset),
                log_start=Offset(log_start),
                leader_end=partition.online_log.log_end_offset,
                now_ms=bench.replication.now_ms(),
            ),
        )


def test_lagging_followers_are_removed_without_a_fetch(bench: Bench) -> None:
    partition = led(bench)
    append(partition)
    fetch(bench, partition, OTHER, 1)
    bench.clock.advance(LAG + 1)
    partition.check_isr()
    assert bench.proposals.members() == {1: 1, 2: 2}


def test_a_leader_describes_its_followers_with_null_for_unknown_values(bench: Bench) -> None:
    partition = led(bench, (1, 2))
    register(bench, THIRD, 3)
    bench.clock.advance(1)
    fetch(bench, partition, OTHER, 0)
    bench.clock.advance(2)
    assert partition.leader_state is not None
    assert partition.leader_state.describe() == {
        "isr_state": "Committed",
        "maximal_isr": [1, 2],
        "replicas": {
            "2": {"log_end_offset": 0, "broker_epoch": 2, "caught_up_ms": 2000},
            "3": {"log_end_offset": None, "broker_epoch": None, "caught_up_ms": None},
        },
    }
