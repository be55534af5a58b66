"""A cleaned log keeps the start of each leader epoch, by an empty batch if the first records are removed."""

from __future__ import annotations

from pathlib import Path

from milena.protocol.types import LeaderEpoch
from milena.storage.files.names import EPOCHS
from tests.unit.storage.cleaning.cleaned_logs import KeyedLog


def in_epochs(path: Path, *epochs: int, batches: int = 3) -> KeyedLog:
    """A log in which each epoch has written the same key, followed by segments of the last epoch."""
    keyed = KeyedLog.at(path)
    for epoch in epochs:
        for _ in range(batches):
            keyed.write((b"key", b"%d" % epoch), epoch=epoch, producer=(epoch, 0, 0) if batches == 1 else None)
    for number in range(20):
        keyed.write((b"key", b"%d" % number * 30), epoch=epochs[-1])
    return keyed


def rebuilt_epochs(keyed: KeyedLog) -> list[tuple[int, int]]:
    """The leader epochs after a restart without the checkpoint."""
    keyed.log.close()
    Path(keyed.folder.path, EPOCHS).unlink()
    keyed.log = keyed.folder.open()
    return [(entry.epoch, entry.start) for entry in keyed.log.epochs.entries]


def test_an_empty_batch_replaces_the_first_batch_of_an_epoch(tmp_path: Path) -> None:
    keyed = in_epochs(tmp_path, 0, 4, 5, 9)
    expected = [(entry.epoch, entry.start) for entry in keyed.log.epochs.entries]
    keyed.clean()
    marks = [batch for batch in keyed.batches() if not batch.count]
    assert [(one.leader_epoch, one.base_offset, one.last_offset) for one in marks] == [
        (0, 0, 0),
        (4, 3, 3),
        (5, 6, 6),
        (9, 9, 9),
    ]
    assert rebuilt_epochs(keyed) == expected


def test_a_follower_that_copies_a_cleaned_log_has_the_start_of_each_epoch(tmp_path: Path) -> None:
    """If the last epoch began at its first remaining record, a replica with diverging records of the epoch before would
    keep them up to that offset."""
    keyed = in_epochs(tmp_path / "leader", 0, 4)
    keyed.clean()
    follower = KeyedLog.at(tmp_path / "follower").log
    end = keyed.log.log_end_offset
    while follower.log_end_offset < end:
        data = keyed.log.read_bytes(follower.log_end_offset, 300, upper=end, min_one=True)
        follower.append_as_follower(memoryview(bytearray(data)))
    assert list(follower.epochs.entries) == list(keyed.log.epochs.entries) == [(0, 0), (4, 3)]
    assert follower.leader_epoch_end_offset(LeaderEpoch(0)) == (0, 3)


def test_later_cleanings_keep_the_empty_batches(tmp_path: Path) -> None:
    keyed = in_epochs(tmp_path, 0, 4, 5)
    keyed.clean()
    before = [batch.memory.tobytes() for batch in keyed.batches() if not batch.count]
    keyed.dirty = None
    keyed.clean()
    assert [batch.memory.tobytes() for batch in keyed.batches() if not batch.count] == before


def test_an_epoch_whose_first_batch_stays_gets_no_empty_batch(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    keyed.write((b"only here", b"1"), (b"key", b"2"), epoch=3)
    for number in range(20):
        keyed.write((b"key", b"%d" % number * 30), epoch=3)
    keyed.clean()
    assert all(batch.count for batch in keyed.batches())


def test_an_empty_batch_has_no_producer_and_opens_no_transaction(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    keyed.write((b"key", b"1"), epoch=1, producer=(7, 0, 0), transactional=True)
    keyed.end((7, 0), commit=False, epoch=2)
    for number in range(20):
        keyed.write((b"key", b"%d" % number * 30), epoch=2, producer=(7, 0, number + 1))
    keyed.clean()
    (mark, *_) = keyed.batches()
    assert (mark.leader_epoch, mark.count, mark.has_producer_id, mark.is_transactional) == (1, 0, False, False)
    keyed.log.close()
    keyed.log = keyed.folder.open(clean=False)
    assert keyed.log.producers.first_unstable is None


def test_an_epoch_of_many_segments_has_one_empty_batch(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    for number in range(40):  # several segments of epoch 0, whose groups have nothing left
        keyed.write((b"key", b"%d" % number * 30), epoch=0)
    for number in range(20):
        keyed.write((b"key", b"%d" % number * 30), epoch=1)
    for _ in range(3):
        keyed.dirty = None
        keyed.clean()
        assert [(one.leader_epoch, one.base_offset) for one in keyed.batches() if not one.count][:2] == [
            (0, 0),
            (1, 40),
        ]
