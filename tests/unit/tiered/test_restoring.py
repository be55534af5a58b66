"""What can be made again of a tier: bounds, epochs, segments, and logs that begin in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from milena.config.node_config import NodeConfig
from milena.config.sources import from_overrides
from milena.config.topic_config import TopicConfig
from milena.protocol.records.batch import BatchView, pack_batch
from milena.protocol.types import BrokerEpoch, Offset, ProducerEpoch, ProducerId
from milena.protocol.uuids import to_text
from milena.storage.files.producer_snapshot import encode_snapshot
from milena.storage.manager.log_manager import LogManager
from milena.storage.state.producer_state import ProducerState
from milena.tiered.offline.broker_logs import (
    Placed,
    begin_in_tier,
    metadata_batches,
    metadata_topic,
    write_broker,
)
from milena.tiered.offline.cluster_restore import CannotRestore, Wishes
from milena.tiered.offline.epoch_history import lineage_of_tier
from milena.tiered.offline.metadata_history import read_history
from milena.tiered.rebuilding.rebuilt_metadata import UNKNOWN_BROKER
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tests.unit.tiered.restored_logs import log_of, restored
from tests.unit.tiered.segments import PARTITION, epochs, update
from tests.unit.tiered.whole_tier import FIRST_TIME, FOLDER, WholeTier, lineage, on_a_tier

SECOND = replace(PARTITION, partition=1)
TIERED = {"remote.storage.enable": "true"}


def two_epochs(tier: WholeTier) -> list[RemoteLogSegmentMetadata]:
    return [
        tier.put(1, 5, 9, {0: 5}, checkpoint={0: 3}),
        tier.put(2, 10, 19, {0: 10, 2: 15}, checkpoint={0: 3, 2: 15}),
    ]


@on_a_tier
async def test_a_log_begins_and_ends_where_its_tier_does(tier: WholeTier) -> None:
    put = two_epochs(tier)
    for with_metadata in (False, True):
        log = await log_of(tier, with_metadata=with_metadata)
        assert (log.log_start, log.lineage.log_end, log.leader_epoch) == (5, 20, 3)
        assert log.lineage.epochs == epochs({0: 5, 2: 15})
        known = put if with_metadata else [replace(one, broker_id=UNKNOWN_BROKER) for one in put]
        assert [replace(one, event_timestamp_ms=0) for one in log.segments] == [
            replace(one, event_timestamp_ms=0) for one in known
        ]


@on_a_tier
async def test_if_the_checkpoints_are_lost_the_epochs_come_from_the_batches(tier: WholeTier) -> None:
    for segment in two_epochs(tier):
        tier.write(segment, ".leader_epoch_checkpoint", b"")
    log = await log_of(tier)
    assert log.lineage.epochs == epochs({0: 5, 2: 15})
    assert [segment.epochs for segment in log.segments] == [epochs({0: 5}), epochs({0: 10, 2: 15})]


@on_a_tier
async def test_a_segment_whose_log_is_there_is_taken_whatever_else_is_lost(tier: WholeTier) -> None:
    first, last = two_epochs(tier)
    for suffix in (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"):
        tier.remove(first, suffix)
    tier.remove(last, ".index")
    for with_metadata in (False, True):
        result = await restored(tier, with_metadata=with_metadata)
        log = result.topics[0].logs[0]
        assert (log.log_start, log.lineage.log_end, log.lineage.epochs) == (5, 20, epochs({0: 5, 2: 15}))
        assert [segment.epochs for segment in log.segments] == [epochs({0: 5}), epochs({0: 10, 2: 15})]
        assert [note.split(": ")[1] for note in result.notes] == [
            f"there is no .index of segment {to_text(first.id)} and 1 more",
            *(
                f"there is no {suffix} of segment {to_text(first.id)}"
                for suffix in (".timeindex", ".snapshot", ".leader_epoch_checkpoint")
            ),
        ]


@on_a_tier
async def test_lost_checkpoints_are_made_up_for_by_batches_and_neighbours(tier: WholeTier) -> None:
    tier.put(1, 5, 9, {1: 5}, checkpoint={0: 0, 1: 3})
    lost = [
        tier.put(2, 10, 19, {1: 10, 2: 15}, checkpoint={0: 0, 1: 3, 2: 15}),
        tier.put(3, 20, 29, {3: 20}, checkpoint={0: 0, 1: 3, 2: 15, 3: 20}),
    ]
    for segment in lost:
        tier.remove(segment, ".leader_epoch_checkpoint")
    lineage = await lineage_of_tier(tier.storage, (await log_of(tier)).segments)
    assert lineage is not None and lineage.epochs == epochs({0: 0, 1: 3, 2: 15, 3: 20})
    assert (await log_of(tier)).lineage.epochs == epochs({1: 5, 2: 15, 3: 20})


@on_a_tier
async def test_what_replicas_are_left_tell_log_start_and_lineage(tier: WholeTier) -> None:
    """Not what they alone had: it is gone. Their newest epoch is not used again."""
    two_epochs(tier)
    log = await log_of(tier, replicas={PARTITION: lineage({0: 3, 2: 15, 7: 25}, 30, log_start=8)})
    assert (log.log_start, log.lineage.log_end, log.leader_epoch) == (8, 20, 8)
    assert log.lineage.epochs == epochs({0: 8, 2: 15})


@on_a_tier
async def test_the_newest_epoch_decides_which_lineage_goes_on(tier: WholeTier) -> None:
    """kip405-5: two logs parted at offset 2."""
    tier.put(1, 0, 3, {0: 0})
    tier.put(2, 0, 3, {0: 0, 1: 2})
    tier.put(3, 4, 5, {0: 4, 2: 5}, checkpoint={0: 0, 2: 5})
    log = await log_of(tier)
    assert (log.log_start, log.lineage.log_end, log.lineage.epochs) == (0, 6, epochs({0: 0, 2: 5}))
    assert len(log.segments) == 3 and log.leader_epoch == 3


@on_a_tier
async def test_offsets_that_are_in_no_segment_are_not_passed_over_unasked(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    tier.put(2, 20, 29, {0: 20}, checkpoint={0: 0})
    with pytest.raises(CannotRestore, match=r"t-0: offsets 10 to 19 are in no segment; with --skip-gaps"):
        await restored(tier)
    result = await restored(tier, Wishes(skip_gaps=True))
    assert result.topics[0].logs[0].log_start == 20
    assert result.notes == ["t-0: offsets 10 to 19 are in no segment, the log begins at 20"]


@on_a_tier
async def test_damage_is_reported_as_the_reason_of_a_gap(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    cut = tier.put(2, 10, 19, {0: 10}, checkpoint={0: 0})
    tier.put(3, 20, 29, {0: 20}, checkpoint={0: 0})
    batch = cut.size // 10
    tier.write(cut, ".log", tier.read(cut, ".log")[: batch * 4 + 70])
    damage = f"the 70 bytes at position {batch * 4} are not a complete batch"
    for with_metadata, size in ((False, ""), (True, f"its log has {batch * 4 + 70} of {cut.size} bytes; ")):
        reason = f"segment {to_text(cut.id)} is left out: {size}{damage}"
        with pytest.raises(CannotRestore, match=re.escape(f"in no segment ({reason}); with --skip-gaps")):
            await restored(tier, with_metadata=with_metadata)


@on_a_tier
async def test_a_damaged_segment_is_left_out(tier: WholeTier) -> None:
    two_epochs(tier)
    last = tier.put(3, 20, 24, {2: 20}, checkpoint={0: 3, 2: 15})
    tier.write(last, ".log", tier.read(last, ".log")[:-1])
    for with_metadata in (False, True):
        result = await restored(tier, with_metadata=with_metadata)
        assert result.topics[0].logs[0].lineage.log_end == 20
        assert [note.split(":")[1] for note in result.notes] == [f" segment {to_text(last.id)} is left out"]


@on_a_tier
async def test_a_partition_of_which_nothing_can_be_read_is_empty(tier: WholeTier) -> None:
    two_epochs(tier)
    tier.remove(tier.put(3, 0, 9, {0: 0}, partition=SECOND), ".log")
    result = await restored(tier)
    assert (result.topics[0].partitions, list(result.topics[0].logs)) == (2, [0])
    assert any("t-1: nothing in the tier can be read" in note for note in result.notes)


@on_a_tier
async def test_a_topic_may_have_more_partitions_than_the_tier_shows_and_not_fewer(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0}, partition=SECOND)
    assert (await restored(tier, Wishes(partitions={"t": 6}))).topics[0].partitions == 6
    for number, sentence in ((1, "topic t has at least 2 partitions, not 1"),):
        with pytest.raises(CannotRestore, match=sentence):
            await restored(tier, Wishes(partitions={"t": number}))
    with pytest.raises(CannotRestore, match="there is no topic u in the tier"):
        await restored(tier, Wishes(partitions={"u": 1}))


@on_a_tier
async def test_the_user_chooses_between_two_topics_with_one_name(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    tier.put(2, 0, 4, {0: 0}, partition=replace(PARTITION, topic_id=UUID(int=5)))
    tier.put(3, 0, 4, {0: 0}, partition=TopicIdPartition(UUID(int=6), "other", 0))
    ids = "AAAAAAAAAAAAAAAAAAAABQ, AAAAAAAAAAAAAAAAAAAATQ"
    with pytest.raises(CannotRestore, match=f"topic t is in the tier with the ids {ids}: choose one by --topic t=ID"):
        await restored(tier)
    result = await restored(tier, Wishes(topics={"t": UUID(int=5), "other": None}))
    assert [(topic.name, topic.id.int) for topic in result.topics] == [("other", 6), ("t", 5)]
    assert [topic.name for topic in (await restored(tier, Wishes(topics={"other": None}))).topics] == ["other"]
    for wanted, sentence in (({"u": None}, "no topic u in"), ({"t": UUID(int=9)}, "no topic t with the id AAAA")):
        with pytest.raises(CannotRestore, match=sentence):
            await restored(tier, Wishes(topics=wanted))


@on_a_tier
async def test_of_an_empty_tier_nothing_can_be_made(tier: WholeTier) -> None:
    with pytest.raises(CannotRestore, match="the tier contains no segment"):
        await restored(tier)


@on_a_tier
async def test_a_lost_producer_state_is_reported(tier: WholeTier) -> None:
    tier.write(two_epochs(tier)[-1], ".snapshot", b"?")
    assert [note for note in (await restored(tier)).notes if "the state of its producers is lost" in note]


@on_a_tier
async def test_the_new_metadata_topic_lists_every_segment_in_its_state(tier: WholeTier) -> None:
    first, _ = two_epochs(tier)
    tier.tell(update(first, RemoteLogSegmentState.DELETE_SEGMENT_STARTED))
    tier.put(3, 0, 4, {1: 0}, partition=SECOND)
    topics = (await restored(tier, with_metadata=True)).topics
    disk = tier.runtime.disk
    for number, batches in metadata_batches(topics, 7, FIRST_TIME).items():
        disk.make_folders(f"/new/__remote_log_metadata-{number}")
        disk.write_atomic(f"/new/__remote_log_metadata-{number}/{0:020d}.log", b"".join(batches))
    listed = read_history(disk, ["/new"])
    assert listed.unreadable == [] and all(one.accepted for events in listed.events.values() for one in events)
    for log in topics[0].logs.values():
        assert [replace(one, broker_id=log.segments[0].broker_id) for one in listed.segments(log.partition)] == [
            replace(one, event_timestamp_ms=known.event_timestamp_ms, broker_id=log.segments[0].broker_id)
            for one, known in zip(log.segments, listed.segments(log.partition), strict=True)
        ]


@on_a_tier
async def test_a_broker_finds_logs_that_begin_in_the_tier(tier: WholeTier) -> None:
    two_epochs(tier)
    result = await restored(tier)
    config = node_config(Path(FOLDER))
    metadata = Placed(metadata_topic(UUID(int=9), 2), [(1,), (2,)], {})
    await write_broker(
        tier.runtime,
        config,
        cluster_id="AAAAAAAAAAAAAAAAAAAATQ",
        broker_epoch=BrokerEpoch(4),
        topics=[Placed(result.topics[0], [(1,)], TIERED)],
        metadata=metadata,
        batches=metadata_batches(result.topics, 1, FIRST_TIME),
        now=FIRST_TIME,
    )
    manager = LogManager(tier.runtime, config, lambda *_: None)
    manager.open()
    assert (manager.cluster_id, manager.previous_broker_epoch) == ("AAAAAAAAAAAAAAAAAAAATQ", 4)
    await manager.load(lambda name: TopicConfig.effective(config, TIERED if name == "t" else {}))
    log = manager.get("t", 0)
    assert log is not None and log.topic_id == PARTITION.topic_id
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset, log.high_watermark) == (5, 20, 20, 20)
    assert tuple(log.epochs.entries) == epochs({0: 5, 2: 15})
    own = manager.get("__remote_log_metadata", 0)
    assert own is not None and own.log_end_offset == own.high_watermark == Offset(4)
    assert manager.get("__remote_log_metadata", 1) is None
    await manager.stop()


@on_a_tier
async def test_transactions_whose_ends_were_not_copied_are_aborted(tier: WholeTier) -> None:
    producers = ProducerState()
    for number in (7, 8):
        batch = BatchView(
            memoryview(
                bytearray(
                    pack_batch(
                        b"",
                        count=1,
                        last_offset_delta=0,
                        base_timestamp=FIRST_TIME,
                        max_timestamp=FIRST_TIME,
                        base_offset=Offset(10 + number),
                        producer_id=ProducerId(number),
                        producer_epoch=ProducerEpoch(3),
                        base_sequence=0,
                        transactional=number == 7,
                    )
                )
            )
        )
        producers.add_batch(batch)
    tier.write(two_epochs(tier)[-1], ".snapshot", encode_snapshot(producers))
    result = await restored(tier)
    assert [note for note in result.notes if "aborted" in note and note.endswith("of the producers 7")]
    restored_log = result.topics[0].logs[0]
    config = node_config(Path(FOLDER))
    manager = LogManager(tier.runtime, config, lambda *_: None)
    manager.open()
    manager.format("AAAAAAAAAAAAAAAAAAAATQ")
    log = manager.get_or_create("t", 0, PARTITION.topic_id, TopicConfig.effective(config, TIERED), is_new=True)
    begin_in_tier(log, restored_log, FIRST_TIME)
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset == 21
    [aborted] = log.aborted_transactions(Offset(17), Offset(21))
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 17, 20)
    assert log.epochs.latest == restored_log.leader_epoch == 3
    await manager.stop()


def node_config(folder: Path) -> NodeConfig:
    values = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "100@127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/restored",
        "remote.log.storage.system.enable": "true",
        "rsm.config.dir": str(folder),
    }
    return NodeConfig(from_overrides([f"{key}={value}" for key, value in values.items()]))
