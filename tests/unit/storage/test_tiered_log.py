"""A tiered log: its log start, deletion of local segments, and its state after a restart
(docs/kafka-semantics.md: Tiered topics, Local retention)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milena.protocol.errors import KafkaError
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.producer_snapshot import CorruptSnapshot, encode_snapshot
from milena.storage.log import tiering
from milena.storage.log.context import may_be_tiered
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_dir import LogDir
from milena.storage.state.epoch_cache import EpochEntry
from milena.storage.state.producer_state import ProducerState
from tests.unit.storage.logs import START_MS, LogFolder, append, batch_of, values_of

SIZE = 73
"""The size in bytes of a batch with the key ``k`` and the value ``xxxx``."""


def tiered(path: Path, count: int, **config: Any) -> tuple[LogFolder, UnifiedLog]:
    """A tiered log of ``count`` segments with one record each, one second apart, all committed."""
    defaults = {"remote_storage_enable": True, "retention_ms": -1, "retention_bytes": -1}
    folder = LogFolder(path, **{**defaults, **config})
    folder.tiered = True
    log = folder.open()
    for number in range(count):
        log.roll()
        append(log, b"xxxx", keys=(b"k",), timestamp=START_MS + 1000 * number, epoch=number)
    log.set_high_watermark(log.log_end_offset)
    return folder, log


def sent_by_leader(offset: int, epoch: int) -> memoryview:
    """A batch as a follower fetches it from its leader."""
    data = batch_of(b"xxxx")
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return data


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize(
    ("config", "topic", "expected"),
    [
        ({}, "topic", True),
        ({"remote_storage_enable": False}, "topic", False),
        ({"cleanup_policy": ("compact",)}, "topic", True),
        ({"cleanup_policy": ()}, "topic", True),
        ({}, "__consumer_offsets", False),
        ({}, "__transaction_state", False),
        ({}, "__share_group_state", False),
        ({}, "__remote_log_metadata", False),
        ({}, "__cluster_metadata", False),
    ],
)
def test_only_logs_of_tiered_topics_that_are_not_internal_may_be_tiered(
    tmp_path: Path, config: dict[str, Any], topic: str, expected: bool
) -> None:
    folder = LogFolder(tmp_path, **{"remote_storage_enable": True, **config})
    assert not may_be_tiered(folder.context, topic, folder.config)
    folder.context.tiered = True
    assert may_be_tiered(folder.context, topic, folder.config) is expected


@pytest.mark.parametrize(("copied", "deleted"), [(-1, 0), (0, 1), (2, 3)])
def test_only_copied_segments_are_deleted_locally(tmp_path: Path, copied: int, deleted: int) -> None:
    _, log = tiered(tmp_path, 4, local_retention_bytes=1)
    log.raise_highest_offset_in_remote_storage(Offset(copied))
    assert log.delete_old_segments(START_MS) == deleted
    assert bases(log) == list(range(deleted, 4))
    assert (log.log_start_offset, log.local_log_start_offset) == (0, deleted)


def test_local_retention_applies_to_copied_segments(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 5, retention_ms=1 << 40, local_retention_ms=1000)
    log.raise_highest_offset_in_remote_storage(Offset(4))
    assert log.delete_old_segments(START_MS + 3001) == 3
    _, log = tiered(tmp_path / "size", 5, retention_bytes=1 << 40, local_retention_bytes=2 * SIZE)
    log.raise_highest_offset_in_remote_storage(Offset(4))
    assert log.delete_old_segments(START_MS) == 3


def test_total_retention_applies_to_local_segments_if_copying_is_disabled(tmp_path: Path) -> None:
    """KAFKA-17236."""
    _, log = tiered(tmp_path, 5, retention_bytes=2 * SIZE, remote_log_copy_disable=True)
    assert log.delete_old_segments(START_MS) == 3
    assert (log.log_start_offset, log.local_log_start_offset) == (3, 3)


@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")], ids="-".join)
def test_a_compacted_log_deletes_only_copied_segments_unless_its_policy_has_delete(
    tmp_path: Path, policy: tuple[str, ...]
) -> None:
    _, log = tiered(tmp_path, 5, cleanup_policy=policy, retention_bytes=2 * SIZE, local_retention_bytes=SIZE)
    assert log.delete_old_segments(START_MS) == 0
    log.raise_highest_offset_in_remote_storage(Offset(2))
    assert log.delete_old_segments(START_MS) == 3
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 3)
    _, log = tiered(tmp_path / "off", 5, cleanup_policy=policy, retention_bytes=2 * SIZE, remote_log_copy_disable=True)
    assert log.delete_old_segments(START_MS) == (3 if "delete" in policy else 0)


def test_segments_below_the_log_start_are_deleted_without_a_copy(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 5)
    log.increment_log_start(Offset(2))
    assert log.delete_old_segments(START_MS) == 2
    assert (log.log_start_offset, log.local_log_start_offset) == (2, 2)


@pytest.mark.parametrize("limit", [{"local_retention_ms": 1000}, {"local_retention_bytes": 0}], ids=["time", "size"])
def test_an_active_segment_past_its_retention_is_rolled_then_copied_and_deleted(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    """KAFKA-15272; KAFKA-15047 by time, KAFKA-16414 by size too."""
    _, log = tiered(tmp_path, 2, **limit)
    log.raise_highest_offset_in_remote_storage(Offset(0))
    assert log.delete_old_segments(START_MS + 10_000) == 1
    assert bases(log) == [1, 2]
    assert log.delete_old_segments(START_MS + 10_000) == 0
    log.raise_highest_offset_in_remote_storage(Offset(1))
    assert log.delete_old_segments(START_MS + 10_000) == 1
    assert (bases(log), log.log_start_offset, log.local_log_start_offset) == ([2], 0, 2)


@pytest.mark.parametrize("limit", [{"retention_ms": 1000}, {"retention_bytes": 0}], ids=["time", "size"])
@pytest.mark.parametrize("remote", [False, True], ids=["not tiered", "not copied any more"])
def test_without_copying_an_active_segment_past_its_retention_is_deleted(
    tmp_path: Path, limit: dict[str, Any], remote: bool
) -> None:
    """KAFKA-16414: by time and by size, with and without a tier."""
    _, log = tiered(tmp_path, 2, remote_storage_enable=remote, remote_log_copy_disable=remote, **limit)
    assert log.delete_old_segments(START_MS + 10_000) == 2
    assert (bases(log), log.log_start_offset, log.local_log_start_offset) == ([2], 2, 2)


def test_a_timestamp_in_the_future_prevents_deletion_by_time_but_not_by_size(
    tmp_path: Path,
) -> None:
    """KAFKA-20609, as in Kafka 4.3: copied segments from that one on stay on the disk until that time."""
    future = START_MS + 1_000_000
    _, log = tiered(tmp_path, 2, local_retention_ms=1000)
    log.roll()
    append(log, b"xxxx", keys=(b"k",), timestamp=future, epoch=2)
    for number in (3, 4):
        log.roll()
        append(log, b"xxxx", keys=(b"k",), timestamp=START_MS, epoch=number)
    log.set_high_watermark(log.log_end_offset)
    log.raise_highest_offset_in_remote_storage(Offset(4))
    assert log.delete_old_segments(START_MS + 10_000) == 2
    assert log.delete_old_segments(future + 1000) == 0
    log.update_config(replace(log.config, local_retention_bytes=2 * SIZE))
    assert log.delete_old_segments(START_MS + 10_000) == 3
    assert bases(log)[0] == 5


def test_leader_epochs_of_segments_in_the_tier_are_kept(tmp_path: Path) -> None:
    folder, log = tiered(tmp_path, 4, local_retention_bytes=1)
    log.raise_highest_offset_in_remote_storage(Offset(2))
    log.delete_old_segments(START_MS)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    log.close()
    again = folder.open()
    assert (again.log_start_offset, again.local_log_start_offset, again.high_watermark) == (0, 3, 3)
    assert [tuple(entry) for entry in again.epochs.entries] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert values_of(again, 3) == [b"xxxx"]


@pytest.mark.parametrize("policy", [("compact",), ("delete",)], ids="-".join)
def test_leader_epochs_rebuilt_after_a_gap_do_not_raise_the_start_of_a_tiered_log(
    tmp_path: Path, policy: tuple[str, ...]
) -> None:
    """The leader has compacted the log before it was tiered, so the first local record is not at the segment's base."""
    folder, log = tiered(tmp_path, 1, cleanup_policy=policy)
    no_producers = encode_snapshot(ProducerState())
    known = [EpochEntry(LeaderEpoch(0), Offset(0))]
    tiering.start_in_tier(log, Offset(4), log_start=Offset(0), epochs=known, snapshot=no_producers)
    log.append_as_follower(sent_by_leader(6, 0))
    log.close()
    (Path(log.folder) / "leader-epoch-checkpoint").unlink()
    for _ in range(2):  # the second restart reads the checkpoint that the first has written
        again = folder.open()
        assert [tuple(entry) for entry in again.epochs.entries] == [(0, 6)]
        assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (0, 4, 7)
        again.close()


