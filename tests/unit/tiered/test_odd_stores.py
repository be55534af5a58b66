"""Whatever a store's library does is an error of that call: no broker ends by it, and no reader waits for good."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest

from milena.tiered.reading.reader_pool import ReaderPool
from milena.tiered.store.fsspec_system import FileSystem
from milena.tiered.store.fsspec_tier import FsspecTier
from milena.tiered.store.remote_storage import IndexType, RemoteStorageError, RetriableRemoteStorageError
from tests.contract.tiers import PARTITION, segment
from tests.contract.worlds import Surroundings
from tests.unit.tiered.chunks import Bench as ChunkBench
from tests.unit.tiered.chunks import in_simulation
from tests.unit.tiered.reader_pools import Store, Waiter, with_pool
from tests.unit.tiered.recording_store import Recording, RecordingStore, really, settings, sources
from tests.unit.tiered.tiered_log import Bench, on_bench

RAISED: Final = (
    json.JSONDecodeError("a proxy's page", "<html>", 0),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ImportError("no module named 'half_of_a_library'"),
    KeyError("Contents"),
    StopIteration(),
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    GeneratorExit(),
    SystemExit(3),
    RecursionError("too deep"),
    MemoryError(),
)
ANSWERS: Final[tuple[object, ...]] = (
    None,
    "<html>",
    7,
    [None],
    [{}],
    [{"name": None, "size": "big"}],
    [{"name": "x.log"}],
    object(),
)
CALLS: Final[dict[str, Callable[[FsspecTier, Path], Awaitable[object]]]] = {
    "copy": lambda tier, folder: tier.copy(segment(2), sources(folder)),
    "fetch": lambda tier, folder: fetched(tier),
    "fetch an index": lambda tier, folder: tier.fetch_index(segment(1), IndexType.OFFSET),
    "delete": lambda tier, folder: tier.delete(segment(1)),
    "list": lambda tier, folder: tier.segments(PARTITION),
    "list all": lambda tier, folder: tier.segments(),
    "foreign": lambda tier, folder: tier.foreign(),
    "sweep": lambda tier, folder: tier.sweep_incomplete(PARTITION, ()),
}


async def fetched(tier: FsspecTier) -> bytes:
    return await (await tier.fetch(segment(1), 0, 99)).read()


def odd(kind: type[Recording], answer: Callable[[], object]) -> Recording:
    """A store that works until its ``odd`` is set; then each call ends as ``answer`` does."""

    class Odd(kind):  # type: ignore[misc, valid-type]
        odd = False

        def __getattribute__(self, name: str) -> Any:
            found = super().__getattribute__(name)
            if name in ("odd", "protocol", "calls") or name.startswith("_") or not callable(found) or not self.odd:
                return found
            return lambda *arguments, **options: answer()

    return cast("Recording", Odd())


async def after_a_while(call: Awaitable[object]) -> object:
    async with asyncio.timeout(20):
        return await call


@pytest.mark.parametrize("kind", [Recording, RecordingStore])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("raised", RAISED, ids=lambda raised: type(raised).__name__)
def test_what_a_library_raises_is_an_error_of_the_call(
    tmp_path: Path, kind: type[Recording], call: str, raised: BaseException
) -> None:
    def answer() -> object:
        raise raised

    async def body(it: Surroundings) -> None:
        system = odd(kind, answer)
        tier = FsspecTier(it.runtime, settings("/odd"), "1", system=cast("FileSystem", system))
        await tier.start()
        await tier.copy(segment(1), sources(tmp_path))
        system.odd = True
        with pytest.raises(RetriableRemoteStorageError):
            await after_a_while(CALLS[call](tier, tmp_path))
        await tier.close()

    really(body, tmp_path)


@pytest.mark.parametrize("call", ["fetch", "fetch an index", "list", "list all", "foreign"])
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: repr(answer).partition(" at ")[0])
def test_what_a_library_answers_is_looked_at(tmp_path: Path, call: str, answer: object) -> None:
    async def body(it: Surroundings) -> None:
        system = odd(Recording, lambda: answer)
        tier = FsspecTier(it.runtime, settings("/odd"), "1", system=cast("FileSystem", system))
        await tier.start()
        await tier.copy(segment(1), sources(tmp_path))
        system.odd = True
        try:
            found = await after_a_while(CALLS[call](tier, tmp_path))
        except RemoteStorageError:
            pass
        else:
            assert found == [] or call in ("list all", "foreign"), "names that are none of the tier's are passed over"
        await tier.close()

    really(body, tmp_path)


@in_simulation
async def test_readers_of_a_chunk_whose_call_was_cancelled_hear_of_it(bench: ChunkBench) -> None:
    async def load(path: str, start: int, length: int) -> bytes:
        raise asyncio.CancelledError

    bench.store.load = load  # type: ignore[method-assign]
    cache = bench.cache()
    for _ in range(2):
        with pytest.raises(RetriableRemoteStorageError):
            await after_a_while(cache.read("a", 10_000, 0, 100))
    assert cache.used == 0


def test_readers_whose_read_was_cancelled_by_the_store_hear_of_it() -> None:
    async def scenario(pool: ReaderPool, store: Store, bench: Bench) -> None:
        waiter = Waiter()
        pool.submit("a", store.work("a", cast("Exception", asyncio.CancelledError())), waiter)
        store.gate.set()
        await bench.runtime.clock.sleep(1)
        [(key, error)] = waiter.results
        assert (key, type(error)) == ("a", RetriableRemoteStorageError)
        assert pool.waiting == 0

    with_pool(scenario)


def test_indexes_whose_fetch_was_cancelled_by_the_store_are_fetched_again() -> None:
    async def scenario(bench: Bench) -> None:
        async def fetch_index(*_arguments: object) -> bytes:
            raise asyncio.CancelledError

        bench.store.fetch_index = fetch_index  # type: ignore[assignment]
        for _ in range(2):
            with pytest.raises(RetriableRemoteStorageError):
                await after_a_while(bench.tier.indexes.get(segment(1)))

    on_bench(scenario)
