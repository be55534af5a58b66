"""Truncation of a log, as of a follower whose log has diverged (docs/kafka-semantics.md: Leader epoch cache,
Truncation by followers)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.cleaning.rebuilt_batch import emptied
from milena.storage.files.checkpoints import decode_epochs
from milena.storage.files.names import EPOCHS, LOG
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import EpochEntry
from tests.unit.storage.logs import START_MS, LogFolder, append, batch_of, marker, values_of

VALUES = [b"%02d" % number * 30 for number in range(20)]


def filled(path: Path) -> tuple[LogFolder, UnifiedLog]:
    """A log of twenty batches of one producer, five per segment, with leader epochs 0, 1, 2 from offsets 0, 7, 14."""
    folder = LogFolder(path, segment_bytes=650, index_interval_bytes=100)
    log = folder.open()
    for number, value in enumerate(VALUES):
        append(log, value, epoch=number // 7, producer=(5, 0, number), timestamp=START_MS + number)
    assert [segment.base_offset for segment in log.segments] == [0, 5, 10, 15]
    return folder, log


@pytest.mark.parametrize("offset", [0, 1, 5, 7, 13, 15, 19])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_truncated_log_ends_at_the_given_offset(tmp_path: Path, offset: int, reopened: bool) -> None:
    folder, log = filled(tmp_path)
    if reopened:
        log.close()
        log = folder.open()
    log.set_high_watermark(Offset(20))
    assert log.truncate_to(Offset(offset))
    assert (log.log_end_offset, log.high_watermark) == (offset, offset)
    assert values_of(log) == VALUES[:offset]
    assert log.epochs.entries == [entry for entry in [(0, 0), (1, 7), (2, 14)] if entry[1] < offset]
    assert max(segment.largest.timestamp for segment in log.segments) == (START_MS + offset - 1 if offset else -1)
    append(log, b"next", epoch=3, producer=(5, 0, offset))
    assert values_of(log) == [*VALUES[:offset], b"next"]
    for clean in (False, True):
        again = folder.open(clean=clean)
        assert values_of(again) == [*VALUES[:offset], b"next"]
        entry = again.producers.get(5)
        assert entry is not None
        assert entry.last_sequence == offset
        again.close()


def test_truncation_to_an_offset_within_a_batch_removes_the_whole_batch(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a", b"b")
    append(log, b"c", b"d", b"e")
    log.truncate_to(Offset(4))
    assert values_of(log, 0, 2) == [b"a", b"b"]
    assert log.segments.active.next_offset() == 2
    assert log.log_end_offset == 2


def test_the_timestamp_of_an_empty_batch_does_not_count_as_the_largest_after_a_truncation(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"a")
    cleaned = batch_of(b"b", timestamp=START_MS + 9)
    next(iter_batches(cleaned)).assign(Offset(1), LeaderEpoch(0))
    log.append_as_follower(memoryview(emptied(BatchView(cleaned))))
    append(log, b"c")
    log.truncate_to(Offset(2))
    assert log.segments.active.largest == (START_MS, 0)


def test_a_truncated_log_ends_at_the_given_offset_if_compaction_removed_the_record_before(tmp_path: Path) -> None:
    """Otherwise the log end would be lower after a restart, and other records would get these offsets."""
    folder, other = LogFolder(tmp_path / "log"), LogFolder(tmp_path / "other").open()
    log = folder.open()
    for number in range(10):
        append(other, b"%d" % number)
    for offset in (0, 1, 9):
        log.append_as_follower(other.read_bytes(Offset(offset), 1, upper=Offset(10), min_one=True))
    assert log.truncate_to(Offset(9))
    for _ in range(2):
        assert (values_of(log, 0, 2), log.log_end_offset) == ([b"0", b"1"], 9)
        log.close()
        log = folder.open()
    append(log, b"next")
    assert log.log_end_offset == 10


def test_truncation_beyond_the_log_end_removes_only_an_epoch_without_records(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.assign_epoch(LeaderEpoch(9), Offset(20))
    assert not log.truncate_to(Offset(25))
    assert log.epochs.latest == 2
    assert log.log_end_offset == 20


def test_truncation_to_the_log_end_removes_an_epoch_without_records_also_on_disk(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.assign_epoch(LeaderEpoch(9), Offset(20))
    assert not log.truncate_to(Offset(20))
    assert log.truncations == 0, "a flush that is under way counts"
    assert epochs_on_disk(log) == log.epochs.entries == [(0, 0), (1, 7), (2, 14)]


@pytest.mark.parametrize(("offset", "warnings"), [(12, 0), (11, 1)])
def test_a_warning_is_logged_only_for_truncation_below_the_high_watermark(
    tmp_path: Path, offset: int, warnings: int
) -> None:
    folder, log = filled(tmp_path)
    log.set_high_watermark(Offset(12))
    log.truncate_to(Offset(offset))
    assert len(folder.events.named("truncating below the high watermark")) == warnings


def test_a_log_truncated_below_its_log_start_restarts_at_that_offset(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.set_high_watermark(Offset(20))
    log.increment_log_start(Offset(12))
    log.delete_old_segments(START_MS)
    assert log.segments[0].base_offset == 10
    log.truncate_to(Offset(11))
    assert (log.log_start_offset, log.log_end_offset) == (11, 11)
    assert log.truncate_to(Offset(3))
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (3, 3, 3)
    assert log.epochs.entries == []
    assert append(log, b"x").first_offset == 3


def test_a_full_truncation_removes_records_epochs_and_producers(tmp_path: Path) -> None:
    folder, log = filled(tmp_path)
    log.truncate_fully_and_start_at(Offset(100))
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (100, 100, 100)
    assert len(log.producers) == 0
    assert append(log, b"x", epoch=3).first_offset == 100
    log.close()
    again = folder.open()
    assert (again.log_start_offset, again.log_end_offset) == (100, 101)
    assert again.epochs.entries == [(3, 100)]


def test_a_full_truncation_may_keep_a_log_start_in_the_tier(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.truncate_fully_and_start_at(Offset(100), log_start=Offset(10))
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (10, 100, 100)


def test_a_truncation_below_the_recovery_point_lowers_it_and_calls_the_listener(tmp_path: Path) -> None:
    folder, log = filled(tmp_path)
    notified = []
    folder.context.truncated = lambda: notified.append(log.recovery_point)
    log.flush()
    log.truncate_to(Offset(8))
    assert notified == [8]
    append(log, b"x")
    log.truncate_to(Offset(8))
    assert notified == [8]


def test_a_full_truncation_below_the_recovery_point_lowers_it_and_calls_the_listener(tmp_path: Path) -> None:
    folder, log = filled(tmp_path)
    notified = []
    folder.context.truncated = lambda: notified.append(log.recovery_point)
    log.flush()
    log.truncate_fully_and_start_at(Offset(3))
    assert (log.recovery_point, notified) == (3, [3])


def snapshots(log: UnifiedLog) -> list[str]:
    return sorted(path.name for path in Path(log.folder).glob("*.snapshot"))


def test_a_truncation_removes_producer_snapshots_above_the_log_end(tmp_path: Path) -> None:
    """Such a snapshot would be taken for one of the records that get these offsets later."""
    _, log = filled(tmp_path)
    for offset in (18, 13):
        log.truncate_to(Offset(offset))
        assert snapshots(log)[-1] == f"{offset:020d}.snapshot"
    log.truncate_fully_and_start_at(Offset(3))
    assert snapshots(log) == []
    append(log, b"x", producer=(6, 0, 0))
    log.roll()
    assert snapshots(log) == [f"{4:020d}.snapshot"], "those of the log before do not keep it from being written"


def test_the_snapshot_of_a_truncation_is_synced_before_the_recovery_point_passes_it(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.flush()
    log.truncate_to(Offset(13))
    append(log, b"x")
    plan = log.plan_flush()
    assert plan is not None
    assert f"{log.folder}/{13:020d}.snapshot" in plan.pending.files


def test_a_log_without_records_has_no_producer_snapshot_at_its_start(tmp_path: Path) -> None:
    """As in Kafka, the producer state is removed together with the records."""
    folder = LogFolder(tmp_path)
    log = folder.open()
    append(log, b"x", producer=(5, 0, 0))
    log.set_high_watermark(Offset(1))
    assert log.increment_log_start(Offset(1))
    log.close()
    assert snapshots(log) == []


@pytest.mark.parametrize("flushed", [False, True])
def test_the_recovery_point_is_never_below_the_log_start(tmp_path: Path, flushed: bool) -> None:
    """Records below the log start need no sync, and a higher recovery point does not change."""
    _, log = filled(tmp_path)
    log.set_high_watermark(Offset(20))
    if flushed:
        log.flush()
    log.increment_log_start(Offset(12))
    assert log.recovery_point == (20 if flushed else 12)


def test_the_listener_is_called_once_for_a_raised_log_start(tmp_path: Path) -> None:
    folder, log = filled(tmp_path)
    notified = []
    folder.context.start_moved = lambda moved: notified.append((moved.topic, log.log_start_offset))
    log.set_high_watermark(Offset(20))
    assert [log.increment_log_start(Offset(offset)) for offset in (12, 12)] == [True, False]
    assert notified == [("topic", 12)]


def test_a_flush_that_was_planned_before_a_truncation_does_not_count(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    plan = log.plan_flush()
    assert plan is not None
    log.truncate_to(Offset(8))
    for number in range(8, 20):
        append(log, producer=(5, 0, number))
    plan.run()
    log.flushed(plan)
    assert log.recovery_point <= 8


def test_a_truncation_also_removes_transactions(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"open", producer=(9, 0, 0), transactional=True)
    append(log, b"plain")
    log.append_as_leader(marker((9, 0), commit=False), leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)
    log.set_high_watermark(Offset(3))
    assert log.last_stable_offset == 3
    log.truncate_to(Offset(2))
    assert log.aborted_transactions(Offset(0), Offset(2)) == []
    assert log.last_stable_offset == 0
    log.truncate_to(Offset(0))
    assert log.producers.first_unstable is None


def epochs_on_disk(log: UnifiedLog) -> list[EpochEntry]:
    return decode_epochs(Path(f"{log.folder}/{EPOCHS}").read_bytes())


@pytest.mark.parametrize("offset", [7, 15])
def test_a_truncation_removes_leader_epochs_also_on_disk(tmp_path: Path, offset: int) -> None:
    """Epochs that are still in the file would be loaded at the next start."""
    _, log = filled(tmp_path)
    log.truncate_to(Offset(offset))
    assert epochs_on_disk(log) == log.epochs.entries
    assert log.epochs.latest == (offset - 1) // 7


def test_raising_the_log_start_removes_earlier_leader_epochs_also_on_disk(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.set_high_watermark(Offset(20))
    log.increment_log_start(Offset(9))
    assert epochs_on_disk(log) == log.epochs.entries == [(1, 9), (2, 14)]


def test_a_full_truncation_sets_the_high_watermark_and_removes_epochs_also_on_disk(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.set_high_watermark(Offset(20))
    log.truncate_fully_and_start_at(Offset(30))
    assert (log.high_watermark, epochs_on_disk(log)) == (30, [])


def damage(log: UnifiedLog, segment: int, batch: int) -> None:
    """Overwrite the length of a batch with zero."""
    file = Path(log.segments[segment].path(LOG))
    data = bytearray(file.read_bytes())
    position = len(data) // 5 * batch
    data[position + 8 : position + 12] = bytes(4)
    file.write_bytes(data)


def test_a_log_is_unchanged_if_the_new_log_end_cannot_be_found(tmp_path: Path) -> None:
    _, log = filled(tmp_path)
    log.close()
    damage(log, 1, 4)
    before = (log.log_end_offset, log.recovery_point, list(log.epochs.entries), log.truncations)
    for segment in log.segments:
        segment._recent = None
    with pytest.raises(KafkaError) as error:
        log.truncate_to(Offset(9))
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.recovery_point, log.epochs.entries, log.truncations) == before
    assert [segment.base_offset for segment in log.segments] == [0, 5, 10, 15]
    assert values_of(log, 10) == VALUES[10:]


def test_a_log_is_offline_if_the_records_below_a_truncation_are_damaged(tmp_path: Path) -> None:
    """Its producer state cannot be rebuilt, so the log refuses all requests until it is recovered at the next start."""
    folder, log = filled(tmp_path)
    log.flush()
    log.producer_files.remove_all(log.folder)
    damage(log, 0, 1)
    ended: list[object] = []
    log.context.ended = lambda one, _: ended.append(one)
    with pytest.raises(KafkaError, match="the producers before 13 cannot be read") as error:
        log.truncate_to(Offset(13))
    assert error.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert ended == [log]
    assert log.log_end_offset == 13
    (line,) = folder.events.named("log offline, files damaged")
    assert line["log_end"] == 13
    with pytest.raises(KafkaError, match="is offline"):
        append(log, b"x")
    assert values_of(folder.open(clean=False, recovery_point=0)) == VALUES[:1]
