"""Reading ahead from a slow store, on a virtual clock: speed, sharing, bounds, failures."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.lab.world.world import World, simulate
from milena.tiered.store.chunk_cache import FORSAKEN
from milena.tiered.store.remote_storage import RetriableRemoteStorageError
from tests.unit.tiered.chunks import BANDWIDTH, LATENCY, MIB, Bench, content, in_simulation


@in_simulation
async def test_a_sequential_reader_is_limited_by_bandwidth(bench: Bench) -> None:
    size = 400 * MIB
    seconds = await bench.read_all(bench.cache(), "a", size)
    assert seconds < 1.15 * size / BANDWIDTH


@in_simulation
async def test_without_reading_ahead_it_would_be_limited_by_round_trips(bench: Bench) -> None:
    size = 400 * MIB
    seconds = await bench.read_all(bench.cache(ahead=0), "a", size)
    assert seconds > 0.95 * (size / BANDWIDTH + size / (4 * MIB) * LATENCY)


@in_simulation
async def test_segments_that_are_announced_are_read_as_one_stream(bench: Bench) -> None:
    cache = bench.cache()
    size, count = 10 * MIB, 40
    began = bench.clock.monotonic()
    for number in range(count):
        for at in range(0, size, MIB):
            if at == 5 * MIB:
                for coming in (1, 2):
                    cache.expect(f"segment {number + coming}", size, 0)
            await cache.read(f"segment {number}", size, at, MIB)
    seconds = bench.clock.monotonic() - began
    assert seconds < 1.15 * count * size / BANDWIDTH


@in_simulation
async def test_a_small_read_asks_for_one_chunk_and_the_next(bench: Bench) -> None:
    cache = bench.cache()
    await cache.read("a", 100 * MIB, 50 * MIB, 100)
    await bench.clock.sleep(1)
    assert bench.store.requests == [("a", 48 * MIB, 4 * MIB), ("a", 52 * MIB, 4 * MIB)]


@in_simulation
async def test_the_window_grows_with_each_step_up_to_the_limit(bench: Bench) -> None:
    cache = bench.cache(chunk=MIB, ahead=5)
    ahead = []
    for number in range(8):
        await cache.read("a", 100 * MIB, number * MIB, MIB)
        await bench.clock.sleep(1)
        ahead.append(len(bench.store.requests) - number - 1)
    assert ahead == [1, 2, 4, 5, 5, 5, 5, 5]


@in_simulation
async def test_nothing_is_read_beyond_an_objects_end(bench: Bench) -> None:
    await bench.read_all(bench.cache(), "a", 9 * MIB + 5)
    assert bench.store.requests == [("a", 0, 4 * MIB), ("a", 4 * MIB, 4 * MIB), ("a", 8 * MIB, MIB + 5)]


@in_simulation
async def test_readers_of_the_same_object_share_its_chunks(bench: Bench) -> None:
    cache = bench.cache()
    loop = asyncio.get_running_loop()
    readers = [loop.create_task(bench.read_all(cache, "a", 40 * MIB)) for _ in range(5)]
    for reader in readers:
        await reader
    assert len(bench.store.requests) == 10


@in_simulation
async def test_memory_is_bounded_and_requests_too(bench: Bench) -> None:
    cache = bench.cache(capacity=32 * MIB)
    loop = asyncio.get_running_loop()
    readers = [loop.create_task(bench.read_all(cache, f"{number}", 60 * MIB)) for number in range(4)]
    most = 0
    while not all(reader.done() for reader in readers):
        await bench.clock.sleep(0.003)
        most = max(most, cache.used)
    # Each reader gets the chunk that it waits for, whatever has been read ahead.
    assert most <= (32 + 4 * 4) * MIB
    assert bench.store.most_open <= 12
    assert len(bench.store.requests) == 4 * 15, "no chunk was driven out before it was used"


@in_simulation
async def test_what_was_read_ahead_in_vain_makes_room_in_time(bench: Bench) -> None:
    cache = bench.cache(chunk=MIB, capacity=8 * MIB, ahead=7)
    cache.expect("gone", 100 * MIB, 0)
    cache.expect("more", 100 * MIB, 0)
    await bench.clock.sleep(FORSAKEN / 2)
    assert [path for path, _, _ in bench.store.requests] == ["gone"] * 7 + ["more"]
    await cache.read("a", 100 * MIB, 0, MIB)
    await bench.clock.sleep(FORSAKEN)
    for at in range(1, 5):
        await cache.read("a", 100 * MIB, at * MIB, MIB)
    await bench.clock.sleep(1)
    assert cache.used == 8 * MIB
    assert len({request for request in bench.store.requests if request[0] == "a"}) >= 8


@in_simulation
async def test_an_error_goes_to_who_waits_and_the_next_reader_asks_again(bench: Bench) -> None:
    cache = bench.cache()
    bench.store.error = RetriableRemoteStorageError("away")
    with pytest.raises(RetriableRemoteStorageError, match="away"):
        await cache.read("a", 100 * MIB, 0, MIB)
    await bench.clock.sleep(1)
    assert cache.used == 0
    bench.store.error = None
    assert await cache.read("a", 100 * MIB, 0, 10) == content(0, 10)


@in_simulation
async def test_a_reader_that_gives_up_leaves_its_chunk_to_the_next(bench: Bench) -> None:
    cache = bench.cache(ahead=0)
    reader = asyncio.get_running_loop().create_task(cache.read("a", 100 * MIB, 0, MIB))
    await bench.clock.sleep(LATENCY / 2)
    reader.cancel()
    await asyncio.wait([reader])
    await bench.clock.sleep(1)
    began = bench.clock.monotonic()
    assert await cache.read("a", 100 * MIB, 0, MIB) == content(0, MIB)
    assert (bench.clock.monotonic(), len(bench.store.requests)) == (began, 1)


@in_simulation
async def test_a_forgotten_object_is_asked_for_again(bench: Bench) -> None:
    cache = bench.cache(ahead=0)
    for _ in range(2):
        await cache.read("a", MIB, 0, MIB)
        await cache.read("b", MIB, 0, MIB)
        cache.forget("a")
    assert [path for path, _, _ in bench.store.requests] == ["a", "b", "a"]
    assert cache.used == MIB


@in_simulation
async def test_waiting_and_later_reads_fail_after_close(bench: Bench) -> None:
    cache = bench.cache()
    reader = asyncio.get_running_loop().create_task(cache.read("a", 100 * MIB, 0, MIB))
    await bench.clock.sleep(LATENCY / 2)
    cache.close()
    for late in (reader, cache.read("b", MIB, 0, 1)):
        with pytest.raises(RetriableRemoteStorageError, match="closed"):
            await late
    cache.expect("c", MIB, 0)
    await bench.clock.sleep(1)
    assert cache.used == 0


@given(
    chunk=st.integers(1, 40),
    capacity=st.integers(1, 200),
    ahead=st.integers(0, 5),
    reads=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 299), st.integers(1, 300)), max_size=20),
)
def test_whatever_is_read_is_what_stands_there(
    chunk: int, capacity: int, ahead: int, reads: list[tuple[str, int, int]]
) -> None:
    async def run(world: World) -> None:
        bench = Bench(world)
        cache = bench.cache(chunk=chunk, capacity=capacity, ahead=ahead)
        for path, start, length in reads:
            length = min(length, 300 - start)
            assert await cache.read(path, 300, start, length) == content(start, length)
        await bench.clock.sleep(1)
        assert cache.used <= max(capacity, chunk)

    simulate(run, seed=1)
