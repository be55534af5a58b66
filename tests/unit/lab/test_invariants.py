"""The rules of milena/lab/invariants: valid states are accepted, and each planted violation is found."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.lab.invariants.broken import InvariantBroken
from milena.lab.invariants.images import ImageRules
from milena.lab.invariants.ledger import CommittedBatch, Ledger
from milena.lab.invariants.log_cursor import LogCursor
from milena.lab.invariants.promises import Promises
from milena.lab.invariants.replicas import ObservedReplica, ReplicaRules
from milena.lab.invariants.tiers import TierRules
from milena.lab.world.disk import Storage
from milena.lab.world.power import Inode
from milena.node.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch
from milena.runtime.randomness import Randomness
from milena.storage.log.unified_log import UnifiedLog

TOPIC = UUID(int=1000)
KEY = (TOPIC, 0)
LEADER = ObservedReplica(1, 1, KEY, "t-0", True, 3, 7, 0, 2, 5, 9)
FOLLOWER = LEADER._replace(broker=2, run=2, leads=False)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"log_start": 3}, "out of order"),
        ({"local_start": 6}, "out of order"),
        ({"high_watermark": 10}, "out of order"),
        ({"log_end": 4}, "out of order"),
    ],
)
def test_the_bounds_of_a_log_are_in_order(change: dict[str, int], text: str) -> None:
    ReplicaRules().check(LEADER)
    with pytest.raises(InvariantBroken, match=text):
        ReplicaRules().check(LEADER._replace(**change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"leader_epoch": 2}, "leader epoch 2 after 3"),
        ({"partition_epoch": 6}, "partition epoch 6 after 7"),
        ({"high_watermark": 4}, "high watermark is 4 after 5"),
    ],
)
def test_epochs_and_the_high_watermark_of_a_leader_must_not_decrease(change: dict[str, int], text: str) -> None:
    rules = ReplicaRules()
    rules.check(LEADER)
    with pytest.raises(InvariantBroken, match=text):
        rules.check(LEADER._replace(**change))  # type: ignore[arg-type]


def test_a_new_process_a_new_leader_epoch_and_a_follower_may_have_lower_values() -> None:
    rules = ReplicaRules()
    for one in (LEADER, FOLLOWER):
        rules.check(one)
    assert rules.check(LEADER._replace(leader_epoch=4, high_watermark=4))
    rules.check(LEADER._replace(run=5, leads=False, leader_epoch=2, partition_epoch=1))
    rules.check(FOLLOWER._replace(high_watermark=3))


def test_a_leader_epoch_has_one_leader() -> None:
    rules = ReplicaRules()
    assert rules.check(LEADER)
    assert not rules.check(LEADER)
    with pytest.raises(InvariantBroken, match="in which broker 1 led"):
        rules.check(FOLLOWER._replace(leads=True))


ONE, TWO, THREE = CommittedBatch(0, 2, 0, 11), CommittedBatch(3, 3, 0, 12), CommittedBatch(4, 6, 2, 13)


def ledger() -> Ledger:
    found = Ledger("t-0")
    found.take("broker 1", [ONE, TWO, THREE], 2)
    return found


def test_committed_batches_are_the_same_on_all_replicas() -> None:
    ledger().take("broker 2", [ONE, TWO], 2)
    ledger().take("broker 2", [THREE, CommittedBatch(7, 7, 2, 14)], 2)


@pytest.mark.parametrize("changed", [TWO._replace(crc=99), TWO._replace(epoch=1), TWO._replace(last=4)])
def test_a_changed_batch_is_found(changed: CommittedBatch) -> None:
    with pytest.raises(InvariantBroken, match="is committed where"):
        ledger().take("broker 2", [ONE, changed], 2)


def test_a_batch_with_another_base_offset_is_found() -> None:
    with pytest.raises(InvariantBroken, match="no known batch begins there"):
        ledger().take("broker 2", [CommittedBatch(2, 3, 0, 12)], 2)


def test_a_new_leader_must_have_all_committed_records() -> None:
    last = ledger().last_known_in(3)
    assert last is not None
    ledger().elect("broker 2", last=last, log_end=7, last_epoch=2)
    with pytest.raises(InvariantBroken, match="up to 6; 7 was committed"):
        ledger().elect("broker 2", last=last, log_end=6, last_epoch=2)
    with pytest.raises(InvariantBroken, match="leader epoch 1 at 6, not 2"):
        ledger().elect("broker 2", last=last, log_end=9, last_epoch=1)


def test_a_leader_that_learns_late_of_its_election_need_not_have_records_of_later_leaders() -> None:
    found = Ledger("t-0")
    found.take("broker 1", [ONE], 1)
    found.take("broker 2", [TWO], 3)  # written in an earlier epoch, and committed by the leader of epoch 3
    assert [found.last_known_in(epoch) for epoch in (0, 1, 2, 3)] == [None, ONE, ONE, TWO]


def test_voided_promises_clear_the_committed_batches_of_a_ledger() -> None:
    found = ledger()
    found.void(3)
    assert found.last_known_in(9) is None
    found.take("broker 2", [CommittedBatch(0, 0, 3, 21)], 3)
    assert (found.end, found.last_epoch, found.floor) == (1, 3, 3)


def test_a_ledger_has_the_leader_epoch_of_each_committed_offset() -> None:
    assert [ledger().epoch_at(offset) for offset in (0, 2, 3, 4, 6, 7)] == [0, 0, 0, 2, 2, -1]


def cursor_log(segments: list[SimpleNamespace]) -> UnifiedLog:
    return cast(UnifiedLog, SimpleNamespace(folder="/t-0", segments=segments, truncations=0, log_start_offset=0))


def write_segment(storage: Storage, start: int, *batches: CommittedBatch) -> None:
    """Write a new file over the one of a segment, as the cleaner does."""
    file = storage.files[f"/t-0/{start:020}.log"] = Inode(0)
    for one in batches:
        file.data += struct.pack(
            ">qiiBIhi", one.base, one.size - 12, one.epoch, 2, one.crc, 0, one.last - one.base
        ).ljust(one.size, b"x")


SIZED = [CommittedBatch(at, at, 1, at, size) for at, size in enumerate((60, 50, 70, 90, 40, 80))]


def read_to_second_segment() -> tuple[Storage, LogCursor, UnifiedLog, list[SimpleNamespace]]:
    """A log of two segments, and a cursor that has read the first batch of the second one; the segments last."""
    storage, cursor = Storage(Randomness(1)), LogCursor()
    segments = [SimpleNamespace(base_offset=start) for start in (0, 3)]
    log = cursor_log(segments)
    write_segment(storage, 0, *SIZED[:3])
    write_segment(storage, 3, *SIZED[3:5])
    assert list(cursor.read(storage, log, 4)) == SIZED[:4]
    return storage, cursor, log, segments


def test_batches_are_read_once_when_the_cleaner_has_replaced_the_file_in_which_a_cursor_stands() -> None:
    storage, cursor, log, _ = read_to_second_segment()
    write_segment(storage, 3, SIZED[3]._replace(size=70), *SIZED[4:])
    assert list(cursor.read(storage, log, 6)) == SIZED[4:]


def test_batches_are_read_once_when_the_cleaner_has_merged_the_file_in_which_a_cursor_stands() -> None:
    storage, cursor, log, segments = read_to_second_segment()
    del storage.files[f"/t-0/{3:020}.log"]
    write_segment(storage, 0, SIZED[1], *SIZED[3:])
    del segments[1]
    assert list(cursor.read(storage, log, 6)) == SIZED[4:]


def partition(isr: tuple[int, ...], leader: int = 1, *, epoch: int = 0, version: int = 0) -> PartitionImage:
    nodes = tuple(map(NodeId, isr))
    return PartitionImage(
        (NodeId(1), NodeId(2), NodeId(3)), nodes, NodeId(leader), LeaderEpoch(epoch), PartitionEpoch(version)
    )


def test_promises_hold_while_a_member_of_the_isr_has_all_records() -> None:
    promises = Promises()
    assert promises.disk_lost(1, [(KEY, partition((1, 2, 3)))]) == []
    assert promises.is_short(KEY, 1)
    assert promises.changed(KEY, partition((1, 2, 3)), partition((2, 3), 2)) is None
    assert not promises.is_short(KEY, 1)
    assert promises.changed(KEY, partition((2, 3), 2), partition((2,), 2)) is None
    assert promises.disk_lost(3, [(KEY, partition((2,), 2))]) == []


def test_promises_are_void_if_all_members_of_the_isr_have_lost_records() -> None:
    promises = Promises()
    assert promises.disk_lost(1, [(KEY, partition((1, 2)))]) == []
    assert promises.disk_lost(2, [(KEY, partition((1, 2)))]) == [KEY]
    assert promises.disk_lost(1, [(KEY, partition((1, 2)))]) == []
    assert promises.changed(KEY, partition((1, 2)), partition((1,))) == "all of the ISR (1,) had lost records"


def test_promises_are_void_after_an_unclean_election_but_not_after_a_reassignment() -> None:
    reason = Promises().changed(KEY, partition((2,), -1), partition((3,), 3))
    assert reason == "broker 3 was elected, and (2,) were eligible"
    moved = replace(partition((3,), 3), replicas=(NodeId(3), NodeId(4)))
    assert Promises().changed(KEY, partition((2,), 2), moved) is None
    assert Promises().changed(KEY, partition((2, 3), 2), partition((3,), 3)) is None


def broker(number: int, epoch: int) -> BrokerImage:
    return BrokerImage(NodeId(number), BrokerEpoch(epoch), UUID(int=epoch), (), {}, fenced=False)


def image(offset: int, one: PartitionImage, *brokers: BrokerImage) -> MetadataImage:
    topic = TopicImage("t", TOPIC, {0: one})
    registered: dict[int, BrokerImage] = {one.id: one for one in brokers}
    return MetadataImage(Offset(offset), topics={"t": topic}, topics_by_id={TOPIC: topic}, brokers=registered)


def test_the_image_of_a_broker_equals_that_of_the_controller_at_the_same_offset() -> None:
    rules = ImageRules()
    old, new = partition((1, 2, 3)), partition((1, 2), version=1)
    assert [change.now for change in rules.controller_moved(image(5, old))] == [old]
    assert [(change.before, change.now) for change in rules.controller_moved(image(9, new))] == [(old, new)]
    rules.check("broker 1", {}, image(5, old))
    rules.check("broker 1", {}, image(9, new))
    for wrong in (image(9, old), image(5, new)):
        with pytest.raises(InvariantBroken, match="the controller had"):
            rules.check("broker 1", {}, wrong)
    with pytest.raises(InvariantBroken, match="the controller's to 9"):
        rules.check("broker 1", {}, image(10, new))


def test_a_missing_or_additional_partition_in_the_image_of_a_broker_is_found() -> None:
    rules = ImageRules()
    rules.controller_moved(image(5, partition((1,))))
    with pytest.raises(InvariantBroken, match="is None at offset 5"):
        rules.check_all("broker 1", MetadataImage(Offset(5)))
    rules.controller_moved(MetadataImage(Offset(6)))
    rules.check_all("broker 1", MetadataImage(Offset(6)))
    with pytest.raises(InvariantBroken, match="the controller had None"):
        rules.check("broker 1", {}, image(6, partition((1,))))


def test_an_uncommitted_change_that_a_controller_lost_is_forgotten() -> None:
    rules = ImageRules()
    old, lost, new = partition((1, 2, 3)), partition((1, 2), version=1), partition((1, 3), version=1)
    rules.controller_moved(image(5, old))
    rules.controller_moved(image(6, lost))
    rules.controller_restarted(6)
    rules.controller_moved(image(7, new))
    rules.check("broker 1", {}, image(7, new))
    with pytest.raises(InvariantBroken):
        rules.check("broker 1", {}, image(7, lost))


def test_a_restarted_controller_must_have_all_committed_records() -> None:
    rules = ImageRules()
    before, now = partition((1, 2, 3)), partition((1, 2), version=1)
    rules.controller_moved(image(5, before))
    rules.controller_moved(image(6, now))
    rules.controller_restarted(7, 7, image(6, now))
    with pytest.raises(InvariantBroken, match="it begins at offset 6, and 7 was committed"):
        rules.controller_restarted(6, 7, image(5, before))
    with pytest.raises(InvariantBroken, match="its predecessor had"):
        rules.controller_restarted(7, 7, image(6, before))
    with pytest.raises(InvariantBroken, match="it has read None for"):
        rules.controller_restarted(7, 7, MetadataImage(Offset(6)))


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (partition((1, 2), version=2, epoch=3), "leader epoch 3 after 4"),
        (partition((1, 2), version=1, epoch=4), "partition epoch 1 after 1, changed"),
        (partition((2, 3), 2, version=2, epoch=4), "a new leader 2 in leader epoch 4"),
        (replace(partition((1,), version=2, epoch=4), replicas=(NodeId(2),)), "ISR"),
    ],
)
def test_epochs_of_a_partition_registration_must_only_increase(after: PartitionImage, text: str) -> None:
    rules = ImageRules()
    rules.controller_moved(image(5, partition((1, 2, 3), version=1, epoch=4)))
    with pytest.raises(InvariantBroken, match=text):
        rules.controller_moved(image(6, after))


def test_a_new_incarnation_of_a_broker_is_in_no_isr_except_as_its_last_member() -> None:
    rules = ImageRules()
    rules.controller_moved(image(5, partition((1, 2)), broker(2, 3)))
    rules.controller_moved(image(6, partition((1,), version=1), broker(2, 6)))
    rules.controller_moved(image(7, partition((1,), version=1), broker(1, 7), broker(2, 6)))
    with pytest.raises(InvariantBroken, match=r"broker 2 has registered again \(epoch 9\) and is in the ISR"):
        rules.controller_moved(image(9, partition((1, 2), version=2), broker(1, 7), broker(2, 9)))


def test_broker_epochs_must_increase() -> None:
    rules = ImageRules()
    rules.controller_moved(image(5, partition((1,)), broker(2, 5)))
    with pytest.raises(InvariantBroken, match="broker epoch 4 after 5"):
        rules.controller_moved(image(6, partition((1,)), broker(2, 4)))


def test_a_power_loss_keeps_the_beginning_of_a_log_and_a_wiped_disk_does_not() -> None:
    promises = Promises()
    assert promises.disk_lost(1, [(KEY, partition((1,)))]) == [KEY]
    assert promises.has_front(KEY)
    assert promises.disk_lost(1, [(KEY, partition((1,)))], wiped=True) == [KEY]
    assert not promises.has_front(KEY)


def test_the_start_of_a_tiered_log_must_not_rise_after_a_power_loss_that_voided_promises() -> None:
    config = replace(TopicConfig.effective(NodeConfig.of(), {}), retention_bytes=-1)
    log = cast(UnifiedLog, SimpleNamespace(topic="t", partition=0, log_start_offset=20, config=config))
    ledger = Ledger("t-0")
    ledger.void(3)
    with pytest.raises(InvariantBroken, match="its log starts at 20 after 0, but retention is unlimited"):
        TierRules(Storage(Randomness(1))).start_seen("t-0", KEY, log, ledger)
    rules = TierRules(Storage(Randomness(1)))
    rules.front_lost(KEY)
    rules.start_seen("t-0", KEY, log, ledger)
