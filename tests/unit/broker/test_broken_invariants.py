"""Changes that break an invariant of a partition: it goes offline, and requests get an error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from milena.broker.replica.isr import Committed, PendingExpand, PendingShrink
from milena.broker.replica.isr_proposals import AlteredIsr
from milena.broker.replica.partition import Partition
from milena.broker.replica.replica_state import FollowerFetch
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.validation import LogValidator
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch
from milena.storage.log.unified_log import UnifiedLog
from tests.fixtures.forms import ON_PURE
from tests.unit.broker.fixtures import ME, OTHER, Bench, batch, led_by

PRESENT = led_by(ME, replicas=(1, 2), isr=(1,), leader_epoch=4, partition_epoch=9)


@pytest.fixture
def partition(bench: Bench) -> Partition:
    hosted = bench.host(bench.topic("t", PRESENT), 0)
    hosted.become(PRESENT)
    return hosted


def fetched(partition: Partition, offset: int, epoch: int = 2) -> FollowerFetch:
    end = partition.online_log.log_end_offset
    return FollowerFetch(OTHER, BrokerEpoch(epoch), Offset(offset), Offset(0), end, 0)


def assert_offline(partition: Partition) -> None:
    assert partition.log is None and not partition.is_leader
    with pytest.raises(KafkaError) as error:
        partition.append(batch(b"x"), 1)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (
            replace(PRESENT, leader_epoch=LeaderEpoch(3), partition_epoch=PartitionEpoch(10)),
            "leader epoch falls from 4 to 3",
        ),
        (replace(PRESENT, leader=OTHER, partition_epoch=PartitionEpoch(10)), "leader epoch 4 has two leaders: 1, 2"),
        (
            replace(PRESENT, isr=(ME, NodeId(3)), partition_epoch=PartitionEpoch(10)),
            r"ISR \(1, 3\) contains nodes that are not replicas",
        ),
        (replace(PRESENT, isr=(OTHER,), partition_epoch=PartitionEpoch(10)), r"leader 1 outside of the ISR \(2,\)"),
        (replace(PRESENT, isr=(ME, ME), partition_epoch=PartitionEpoch(10)), r"ISR \(1, 1\) has a member twice"),
        (replace(PRESENT, isr=(ME, OTHER)), r"partition epoch 9 has two ISRs: \(1,\), \(1, 2\)"),
    ],
    ids=[
        "a leader epoch that falls",
        "two leaders in one epoch",
        "an ISR beyond the replicas",
        "a leader outside of the ISR",
        "a member twice",
        "two ISRs in one partition epoch",
    ],
)
def test_contradicting_metadata_fails_the_partition(partition: Partition, image: PartitionImage, why: str) -> None:
    with pytest.raises(KafkaError, match=why) as error:
        partition.become(image)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(partition)
    assert (partition.leader_epoch, partition.partition_epoch, partition.isr) == (4, 9, (ME,)), "nothing has changed"


def test_older_metadata_is_ignored(partition: Partition) -> None:
    assert not partition.become(replace(PRESENT, leader=OTHER, partition_epoch=PartitionEpoch(8)))
    assert partition.is_leader


def test_a_committed_isr_with_other_nodes_than_replicas_fails_the_partition(bench: Bench, partition: Partition) -> None:
    partition.follower_fetched(fetched(partition, 0))
    (proposal,) = bench.proposals.open
    isr = (ME, OTHER, NodeId(3))
    proposal.done(AlteredIsr(leader_epoch=LeaderEpoch(4), partition_epoch=PartitionEpoch(10), isr=isr))
    assert_offline(partition)


@pytest.mark.parametrize("isr", [(OTHER,), (ME, ME)])
def test_an_invalid_committed_isr_fails_the_partition(
    bench: Bench, partition: Partition, isr: tuple[NodeId, ...]
) -> None:
    partition.follower_fetched(fetched(partition, 0))
    (proposal,) = bench.proposals.open
    proposal.done(AlteredIsr(leader_epoch=LeaderEpoch(4), partition_epoch=PartitionEpoch(10), isr=isr))
    assert_offline(partition)


def test_a_follower_beyond_the_log_end_fails_the_partition(partition: Partition) -> None:
    """A read returns a diverging epoch or an error in this case, so that the fetch does not count."""
    with pytest.raises(KafkaError, match="follower 2 fetches offset 1 beyond the log end 0"):
        partition.follower_fetched(fetched(partition, 1))
    assert_offline(partition)


def test_a_leader_whose_log_has_another_epoch_fails_the_partition(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnifiedLog, "assign_epoch", lambda *_: None)
    with pytest.raises(KafkaError, match="leader epoch 5 begins, but the latest epoch of the log is 4"):
        partition.become(replace(PRESENT, leader_epoch=LeaderEpoch(5), partition_epoch=PartitionEpoch(10)))
    assert_offline(partition)


@pytest.mark.parametrize("long", [False, True], ids=["at once", "checked before"])
def test_a_failed_log_fails_its_partition(partition: Partition, long: bool) -> None:
    partition.append(batch(b"x"), 1)
    check = partition.begin_append(batch(*[b"x"] * 5000), 1)
    assert isinstance(check, LogValidator)
    assert not check.is_finished
    check.finish()
    partition.online_log.segments.active.size += 1
    with pytest.raises(KafkaError) as error:
        partition.append_validated(check, 1) if long else partition.append(batch(b"y"), 1)
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert_offline(partition)


def test_a_partition_cannot_be_added_twice(bench: Bench, partition: Partition) -> None:
    with pytest.raises(BrokenInvariant, match="is added twice"):
        bench.partitions.add(partition)


@ON_PURE
def test_the_maximal_isr_contains_the_isr(partition: Partition) -> None:
    class Wrong:
        isr, maximal = (ME, OTHER), (ME,)

    with pytest.raises(BrokenInvariant, match="lacks members"):
        partition.registration._set(cast("Any", Wrong()))
    assert partition.maximal_isr == (ME,)


def test_a_proposal_without_the_leader_is_refused(partition: Partition) -> None:
    known = partition.registration.state
    assert isinstance(known, Committed)
    with pytest.raises(BrokenInvariant, match="leader 1 outside"):
        partition.registration.propose(PendingShrink(known, (ME,)))


def test_a_high_watermark_beyond_an_isr_member_fails_the_partition(partition: Partition) -> None:
    """The append that would have moved the high watermark gets an error."""
    assert partition.leader_state is not None
    partition.registration.maximal_isr = (ME, NodeId(3))
    with pytest.raises(KafkaError, match="high watermark 1, but ISR member 3 has log end offset None"):
        partition.append(batch(b"x"), 1)
    assert_offline(partition)


def test_a_falling_broker_epoch_fails_the_partition(partition: Partition) -> None:
    partition.follower_fetched(fetched(partition, 0, epoch=7))
    assert partition.leader_state is not None
    state = partition.leader_state.followers[OTHER]
    with pytest.raises(KafkaError, match="broker epoch 6 of follower 2 is below 7"):
        partition.follower_fetched(fetched(partition, 0, epoch=6), state)
    assert_offline(partition)


def test_a_proposal_not_based_on_the_committed_isr_is_refused(partition: Partition) -> None:
    partition.follower_fetched(fetched(partition, 0))
    registration = partition.registration
    pending = registration.state
    assert isinstance(pending, PendingExpand) and registration.maximal_isr == (ME, OTHER)
    registration.roll_back()
    registration.apply_image(PRESENT)
    with pytest.raises(BrokenInvariant, match="not based on the committed ISR"):
        registration.propose(pending)
