"""The index cache: what it fetches, keeps, drops, and finds again (docs/kafka-semantics.md: The index cache)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from milena.lab.world.disk import SimulatedDisk
from milena.lab.world.world import Machine, World, simulate
from milena.protocol.uuids import to_text
from milena.runtime.context import Runtime
from milena.storage.files.txn_index import AbortedTxn
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.index_cache import DELETE_DELAY, CorruptRemoteIndex, RemoteIndexCache
from milena.tiered.store.remote_storage import (
    IndexType,
    RemoteRange,
    RemoteResourceNotFound,
    RetriableRemoteStorageError,
    SegmentFiles,
    StoredSegment,
)
from tests.unit.tiered.segments import segment

FOLDER = "/data/remote-log-index-cache"
ABORTED = AbortedTxn(5, 1001, 1003, 1004)  # type: ignore[arg-type]
SET = {
    IndexType.OFFSET: pack(">iiii", 10, 100, 20, 200),
    IndexType.TIMESTAMP: pack(">qiqi", 5_000, 10, 6_000, 20),
    IndexType.TRANSACTION: pack(">hqqqq", 0, *ABORTED),
}
SIZE = sum(map(len, SET.values()))
MINUTE = 60_000


class Store:
    """A remote storage that has indexes only, and counts who asks for them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, IndexType]] = []
        self.objects = dict(SET)
        self.error: Exception | None = None
        self.release: asyncio.Event | None = None

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
        self.asked.append((metadata.id.int, index))
        if self.release is not None:
            await self.release.wait()
        if self.error is not None:
            raise self.error
        if index not in self.objects:
            raise RemoteResourceNotFound(index.value)
        return self.objects[index]

    def fetches(self) -> list[int]:
        """Segments whose offset index was fetched, in order."""
        return [number for number, index in self.asked if index is IndexType.OFFSET]

    async def start(self) -> None: ...

    async def check(self) -> None: ...

    async def own(self, cluster_id: str) -> None: ...
    async def copy(self, metadata: RemoteLogSegmentMetadata, files: SegmentFiles) -> None:
        raise NotImplementedError

    async def fetch(self, metadata: RemoteLogSegmentMetadata, start: int, end: int | None = None) -> RemoteRange:
        raise NotImplementedError

    def expect(self, metadata: RemoteLogSegmentMetadata, start: int = 0) -> None: ...
    async def description(self, segment: object, start_offset: int) -> bytes | None:
        return None

    async def delete(self, metadata: RemoteLogSegmentMetadata) -> None: ...
    async def segments(self, partition: object = None) -> list[StoredSegment]:
        return []

    async def foreign(self) -> list[str]:
        return []

    async def sweep_incomplete(self, partition: object, known: object) -> list[Any]:
        return []

    async def remove_work_orders(self) -> bool:
        return False

    async def close(self) -> None: ...


