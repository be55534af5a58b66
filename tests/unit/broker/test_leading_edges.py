"""A leader where the metadata and its own state do not match, where nothing changes, and what it tells of itself."""

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
    """Broker 2 is proposed, and the answer is not there."""
    partition = led(bench, (1,), leader_epoch=leader_epoch)
    fetch(bench, partition, OTHER, 0)
    assert isinstance(state_of(partition), PendingExpand)
    return partition


class TestMetadata:
    def test_metadata_of_the_same_epoch_change_nothing_after_a_refusal(self, bench: Bench) -> None:
        partition = expanding(bench)
        bench.proposals.refuse(ErrorCode.INELIGIBLE_REPLICA)
        partition.become(led_by(ME, replicas=REPLICAS, isr=(1,)))
        assert isinstance(state_of(partition), Committed) and partition.maximal_isr == (1,)

    def test_a_proposal_is_over_if_the_metadata_take_one_of_its_members_out_of_the_replicas(self, bench: Bench) -> None:
        """The answer that let 2 in has also ended a reassignment (KIP-455), which the leader does not know when it
        proposes 3: the controller refuses that, and no later partition epoch would settle it."""
        partition = expanding(bench)
        bench.proposals.accept()
        fetch(bench, partition, THIRD, 0)
        assert isinstance(state_of(partition), PendingExpand)
        partition.become(led_by(ME, replicas=(1, 2), isr=(1, 2), partition_epoch=1))
        assert isinstance(state_of(partition), Committed) and partition.maximal_isr == (1, 2)

    def test_what_the_metadata_settle_otherwise_is_not_counted_as_an_expansion(self, bench: Bench) -> None:
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

    def test_a_follower_whose_broker_is_not_registered_may_fetch_but_neither_joins_nor_holds_anything_back(
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
    def test_one_of_another_leader_epoch_or_an_older_state_leaves_the_proposal_open(
        self, bench: Bench, leader_epoch: int, partition_epoch: int
    ) -> None:
        partition = expanding(bench, leader_epoch=4)
        self.answer(bench, leader_epoch, partition_epoch)
        assert isinstance(state_of(partition), PendingExpand) and (partition.isr, partition.partition_epoch) == (
            (1,),
            4,
        )
        assert bench.replication.meters.failed.value == 1

    def test_one_that_needed_no_new_partition_epoch_settles_it(self, bench: Bench) -> None:
        """The controller had it so already."""
        partition = expanding(bench, leader_epoch=4)
        self.answer(bench, 4, 4)
        assert isinstance(state_of(partition), Committed) and (partition.isr, partition.partition_epoch) == ((1, 2), 4)

    def answer(self, bench: Bench, leader_epoch: int, partition_epoch: int) -> None:
        proposal = bench.proposals.open.pop()
        epochs = {"leader_epoch": LeaderEpoch(leader_epoch), "partition_epoch": PartitionEpoch(partition_epoch)}
        proposal.done(AlteredIsr(**epochs, isr=(ME, OTHER)))  # type: ignore[arg-type]

    def test_nothing_is_proposed_on_top_of_what_may_be_applied(self, bench: Bench) -> None:
        partition = expanding(bench)
        bench.proposals.refuse(ErrorCode.INVALID_UPDATE_VERSION)
        fetch(bench, partition, THIRD, 0)
        assert bench.proposals.open == [] and partition.maximal_isr == (1, 2)


class TestNews:
    """Who waits for a partition is only told where there is something new."""

    def test_a_fetch_at_the_same_place_tells_nobody(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition, 2)
        assert [self.fetched(bench, partition, 1), self.fetched(bench, partition, 1)] == [True, False]

    def test_a_fetch_while_another_holds_the_high_watermark_back_tells_nobody(self, bench: Bench) -> None:
        partition = led(bench)
        append(partition, 2)
        fetch(bench, partition, THIRD, 0)
        assert not self.fetched(bench, partition, 1) and partition.high_watermark == 0

    def test_a_fetch_behind_the_last_record_that_everybody_has_tells_nobody(self, bench: Bench) -> None:
        """It starts anew, with less than it had: the high watermark stays."""
        partition = led(bench, (1, 2))
        append(partition, 2)
        assert self.fetched(bench, partition, 2) and partition.high_watermark == 2
        assert not self.fetched(bench, partition, 1) and partition.high_watermark == 2

    def test_a_log_start_that_has_risen_is_told(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition, 2)
        self.fetched(bench, partition, 2)
        assert self.fetched(bench, partition, 2, log_start=1)

    def fetched(self, bench: Bench, partition: Partition, offset: int, *, log_start: int = -1) -> bool:
        """By broker 2, once its log start is known."""
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


def test_time_alone_takes_laggards_out(bench: Bench) -> None:
    partition = led(bench)
    append(partition)
    fetch(bench, partition, OTHER, 1)
    bench.clock.advance(LAG + 1)
    partition.check_isr()
    assert bench.proposals.members() == {1: 1, 2: 2}


def test_a_leader_describes_its_followers_and_what_it_does_not_know_of_them_is_null(bench: Bench) -> None:
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