def test_a_log_on_a_broker_without_a_tier_begins_with_its_first_local_record(tmp_path: Path) -> None:
    folder, log = tiered(tmp_path, 4, local_retention_bytes=1)
    log.raise_highest_offset_in_remote_storage(Offset(2))
    log.delete_old_segments(START_MS)
    log.close()
    folder.tiered = False
    again = folder.open()
    assert (again.log_start_offset, again.local_log_start_offset) == (3, 3)


def test_the_log_start_checkpoint_always_has_tiered_logs(tmp_path: Path) -> None:
    folder, log = tiered(tmp_path, 2)
    directory = LogDir(str(tmp_path), folder.context)
    directory.logs["topic", 0] = log
    assert [data for path, data in directory.checkpoints().files if "log-start" in path] == [b"0\n1\ntopic 0 0\n"]


def test_the_tier_may_raise_the_log_start_but_not_lower_it(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 5)
    assert log.update_log_start_from_remote_tier(Offset(3))
    assert (log.log_start_offset, log.local_log_start_offset) == (3, 3)
    assert not log.update_log_start_from_remote_tier(Offset(2))
    log.remote_enabled = False
    assert not log.update_log_start_from_remote_tier(Offset(4))


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_a_truncation_lowers_the_highest_copied_offset(tmp_path: Path, cut: int) -> None:
    """The next record at these offsets may be a different one, which must not count as copied."""
    _, log = tiered(tmp_path, 4, local_retention_bytes=3 * SIZE)
    log.raise_highest_offset_in_remote_storage(Offset(2))
    assert log.delete_old_segments(START_MS) == 1
    log.truncate_to(Offset(cut))
    assert log.highest_offset_in_remote_storage == min(cut - 1, 2)
    assert (log.log_start_offset, log.log_end_offset) == (0, cut)
    assert log.local_log_start_offset == min(cut, 1)


