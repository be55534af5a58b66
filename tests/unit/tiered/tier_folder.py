"""A tier in a folder with segments whose contents follow from their numbers, and a look at what is whole."""

from __future__ import annotations

from milena.runtime.disk import Disk
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import IndexType, SegmentFiles
from tests.unit.tiered.segments import segment

FOLDER = "/shared/tier"
COPYING = f"{FOLDER}/milena-copying"
LARGE = 50_000


def numbered(number: int) -> RemoteLogSegmentMetadata:
    """A segment of 50,000 bytes."""
    return segment(number, number * 500, number * 500 + 499, {0: 0}, txn_index_empty=number % 2 == 0)


def contents(number: int) -> dict[str, bytes]:
    found = {index.value: b"%s of %d" % (index.name.encode(), number) for index in IndexType}
    if number % 2 == 0:
        del found[IndexType.TRANSACTION.value]
    return found | {".log": bytes([number % 256]) * LARGE}


def files(disk: Disk, number: int) -> SegmentFiles:
    """The segment's files on the broker's own disk."""
    disk.make_folders("/data")
    for suffix, data in contents(number).items():
        disk.write_atomic(f"/data/{number}{suffix}", data)
    path = f"/data/{number}"
    txn = None if number % 2 == 0 else f"{path}.txnindex"
    return SegmentFiles(
        f"{path}.log",
        f"{path}.index",
        f"{path}.timeindex",
        txn,
        f"{path}.snapshot",
        contents(number)[".leader_epoch_checkpoint"],
    )


async def complete(tier: LocalTier) -> list[int]:
    """Numbers of the complete segments. Each is whole, and where there is a log there is all else."""
    stored = await tier.segments()
    for one in stored:
        assert ".log" not in one.objects or one.objects.keys() == contents(one.segment_id.id.int).keys(), one
    found = [one.segment_id.id.int for one in stored if one.complete]
    for number in found:
        expected = contents(number)
        assert await (await tier.fetch(numbered(number), 0)).read() == expected[".log"]
        for index in IndexType:
            if index.value in expected:
                assert await tier.fetch_index(numbered(number), index) == expected[index.value]
    return found


def everything(disk: Disk, folder: str = FOLDER) -> list[str]:
    found = []
    for name in disk.list(folder):
        try:
            found += everything(disk, f"{folder}/{name}")
        except FileNotFoundError:
            found.append(f"{folder}/{name}")
    return found