class Bench:
    """A cache over a store, in a simulated process that can end and start again."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.store = Store()
        self.runtime: Runtime

    async def open(self, *, capacity: int = 1 << 30, ttl_ms: int | None = None) -> RemoteIndexCache:
        self.runtime = self._machine.start()
        self.runtime.disk.make_folders("/data")
        cache = RemoteIndexCache(self.runtime, self.store, FOLDER, capacity=capacity, ttl_ms=ttl_ms)
        await cache.start()
        return cache

    def end(self, *, power_off: bool = False) -> None:
        self._machine.power_off() if power_off else self._machine.kill()

    def files(self) -> list[str]:
        return self.runtime.disk.list(FOLDER)

    def names(self, *numbers: int, suffix: str = "") -> list[str]:
        return sorted(
            f"1000_{to_text(indexed(number).id)}.{kind}{suffix}"
            for number in numbers
            for kind in ("index", "timeindex", "txnindex")
        )


def indexed(number: int, *, txn_index_empty: bool = False) -> RemoteLogSegmentMetadata:
    return segment(number, 1000, 1099, {0: 1000}, txn_index_empty=txn_index_empty)


def in_simulation(body: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        async def run(world: World) -> None:
            machine = world.machine("broker")
            await body(Bench(machine))
            assert not machine.failures, machine.failures

        simulate(run, seed=1)

    test.__name__ = test.__qualname__ = body.__name__
    test.__module__ = body.__module__
    return test


@in_simulation
async def test_indexes_are_fetched_once_and_answer(bench: Bench) -> None:
    cache = await bench.open()
    for _ in range(3):
        found = await cache.get(indexed(1))
        assert [found.offsets.lookup(offset) for offset in (1000, 1009, 1010, 1019, 1099)] == [0, 0, 100, 100, 200]
        assert [found.offsets.first_after_position(at) for at in (0, 100, 101, 201)] == [1010, 1010, 1020, None]
        assert [found.times.lookup(time) for time in (4_999, 5_000, 6_000)] == [1000, 1010, 1020]
        assert found.aborted == [ABORTED]
    assert bench.store.fetches() == [1]
    assert cache.size == SIZE


@in_simulation
async def test_files_have_kafkas_names(bench: Bench) -> None:
    cache = await bench.open()
    await cache.get(indexed(1))
    assert bench.files() == bench.names(1)
    assert bench.runtime.disk.read(f"{FOLDER}/{bench.names(1)[0]}") == SET[IndexType.OFFSET]


@in_simulation
async def test_concurrent_callers_share_a_fetch_and_a_cancelled_one_does_not_end_it(bench: Bench) -> None:
    cache = await bench.open()
    bench.store.release = asyncio.Event()
    loop = asyncio.get_running_loop()
    readers = [loop.create_task(cache.get(indexed(1))) for _ in range(3)]
    await bench.runtime.clock.sleep(0.1)
    readers[0].cancel()
    await asyncio.wait(readers[:1])
    bench.store.release.set()
    assert await readers[1] is await readers[2]
    assert bench.store.fetches() == [1]


@in_simulation
async def test_a_missing_transaction_index_is_an_empty_one(bench: Bench) -> None:
    cache = await bench.open()
    del bench.store.objects[IndexType.TRANSACTION]
    assert (await cache.get(indexed(1))).aborted == []
    assert (await cache.get(indexed(2, txn_index_empty=True))).aborted == []
    assert bench.files() == bench.names(1, 2)
    assert (2, IndexType.TRANSACTION) not in bench.store.asked


@in_simulation
async def test_other_missing_indexes_and_failing_stores_are_errors_and_asked_again(bench: Bench) -> None:
    cache = await bench.open()
    bench.store.error = RetriableRemoteStorageError("away")
    with pytest.raises(RetriableRemoteStorageError, match="away"):
        await cache.get(indexed(1))
    bench.store.error = None
    del bench.store.objects[IndexType.TIMESTAMP]
    with pytest.raises(RemoteResourceNotFound):
        await cache.get(indexed(1))
    bench.store.objects = dict(SET)
    assert (await cache.get(indexed(1))).size == SIZE
    assert bench.files() == bench.names(1)


@in_simulation
async def test_the_sets_least_recently_used_go_when_there_is_too_much(bench: Bench) -> None:
    cache = await bench.open(capacity=3 * SIZE)
    for number in (1, 2, 3, 1, 4):
        await cache.get(indexed(number))
    assert cache.size == 3 * SIZE
    await bench.runtime.clock.sleep(DELETE_DELAY / 2)
    assert bench.files() == sorted(bench.names(1, 3, 4) + bench.names(2, suffix=".deleted"))
    await bench.runtime.clock.sleep(DELETE_DELAY)
    assert bench.files() == bench.names(1, 3, 4)
    cache.resize(SIZE)
    await bench.runtime.clock.sleep(2 * DELETE_DELAY)
    assert bench.files() == bench.names(4)
    await cache.get(indexed(2))
    assert bench.store.fetches() == [1, 2, 3, 4, 2]


@in_simulation
async def test_a_set_that_is_larger_than_the_cache_is_of_use_all_the_same(bench: Bench) -> None:
    cache = await bench.open(capacity=1)
    for number in (1, 2, 1):
        assert (await cache.get(indexed(number))).offsets.lookup(1010) == 100


@in_simulation
async def test_a_set_that_is_evicted_and_fetched_again_at_once_is_whole(bench: Bench) -> None:
    cache = await bench.open()
    for _ in range(30):
        await cache.get(indexed(1))
        cache.remove([indexed(1).id])
    found = await cache.get(indexed(1))
    await bench.runtime.clock.sleep(2 * DELETE_DELAY)
    assert bench.files() == bench.names(1)
    assert found.offsets.lookup(1020) == 200


@in_simulation
async def test_unused_sets_go_after_a_time(bench: Bench) -> None:
    cache = await bench.open(ttl_ms=15 * MINUTE)
    await cache.get(indexed(1))
    await cache.get(indexed(2))
    await bench.runtime.clock.sleep(10 * 60)
    await cache.get(indexed(1))
    await bench.runtime.clock.sleep(10 * 60)
    assert bench.files() == bench.names(1)
    await bench.runtime.clock.sleep(10 * 60)
    assert bench.files() == []
    assert cache.size == 0
    await cache.get(indexed(2))
    assert bench.files() == bench.names(2)


@in_simulation
async def test_a_deleted_segment_leaves_the_cache_also_while_it_is_fetched(bench: Bench) -> None:
    cache = await bench.open()
    await cache.get(indexed(1))
    bench.store.release = asyncio.Event()
    reader = asyncio.get_running_loop().create_task(cache.get(indexed(2)))
    await bench.runtime.clock.sleep(0.1)
    cache.remove([indexed(1).id, indexed(2).id, indexed(3).id])
    with pytest.raises(RemoteResourceNotFound):
        await reader
    bench.store.release.set()
    await bench.runtime.clock.sleep(2 * DELETE_DELAY)
    assert bench.files() == []
    assert cache.size == 0


@in_simulation
async def test_a_restart_finds_whole_sets_and_removes_the_rest(bench: Bench) -> None:
    cache = await bench.open()
    for number in (1, 2, 3):
        await cache.get(indexed(number))
    disk = bench.runtime.disk
    disk.remove(f"{FOLDER}/{bench.names(2)[1]}")
    disk.write_atomic(f"{FOLDER}/{bench.names(9)[0]}.deleted", b"")
    disk.write_atomic(f"{FOLDER}/foreign", b"")
    disk.rename(f"{FOLDER}/foreign", f"{FOLDER}/{bench.names(8)[0]}.tmp")
    disk.write_atomic(f"{FOLDER}/notes", b"not ours")
    bench.end()
    cache = await bench.open()
    assert bench.files() == sorted([*bench.names(1, 3), "notes"])
    assert cache.size == 2 * SIZE
    for number in (1, 3, 2):
        assert (await cache.get(indexed(number))).aborted == [ABORTED]
    assert bench.store.fetches() == [1, 2, 3, 2]
    assert cache.size == 3 * SIZE


@in_simulation
async def test_sets_of_an_earlier_run_count_and_go_first(bench: Bench) -> None:
    cache = await bench.open()
    for number in (1, 2, 3):
        await cache.get(indexed(number))
        await bench.runtime.clock.sleep(1)
    bench.end()
    cache = await bench.open(capacity=2 * SIZE, ttl_ms=15 * MINUTE)
    await bench.runtime.clock.sleep(2 * DELETE_DELAY)
    assert bench.files() == bench.names(2, 3)
    await cache.get(indexed(4))
    await bench.runtime.clock.sleep(2 * DELETE_DELAY)
    assert bench.files() == bench.names(3, 4)
    await bench.runtime.clock.sleep(16 * 60)
    assert bench.files() == []


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a wrong length": lambda data: data[:-1],
    "zeros at the end": lambda data: data[: len(data) // 2] + bytes(len(data) // 2),
    "entries that fall": lambda data: data[len(data) // 2 :] + data[: len(data) // 2],
    "positions out of the log": lambda data: data[:-2] + b"\xff\xff" if len(data) == 16 else data[:-1],
}


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
@pytest.mark.parametrize("index", [IndexType.OFFSET, IndexType.TIMESTAMP], ids=lambda index: index.name)
def test_a_damaged_file_is_fetched_again_and_a_damaged_object_is_an_error(index: IndexType, damage: str) -> None:
    @in_simulation
    async def body(bench: Bench) -> None:
        await (await bench.open()).get(indexed(1))
        path = f"{FOLDER}/1000_{to_text(indexed(1).id)}{index.value}"
        bench.runtime.disk.write_atomic(path, DAMAGE[damage](SET[index]))
        bench.end()
        cache = await bench.open()
        assert (await cache.get(indexed(1))).offsets.lookup(1020) == 200
        assert bench.store.fetches() == [1, 1]
        bench.store.objects[index] = DAMAGE[damage](SET[index])
        with pytest.raises(CorruptRemoteIndex):
            await cache.get(indexed(2))
        assert bench.files() == bench.names(1)
        assert cache.size == SIZE

    body()


@in_simulation
async def test_large_indexes_are_checked_to_the_last_entry(bench: Bench) -> None:
    cache = await bench.open()
    entries = 5000
    whole = {
        IndexType.OFFSET: b"".join(pack(">ii", number, number // 100) for number in range(entries)),
        IndexType.TIMESTAMP: b"".join(pack(">qi", (1 << 32) - 1000 + number, number // 3) for number in range(entries)),
    }
    for number, (index, data) in enumerate(whole.items()):
        entry = len(data) // entries
        for place in (1, 1023, 1024, 4096, 4999):
            cut = place * entry
            damaged = data[:cut] + bytes(entry) + data[cut + entry :]
            bench.store.objects = {**SET, **whole, index: damaged}
            with pytest.raises(CorruptRemoteIndex, match="not in order"):
                await cache.get(indexed(number))
        bench.store.objects = {**SET, **whole}
        found = await cache.get(indexed(number))
        assert (found.offsets.lookup(1000 + 4321), found.times.lookup((1 << 32) + 999)) == (43, 1000 + 1999 // 3)


@pytest.mark.parametrize("seed", range(30))
def test_what_a_power_loss_leaves_answers_as_before_or_is_fetched_again(seed: int) -> None:
    async def run(world: World) -> None:
        bench = Bench(world.machine("broker"))
        cache = await bench.open()
        for number in range(5):
            await cache.get(indexed(number))
        bench.end(power_off=True)
        cache = await bench.open()
        for number in range(5):
            found = await cache.get(indexed(number))
            # An index that lost its end is slower, not wrong.
            assert found.offsets.lookup(1010) in (0, 100)
            assert found.offsets.lookup(1020) in (0, 100, 200)
            assert found.times.lookup(6_000) in (1000, 1010, 1020)
            assert found.aborted == [ABORTED]

    simulate(run, seed=seed)


@in_simulation
async def test_a_full_log_directory_is_reported_and_recovers(bench: Bench) -> None:
    cache = await bench.open()
    disk = bench.runtime.disk
    assert isinstance(disk, SimulatedDisk)
    disk.storage.fail(FOLDER, errno.ENOSPC, operation="append")
    with pytest.raises(RetriableRemoteStorageError, match="No space"):
        await cache.get(indexed(1))
    disk.storage.heal()
    assert (await cache.get(indexed(1))).size == SIZE


@in_simulation
async def test_waiting_reads_fail_after_close(bench: Bench) -> None:
    cache = await bench.open()
    bench.store.release = asyncio.Event()
    reader = asyncio.get_running_loop().create_task(cache.get(indexed(1)))
    await bench.runtime.clock.sleep(0.1)
    await cache.close()
    with pytest.raises(RetriableRemoteStorageError):
        await reader


def test_the_real_disk_serves_as_well(tmp_path: Path) -> None:
    from tests.contract.worlds import Surroundings, on_asyncio

    async def scenario(it: Surroundings) -> None:
        cache = RemoteIndexCache(it.runtime, Store(), str(tmp_path / "c"), capacity=2 * SIZE, ttl_ms=MINUTE)
        await cache.start()
        for number in (1, 2, 3, 1):
            assert (await cache.get(indexed(number))).offsets.lookup(1010) == 100
        await cache.close()

    on_asyncio(scenario, tmp_path)
