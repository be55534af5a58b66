"""Recovery of a log after a kill or with damaged files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.segment import MAX_RELATIVE_OFFSET
from tests.unit.storage.logs import LogFolder, append, batch_of, marker, values_of

VALUES = [b"%03d" % number * 20 for number in range(20)]


def written(path: Path, **config: int) -> LogFolder:
    """A log of twenty batches in several segments, as after a kill: indexes and leader epochs are not written."""
    folder = LogFolder(path, segment_bytes=700, index_interval_bytes=150, **config)
    log = folder.open()
    for number, value in enumerate(VALUES):
        append(log, value, epoch=number // 7, producer=(5, 0, number), timestamp=1000 + number)
    return folder


def file_of(folder: LogFolder, suffix: str, index: int = -1) -> Path:
    return sorted(Path(folder.path).glob(f"*{suffix}"))[index]


def change(path: Path, how: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    how(data)
    path.write_bytes(data)


def test_all_appended_records_are_there_after_a_kill(tmp_path: Path) -> None:
    folder = written(tmp_path)
    log = folder.open(clean=False)
    assert values_of(log) == VALUES
    assert log.epochs.entries == [(0, 0), (1, 7), (2, 14)]
    entry = log.producers.get(5)
    assert entry is not None
    assert (entry.last_sequence, entry.last_offset) == (19, 19)
    assert folder.events.named("log truncated in recovery") == []
    append(log, b"next", producer=(5, 0, 20))


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (lambda data: data.extend(bytes(200)), 20),
        (lambda data: data.extend(b"\x7f" * 30), 20),
        (lambda data: data.__delitem__(slice(-1, None)), 19),
        (lambda data: data.__delitem__(slice(-100, None)), 19),
        (lambda data: data.__setitem__(-1, data[-1] ^ 1), 19),
    ],
    ids=["zero-filled tail", "garbage at the end", "last byte torn", "last batch torn", "last batch damaged"],
)
def test_a_damaged_end_is_truncated_to_whole_batches(
    tmp_path: Path, damage: Callable[[bytearray], object], left: int
) -> None:
    folder = written(tmp_path)
    size = file_of(folder, ".log").stat().st_size
    change(file_of(folder, ".log"), damage)
    log = folder.open(clean=False)
    assert values_of(log) == VALUES[:left]
    (cut,) = folder.events.named("log truncated in recovery")
    assert (cut["topic"], cut["partition"], cut["next_offset"]) == ("topic", 0, left)
    assert cut["bytes_truncated"] != 0
    assert (file_of(folder, ".log").stat().st_size == size) == (left == 20)
    assert append(log, b"next").first_offset == left
    assert values_of(folder.open(clean=False)) == [*VALUES[:left], b"next"]


def test_a_log_damaged_in_the_middle_is_truncated_there(tmp_path: Path) -> None:
    folder = written(tmp_path)
    segments = len(list(Path(folder.path).glob("*.log")))
    change(file_of(folder, ".log", 1), lambda data: data.__setitem__(450, data[450] ^ 0xFF))
    log = folder.open(clean=False)
    (cut,) = folder.events.named("log truncated in recovery")
    assert cut["segments_dropped"] == segments - 2
    assert values_of(log) == VALUES[: log.log_end_offset]
    assert 0 < log.log_end_offset < 10
    assert log.epochs.entries == [entry for entry in [(0, 0), (1, 7), (2, 14)] if entry[1] < log.log_end_offset]
    folder.context.deletions.take_due(1 << 62)


def test_batches_below_the_recovery_point_are_not_read(tmp_path: Path) -> None:
    folder = written(tmp_path)
    change(file_of(folder, ".log", 1), lambda data: data.__setitem__(450, data[450] ^ 0xFF))
    log = folder.open(clean=False, recovery_point=15)
    assert log.log_end_offset == 20
    assert folder.events.named("log truncated in recovery") == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"\xff" * 24),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
    ],
    ids=["missing", "nonsense", "odd length"],
)
def test_missing_and_damaged_indexes_are_rebuilt(
    tmp_path: Path, suffix: str, damage: Callable[[Path], object], clean: bool
) -> None:
    folder = written(tmp_path)
    folder.open(clean=False).close()
    before = file_of(folder, suffix, 1).read_bytes()
    damage(file_of(folder, suffix, 1))
    log = folder.open(clean=clean, recovery_point=19)
    assert file_of(folder, suffix, 1).read_bytes() == before
    assert values_of(log) == VALUES
    assert len(folder.events.named("index rebuilt")) == 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"0\n3\n0 0\n1 7\n", b"0\n2\n0 0\n1 1", b"garbage", bytes(30)])
def test_a_missing_or_damaged_leader_epoch_checkpoint_is_rebuilt(
    tmp_path: Path, content: bytes | None, clean: bool
) -> None:
    folder = written(tmp_path)
    log = folder.open(clean=False)
    log.close()
    path = Path(folder.path, "leader-epoch-checkpoint")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    again = folder.open(clean=clean, recovery_point=20)
    assert again.epochs.entries == [(0, 0), (1, 7), (2, 14)]
    assert path.read_bytes() == b"0\n3\n0 0\n1 7\n2 14\n"


def test_leader_epochs_that_an_outdated_checkpoint_lacks_are_added(tmp_path: Path) -> None:
    folder = written(tmp_path)
    folder.open(clean=False).close()
    path = Path(folder.path, "leader-epoch-checkpoint")
    path.write_bytes(b"0\n2\n0 0\n1 7\n")
    assert folder.open(clean=False).epochs.entries == [(0, 0), (1, 7), (2, 14)]
    assert path.read_bytes() == b"0\n3\n0 0\n1 7\n2 14\n"


@pytest.mark.parametrize("clean", [True, False])
def test_the_leader_of_an_empty_log_begins_its_epoch_again_without_writing_the_same_checkpoint(
    tmp_path: Path, clean: bool
) -> None:
    folder = LogFolder(tmp_path)
    folder.open().assign_epoch(LeaderEpoch(3), Offset(0))
    path = Path(folder.path, "leader-epoch-checkpoint")
    before = path.stat()
    log = folder.open(clean=clean)
    assert log.epochs.entries == [], "no record has the epoch"
    log.assign_epoch(LeaderEpoch(3), Offset(0))
    assert (path.stat().st_ino, log.epochs.dirty) == (before.st_ino, False)
    log.assign_epoch(LeaderEpoch(4), Offset(0))
    assert path.read_bytes() == b"0\n1\n4 0\n"
    log.assign_epoch(LeaderEpoch(3), Offset(0))
    assert path.read_bytes() == b"0\n1\n3 0\n", "the file has changed since the log was opened"


@pytest.mark.parametrize("clean", [True, False])
def test_producers_are_recovered_from_an_older_snapshot_if_the_last_is_damaged(tmp_path: Path, clean: bool) -> None:
    folder = written(tmp_path)
    folder.open(clean=False).close()
    change(file_of(folder, ".snapshot"), lambda data: data.__setitem__(12, data[12] ^ 1))
    log = folder.open(clean=clean, recovery_point=20)
    entry = log.producers.get(5)
    assert entry is not None
    assert entry.last_sequence == 19
    assert append(log, b"next", producer=(5, 0, 20)).first_offset == 20


def test_a_log_found_damaged_below_its_recovery_point_is_recovered_completely(tmp_path: Path) -> None:
    folder = written(tmp_path)
    folder.open(clean=False).close()
    for path in Path(folder.path).glob("*.snapshot"):
        path.unlink()
    change(file_of(folder, ".log", 1), lambda data: data.__setitem__(slice(0, 20), bytes(20)))
    log = folder.open(clean=False, recovery_point=20)
    assert values_of(log) == VALUES[: log.log_end_offset]
    assert folder.events.named("log damaged below its recovery point")


@pytest.mark.parametrize("recovery_point", [0, 20])
def test_a_log_whose_first_batch_is_torn_is_empty_after_recovery(tmp_path: Path, recovery_point: int) -> None:
    """An example is a metadata log that begins at a snapshot and was not synced before a power loss."""
    folder = written(tmp_path)
    last = file_of(folder, ".log")
    for path in Path(folder.path).iterdir():
        if path != last:
            path.unlink()
    change(last, lambda data: data.__delitem__(slice(90, None)))
    log = folder.open(clean=False, recovery_point=recovery_point)
    assert log.log_start_offset == log.log_end_offset == int(last.stem) > 0


def test_a_damaged_segment_before_one_without_an_index_ends_the_log(tmp_path: Path) -> None:
    folder = written(tmp_path)
    folder.open(clean=False).close()
    for path in (*Path(folder.path).glob("*.snapshot"), file_of(folder, ".index", 2)):
        path.unlink()
    change(file_of(folder, ".log", 1), lambda data: data.__setitem__(slice(0, 20), bytes(20)))
    log = folder.open(clean=False, recovery_point=20)
    assert values_of(log) == VALUES[: log.log_end_offset]
    assert 0 < log.log_end_offset < 10
    assert folder.events.named("log damaged below its recovery point")


def test_index_files_are_created_with_the_first_record(tmp_path: Path) -> None:
    """Kafka's tools need the files. The content of leftover files is discarded."""
    folder = LogFolder(tmp_path)
    log = folder.open()
    indexes = [Path(folder.path, f"{0:020d}{suffix}") for suffix in (".index", ".timeindex")]
    assert not any(path.exists() for path in indexes)
    for path in indexes:
        path.write_bytes(b"left over")
    append(log)
    assert [path.read_bytes() for path in indexes] == [b"", b""]
    folder.open(clean=False)
    assert [path.read_bytes() for path in indexes] == [b"", b""]