def test_segments_that_are_not_in_the_tier_are_only_local(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 4)
    assert [segment.base_offset for segment in tiering.only_local(log)] == [0, 1, 2, 3]
    log.raise_highest_offset_in_remote_storage(Offset(1))
    log.raise_highest_offset_in_remote_storage(Offset(0))
    assert [segment.base_offset for segment in tiering.only_local(log)] == [2, 3]


def test_a_missing_producer_snapshot_is_rebuilt(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, remote_storage_enable=True)
    log = folder.open()
    for sequence in range(6):
        append(log, b"value", producer=(7, 0, sequence))
        if sequence % 2:
            log.roll()
    path = Path(tiering.snapshot_at(log, Offset(4)))
    written = path.read_bytes()
    path.unlink()
    assert tiering.snapshot_at(log, Offset(4)) == str(path)
    assert path.read_bytes() == written
    assert log.producer_files.newest == 6


def test_a_follower_starts_with_the_state_of_the_tier(tmp_path: Path) -> None:
    """It has the leader's epochs and producers as of that offset, and the next append succeeds
    (docs/kafka-semantics.md: Followers that begin in the tier)."""
    _, leader = tiered(tmp_path / "leader", 3)
    append(leader, b"value", producer=(7, 0, 0), epoch=3)
    leader.roll()
    snapshot = Path(tiering.snapshot_at(leader, Offset(4))).read_bytes()
    folder, log = tiered(tmp_path / "follower", 1)
    tiering.start_in_tier(log, Offset(4), log_start=Offset(0), epochs=leader.epochs.entries, snapshot=snapshot)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset, log.high_watermark) == (0, 4, 4, 4)
    assert log.epochs.entries == leader.epochs.entries
    assert (bases(log), log.highest_offset_in_remote_storage) == ([4], 3)
    assert tiering.epochs_reach_start(log)
    for one in (leader, log):
        append(one, b"next", producer=(7, 0, 1), epoch=3)
    assert append(log, b"next", producer=(7, 0, 1), epoch=3).duplicate
    log.close()
    again = folder.open()
    assert (again.log_start_offset, again.local_log_start_offset, again.log_end_offset) == (0, 4, 5)
    assert again.epochs.entries == leader.epochs.entries
    assert append(again, b"next", producer=(7, 0, 1), epoch=3).duplicate


def test_the_first_append_removes_epochs_that_begin_after_it(tmp_path: Path) -> None:
    """Scenario kip405-1. If the leader's local log begins within an epoch, that epoch keeps its start offset."""
    _, log = tiered(tmp_path, 1)
    known = [EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in ((0, 0), (1, 3), (2, 5))]
    no_producers = encode_snapshot(ProducerState())
    tiering.start_in_tier(log, Offset(4), log_start=Offset(0), epochs=known, snapshot=no_producers)
    assert list(log.epochs.entries) == known
    log.append_as_follower(sent_by_leader(4, epoch=1))
    assert list(log.epochs.entries) == known[:2]
    log.append_as_follower(sent_by_leader(5, epoch=2))
    assert list(log.epochs.entries) == known


