"""The tier in a folder, written and read by Milena and by Kafka's LocalTieredStorage, and files of the index cache."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any, TypeVar

import pytest

from milena.protocol.uuids import to_text
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.index_cache import RemoteIndexCache
from milena.tiered.store.local_tier import LocalTier
from milena.tiered.store.remote_storage import IndexType, SegmentFiles
from tests.contract.tiers import CONTENTS, LOG, PARTITION, segment
from tests.oracle.kafka import java

T = TypeVar("T")

PROGRAM = Path(__file__).with_name("TierOracle.java")
OFFSETS = b"".join(pack(">ii", number * 7 + 6, number * 500) for number in range(1, 12))
TIMES = b"".join(pack(">qi", 1_000_000 + number * 1000, number * 7 + 6) for number in range(1, 12))
ABORTED = pack(">hqqqq", 0, 5, 1001, 1003, 1004)
INDEXED = {**CONTENTS, ".index": OFFSETS, ".timeindex": TIMES, ".txnindex": ABORTED}


def kafka(command: str, folder: Path, found: RemoteLogSegmentMetadata, *more: object) -> list[str]:
    """Run TierOracle.java and return its output."""
    partition = found.partition
    ids = (partition.topic, partition.partition, to_text(partition.topic_id), to_text(found.id))
    arguments = (command, folder, *ids, found.start_offset, found.end_offset, found.size, *more)
    called = java(str(PROGRAM), *map(str, arguments))
    done = subprocess.run(called, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def milena(body: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    async def run() -> T:
        def fatal(description: str, error: BaseException | None) -> None:
            raise AssertionError(description) from error

        runtime = real_runtime(fatal)
        try:
            return await body(runtime)
        finally:
            for disk in (runtime.disk, runtime.tier_disk):
                assert isinstance(disk, RealDisk)
                disk.close()

    return asyncio.run(run())


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Write the files of a segment as in a broker's log directory."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for suffix, data in INDEXED.items():
        (folder / f"s{suffix}").write_bytes(data)
    return folder


def files(folder: Path, *, txn: bool = True) -> SegmentFiles:
    path = str(folder / "s")
    return SegmentFiles(
        f"{path}.log",
        f"{path}.index",
        f"{path}.timeindex",
        f"{path}.txnindex" if txn else None,
        f"{path}.snapshot",
        INDEXED[".leader_epoch_checkpoint"],
    )


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def copy(runtime: Runtime, folder: Path, sources: Path, *numbers: int, txn: bool = True) -> None:
    tier = LocalTier(runtime, str(folder), "1")
    await tier.start()
    for number in numbers:
        await tier.copy(segment(number), files(sources, txn=txn))


@pytest.mark.parametrize("txn", [True, False], ids=["with aborted transactions", "without"])
def test_kafka_and_milena_write_the_same_files(tmp_path: Path, sources: Path, txn: bool) -> None:
    if not txn:
        (sources / "s.txnindex").unlink()
    # The second id begins with "-_" as text.
    numbers = (7, 0xFBFF << 112 | 4)
    for number in numbers:
        assert kafka("copy", tmp_path / "theirs", segment(number), sources) == ["Optional.empty"]
    milena(lambda runtime: copy(runtime, tmp_path / "ours", sources, *numbers, txn=txn))
    ours = tree(tmp_path / "ours")
    assert ours == tree(tmp_path / "theirs")
    assert len(ours) == 2 * (5 + txn)


def test_kafka_reads_and_lists_milenas_segments_also_during_another_copy(tmp_path: Path, sources: Path) -> None:
    milena(lambda runtime: copy(runtime, tmp_path / "tier", sources, 7))
    milena(lambda runtime: copy(runtime, tmp_path / "tier", sources, 8, txn=False))
    under_way = tmp_path / "tier" / "milena-copying" / "1" / "AAAAAAAAAAAAAAAAAAAACQ.1"
    under_way.mkdir(parents=True)
    (under_way / "log").write_bytes(b"half")
    objects = [LOG, *(INDEXED[index.value] for index in IndexType)]
    assert kafka("read", tmp_path / "tier", segment(7)) == [data.hex() for data in objects]
    without_txn = ["missing" if data == ABORTED else data.hex() for data in objects]
    assert kafka("read", tmp_path / "tier", segment(8)) == without_txn
    listed = kafka("list", tmp_path / "tier", segment(7))
    assert (listed[0], sorted(listed[1:])) == (
        "AAAAAAAAAAEAAAAAAAAAAg:top-ic-3",
        ["AAAAAAAAAAAAAAAAAAAABw", "AAAAAAAAAAAAAAAAAAAACA"],
    )
    kafka("delete", tmp_path / "tier", segment(7))

    async def left(runtime: Runtime) -> list[int]:
        return [found.segment_id.id.int for found in await LocalTier(runtime, str(tmp_path / "tier"), "1").segments()]

    assert milena(left) == [8]


def test_kafka_reads_and_deletes_segments_beside_milenas_files_of_compaction(tmp_path: Path, sources: Path) -> None:
    async def described(runtime: Runtime) -> None:
        tier = LocalTier(runtime, str(tmp_path / "tier"), "1")
        await tier.start()
        for number in (7, 8):
            await tier.copy(segment(number), replace(files(sources), description=b"ours"))

    milena(described)
    objects = [LOG, *(INDEXED[index.value] for index in IndexType)]
    assert kafka("read", tmp_path / "tier", segment(7)) == [data.hex() for data in objects]
    listed = kafka("list", tmp_path / "tier", segment(7))
    assert sorted(listed[1:]) == ["AAAAAAAAAAAAAAAAAAAABw", "AAAAAAAAAAAAAAAAAAAACA"]
    kafka("delete", tmp_path / "tier", segment(7))
    left = {path.split("/")[0] for path in tree(tmp_path / "tier") if "AAABw" in path}
    assert left == {"milena-segments"}, "it knows nothing of that; the leader's sweep removes it"


def test_milena_reads_lists_and_deletes_kafkas_segments(tmp_path: Path, sources: Path) -> None:
    kafka("copy", tmp_path / "tier", segment(7), sources)

    async def body(runtime: Runtime) -> None:
        tier = LocalTier(runtime, str(tmp_path / "tier"), "1")
        assert await (await tier.fetch(segment(7), 0)).read() == LOG
        for index in IndexType:
            assert await tier.fetch_index(segment(7), index) == INDEXED[index.value]
        (found,) = await tier.segments()
        assert (found.segment_id.partition, found.segment_id, found.complete) == (
            PARTITION,
            segment(7).segment_id,
            True,
        )
        await tier.delete(segment(7))

    milena(body)
    assert tree(tmp_path / "tier") == {}
    assert kafka("list", tmp_path / "tier", segment(7)) == []  # the folder is deleted with its last segment


def test_both_index_caches_hold_the_same_files_and_find_the_same_positions(tmp_path: Path, sources: Path) -> None:
    milena(lambda runtime: copy(runtime, tmp_path / "tier", sources, 7))

    async def ours(runtime: Runtime) -> tuple[list[int], int]:
        tier = LocalTier(runtime, str(tmp_path / "tier"), "1")
        folder = str(tmp_path / "ours" / "remote-log-index-cache")
        cache = RemoteIndexCache(runtime, tier, folder, capacity=1 << 30, ttl_ms=None)
        await cache.start()
        found = await cache.get(segment(7))
        result = [found.offsets.lookup(offset) for offset in range(1000, 1100)], len(found.aborted)
        await cache.close()
        return result

    positions, aborted = milena(ours)
    (tmp_path / "theirs").mkdir()
    theirs = kafka("indexes", tmp_path / "tier", segment(7), tmp_path / "theirs")
    assert theirs[:2] == [" ".join(map(str, positions)) + " ", str(aborted)]
    assert sorted(tree(tmp_path / "ours")) == [f"remote-log-index-cache/{name}" for name in theirs[2:]]
    assert tree(tmp_path / "ours") == tree(tmp_path / "theirs")