def test_leftover_files_are_removed(tmp_path: Path) -> None:
    folder = written(tmp_path)
    for name in ("00000000000000000003.log.deleted", "00000000000000000099.index", "x.tmp"):
        Path(folder.path, name).write_bytes(b"")
    folder.open(clean=False)
    assert not [name for name in folder.names() if name.endswith((".deleted", ".tmp")) or "99" in name]


def test_a_log_that_ends_below_its_log_start_restarts_there(tmp_path: Path) -> None:
    folder = written(tmp_path)
    log = folder.open(clean=True, log_start=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert append(log, b"x").first_offset == 500
    assert values_of(folder.open(clean=True, log_start=500), 500) == [b"x"]


def test_the_transaction_index_is_rebuilt(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path, segment_bytes=400)
    log = folder.open()
    for value in (b"a", b"b", b"c"):
        append(log, value * 30, producer=(9, 0, "abc".index(value.decode())), transactional=True)
    log.append_as_leader(marker((9, 0), commit=False), leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)
    before = log.aborted_transactions(Offset(0), Offset(4))
    assert [(entry.first_offset, entry.last_offset) for entry in before] == [(0, 3)]
    for path in Path(folder.path).glob("*.txnindex"):
        path.unlink()
    again = folder.open(clean=False)
    assert again.aborted_transactions(Offset(0), Offset(4)) == before
    again.set_high_watermark(Offset(4))
    assert again.last_stable_offset == 4


def test_an_open_transaction_limits_the_last_stable_offset_after_a_kill(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    log = folder.open()
    append(log, b"plain")
    append(log, b"open", producer=(9, 0, 0), transactional=True)
    append(log, b"plain")
    for clean in (False, True):
        log = folder.open(clean=clean)
        log.set_high_watermark(Offset(3))
        assert log.last_stable_offset == 1
        log.close()


def test_recovery_rebuilds_the_same_indexes(tmp_path: Path) -> None:
    """Only closed segments are compared; the index of the active segment is in memory until the log is closed."""
    folder = written(tmp_path)
    paths = [path for suffix in (".index", ".timeindex") for path in sorted(Path(folder.path).glob(f"*{suffix}"))[:-1]]
    before = [path.read_bytes() for path in paths]
    assert all(before)
    folder.open(clean=False)
    assert [path.read_bytes() for path in paths] == before


def test_recovery_writes_a_producer_snapshot_for_each_segment(tmp_path: Path) -> None:
    folder = written(tmp_path)
    for path in Path(folder.path).glob("*.snapshot"):
        path.unlink()
    log = folder.open(clean=False)
    bases = [segment.base_offset for segment in log.segments]
    assert [int(path.stem) for path in sorted(Path(folder.path).glob("*.snapshot"))][: len(bases) - 1] == bases[1:]


def test_recovery_removes_producer_snapshots_above_the_new_log_end(tmp_path: Path) -> None:
    folder = written(tmp_path)
    log = folder.open(clean=False)
    log.truncate_to(Offset(19))
    assert log.producer_files.offsets[-1] == 19
    change(file_of(folder, ".log", 1), lambda data: data.__setitem__(450, data[450] ^ 0xFF))
    again = folder.open(clean=False)
    assert 0 < again.log_end_offset < 10
    assert [
        int(path.stem) for path in Path(folder.path).glob("*.snapshot") if int(path.stem) > again.log_end_offset
    ] == []


def test_producer_snapshots_above_the_recovery_point_are_ignored(tmp_path: Path) -> None:
    """A power loss may restore a snapshot of records that were truncated and replaced."""
    other = LogFolder(tmp_path / "other").open()
    append(other, b"x", producer=(6, 0, 0))
    other.roll()
    folder = written(tmp_path)
    Path(folder.path, f"{18:020d}.snapshot").write_bytes(
        file_of(LogFolder(tmp_path / "other"), ".snapshot").read_bytes()
    )
    log = folder.open(clean=False)
    assert [producer for producer, _ in log.producers] == [5]
    log.truncate_to(Offset(19))
    assert [producer for producer, _ in log.producers] == [5]
    assert append(log, b"next", producer=(5, 0, 19)).first_offset == 19


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_missing_segment_ends_a_log_unless_the_log_is_compacted(tmp_path: Path, policy: str) -> None:
    folder = LogFolder(tmp_path, segment_bytes=650, cleanup_policy=(policy,))
    log = folder.open()
    for number in range(20):
        append(log, b"%02d" % number * 30, keys=(b"k",))
    bases = [segment.base_offset for segment in log.segments]
    Path(log.segments[1].path(".log")).unlink()
    again = folder.open(clean=False)
    left = [segment.base_offset for segment in again.segments]
    if policy == "delete":
        assert (left, again.log_end_offset) == (bases[:1], bases[1])
    else:
        assert (left, again.log_end_offset) == ([bases[0], *bases[2:]], 20)


def test_the_producer_with_id_0_is_recovered(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    append(folder.open(), b"x", producer=(0, 0, 0))
    assert append(folder.open(clean=False), b"x", producer=(0, 0, 0)).duplicate


def test_a_committed_transaction_is_not_taken_for_an_aborted_one(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    log = folder.open()
    append(log, b"kept", producer=(9, 0, 0), transactional=True)
    log.append_as_leader(marker((9, 0), commit=True), leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)
    again = folder.open(clean=False)
    assert again.aborted_transactions(Offset(0), Offset(2)) == []


def test_the_last_offset_that_a_segment_can_hold_is_recovered(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    log = folder.open()
    append(log, b"first")
    last = MAX_RELATIVE_OFFSET
    log.append_as_follower(batch_of(b"last", base_offset=Offset(last), leader_epoch=LeaderEpoch(0)))
    assert len(log.segments) == 1
    again = folder.open(clean=False)
    assert (again.log_end_offset, folder.events.named("log truncated in recovery")) == (last + 1, [])
