"""How many committed records a disk still has."""

from __future__ import annotations

import pytest

from milena.lab.invariants.ledger import Ledger
from milena.lab.invariants.log_cursor import batches_in
from milena.lab.invariants.remains import remains
from milena.lab.world.disk import Storage
from milena.lab.world.power import Inode
from milena.protocol.records.batch import BatchView
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.randomness import Randomness

FOLDER = "/data/t-0"
COMMITTED = 6
"""The number of committed records; each batch has two."""


def batch(base: int, *, epoch: int = 0) -> bytes:
    builder = BatchBuilder()
    for number in range(2):
        builder.append(timestamp=1, key=None, value=b"%d" % (base + number), headers=())
    view = BatchView(memoryview(bytearray(builder.build())))
    view.assign(Offset(base), LeaderEpoch(epoch))
    return bytes(view.memory)


BATCHES = [batch(base) for base in range(0, COMMITTED, 2)]
SIZE = len(BATCHES[0])


def disk(*segments: tuple[int, bytes], folder: str = FOLDER) -> Storage:
    storage = Storage(Randomness(1))
    storage.folders[folder] = None
    for base, data in segments:
        inode = storage.files[f"{folder}/{base:020d}.log"] = Inode(0)
        inode.data += data
        storage.files[f"{folder}/{base:020d}.index"] = Inode(0)
    return storage


def ledger() -> Ledger:
    found = Ledger("t-0")
    found.take("the leader", batches_in(b"".join(BATCHES)), 2)
    return found


ALL = b"".join(BATCHES)


@pytest.mark.parametrize(
    ("segments", "kept"),
    [
        ([(0, ALL)], 6),
        ([(0, ALL + batch(6, epoch=1))], 6),
        ([(0, BATCHES[0]), (2, BATCHES[1]), (4, BATCHES[2])], 6),
        ([(2, BATCHES[1] + BATCHES[2])], 6),
        ([(0, ALL[:-1])], 4),
        ([(0, ALL[: 2 * SIZE - 3] + bytes(3) + BATCHES[2])], 2),
        ([(0, BATCHES[0] + bytes(2 * SIZE))], 2),
        ([(0, BATCHES[0] + batch(2, epoch=1) + BATCHES[2])], 2),
        ([(0, BATCHES[0]), (4, BATCHES[2])], 2),
        ([(0, bytes(3 * SIZE))], 0),
        ([(0, b"")], 0),
        ([(6, b"")], 6),
        ([], 0),
    ],
)
def test_records_count_up_to_the_first_batch_that_is_missing_torn_or_different(
    segments: list[tuple[int, bytes]], kept: int
) -> None:
    assert remains(disk(*segments), "t-0", ledger()) == kept


def test_a_log_in_two_folders_or_in_none_counts_as_empty() -> None:
    storage = disk((0, ALL))
    assert remains(storage, "t-1", ledger()) == 0
    storage.folders["/other/t-0"] = None
    assert remains(storage, "t-0", ledger()) == 0


def test_a_ledger_keeps_the_records_that_a_fault_has_left() -> None:
    found = ledger()
    found.void(3, 4)
    assert (found.end, found.floor) == (4, 3)
    found.take("broker 2", batches_in(batch(4, epoch=3)), 3)
    assert (found.end, found.last_epoch) == (6, 3)
    found.void(4)
    assert (found.end, found.floor) == (0, 4)