def test_a_truncation_below_the_local_log_keeps_earlier_epochs_of_the_tier(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 1)
    known = [EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in ((0, 0), (1, 3), (2, 5))]
    no_producers = encode_snapshot(ProducerState())
    tiering.start_in_tier(log, Offset(8), log_start=Offset(2), epochs=known, snapshot=no_producers)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 2), (1, 3), (2, 5)]
    log.truncate_to(Offset(4))
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 4, 4)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 2), (1, 3)]
    assert tiering.epochs_reach_start(log)


def test_a_truncation_to_the_local_log_start_keeps_the_producers_of_the_tier(tmp_path: Path) -> None:
    _, leader = tiered(tmp_path / "leader", 3)
    append(leader, b"value", producer=(7, 0, 0), epoch=3)
    leader.roll()
    snapshot = Path(tiering.snapshot_at(leader, Offset(4))).read_bytes()
    _, log = tiered(tmp_path / "follower", 1)
    tiering.start_in_tier(log, Offset(4), log_start=Offset(0), epochs=leader.epochs.entries, snapshot=snapshot)
    log.append_as_follower(sent_by_leader(4, epoch=3))
    assert log.truncate_to(Offset(4))
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 4, 4)
    assert append(log, b"value", producer=(7, 0, 0), epoch=4).duplicate


def test_a_truncation_below_the_local_log_removes_an_epoch_that_begins_there(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 1)
    known = [EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in ((0, 0), (1, 3), (2, 5))]
    no_producers = encode_snapshot(ProducerState())
    tiering.start_in_tier(log, Offset(8), log_start=Offset(2), epochs=known, snapshot=no_producers)
    log.truncate_to(Offset(3))
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 2)]


def test_local_retention_applies_to_a_tiered_log_with_an_empty_cleanup_policy(tmp_path: Path) -> None:
    """``cleanup.policy`` is for the whole log, ``local.retention.*`` for the local part."""
    _, log = tiered(tmp_path, 3, cleanup_policy=(), local_retention_bytes=1)
    log.raise_highest_offset_in_remote_storage(Offset(1))
    assert log.delete_old_segments(START_MS) == 2
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 2)


def test_a_log_whose_local_part_is_cleared_keeps_its_bounds_and_epochs(tmp_path: Path) -> None:
    folder, log = tiered(tmp_path, 3)
    before = list(log.epochs.entries)
    tiering.clear_local(log)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, 3, 3)
    assert (bases(log), list(log.epochs.entries)) == ([3], before)
    cuts = log.truncations
    tiering.clear_local(log)
    assert log.truncations == cuts, "there is nothing left"
    log.close()
    again = folder.open()
    assert (again.log_start_offset, again.log_end_offset, list(again.epochs.entries)) == (0, 3, before)


def test_a_copy_of_the_local_part_has_the_producers_of_the_whole_log(tmp_path: Path) -> None:
    """Its segments are copied to the tier with that producer state, and a retried batch is still detected."""
    _, log = tiered(tmp_path / "log", 2, local_retention_bytes=1)
    append(log, b"value", producer=(7, 0, 0), epoch=1)
    log.roll()
    append(log, b"other", epoch=2)
    log.set_high_watermark(log.log_end_offset)
    log.raise_highest_offset_in_remote_storage(Offset(2))
    log.delete_old_segments(START_MS)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 3)
    _, copy = tiered(tmp_path / "copy", 0)
    tiering.start_like(copy, log, Offset(3))
    copy.append_as_follower(memoryview(bytearray(log.read_bytes(Offset(3), 1000, upper=Offset(4), min_one=True))))
    assert (copy.log_start_offset, copy.local_log_start_offset, copy.log_end_offset) == (0, 3, 4)
    assert copy.epochs.entries == log.epochs.entries
    assert append(copy, b"value", producer=(7, 0, 0), epoch=2).duplicate
    path = Path(tiering.snapshot_at(log, Offset(3)))
    path.write_bytes(b"no snapshot")
    with pytest.raises(KafkaError):
        tiering.start_like(copy, log, Offset(3))


def test_a_damaged_producer_snapshot_leaves_the_log_unchanged(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 2)
    with pytest.raises(CorruptSnapshot):
        tiering.start_in_tier(log, Offset(9), log_start=Offset(0), epochs=(), snapshot=b"no snapshot")
    assert (bases(log), log.log_end_offset) == ([0, 1], 2)


def test_an_epoch_cache_that_does_not_reach_the_log_start_is_detected(tmp_path: Path) -> None:
    _, log = tiered(tmp_path, 3, local_retention_bytes=1)
    assert tiering.epochs_reach_start(log)
    log.raise_highest_offset_in_remote_storage(Offset(1))
    log.delete_old_segments(START_MS)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, 2)
    assert tiering.epochs_reach_start(log)
    log.epochs.clear()
    assert not tiering.epochs_reach_start(log)
    log.assign_epoch(LeaderEpoch(4), Offset(2))
    assert not tiering.epochs_reach_start(log)
