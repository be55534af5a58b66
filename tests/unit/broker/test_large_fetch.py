"""Fetches that are read cooperatively: their responses, and changes between two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milena.broker.apis import fetch as fetch_api
from milena.broker.reading import fetching
from milena.node.serving.scheduler import MAX_CONCURRENT_JOBS, MAX_RESERVED_BYTES
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.types import NodeId
from tests.unit.broker.consumer_fetches import fetch, response, results, values, want
from tests.unit.broker.fixtures import OTHER, Bench, Request, batch, led_by, set_isr
from tests.unit.broker.long_produces import goes

COUNT = 8


@pytest.fixture(autouse=True)
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two partitions count as many, and read one per step."""
    monkeypatch.setattr(fetch_api, "MAX_IMMEDIATE_ELEMENTS", 2)
    monkeypatch.setattr(fetching, "PARTITIONS_PER_YIELD", 1)


class Fetched:
    """One large request that is being handled, by default for all partitions of a topic."""

    def __init__(self, bench: Bench, *asked: FetchPartition, version: int = 12, **options: Any) -> None:
        self.bench = bench
        topic = bench.image.topics["t"]
        name, topic_id = ("t", None) if version < 13 else (None, topic.id)
        limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20} | options
        wanted = asked or tuple(map(want, range(COUNT)))
        body = bytearray(encode_fetch_request(version, FetchRequest(topics=[(name, topic_id, wanted)], **limits)))
        self.request = Request(ApiKey.FETCH, version)
        self.task = bench.serve(self.request, fetch_api.handle, body)
        body[:] = b"\xee" * len(body)

    async def goes_on(self, times: int = 1) -> None:
        await goes(self.bench.clock, times)

    async def ends(self) -> Any:
        assert self.task is not None
        for _ in range(100):
            if self.request.answered:
                return results(self.request)
            if self.task.done() and self.request.answers.closed:
                return None
            await self.goes_on()
        raise AssertionError("it still waits")

    async def waits(self) -> None:
        await self.goes_on(40)
        assert not self.request.answered and self.request.answers.held and len(self.bench.purgatory) == 1


def has_no_listeners(bench: Bench) -> bool:
    return not any(partition.listeners for partition in bench.partitions)


@pytest.mark.parametrize("version", range(4, 19))
async def test_a_large_fetch_is_answered_like_a_small_one(
    bench: Bench, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.led(count=COUNT)
    bench.partitions.get("t", 1).append(batch(b"a", b"b"), 1)
    bench.partitions.get("t", 4).append(batch(b"c"), 1)
    asked = (*map(want, range(COUNT)), want(COUNT), want(COUNT + 1))
    large = Fetched(bench, *asked, version=version)
    assert large.request.answers.held and not large.request.answered
    await large.ends()
    monkeypatch.setattr(fetch_api, "MAX_IMMEDIATE_ELEMENTS", 1000)
    monkeypatch.setattr(fetching, "PARTITIONS_PER_YIELD", 1000)
    assert large.request.body == fetch(bench, *asked, version=version).body
    assert has_no_listeners(bench) and bench.scheduler.reserved == 0


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_records_for_an_already_read_partition_end_the_wait(bench: Bench, session_epoch: int) -> None:
    bench.led(count=COUNT)
    large = Fetched(bench, version=13, session_epoch=session_epoch)
    await large.goes_on(5)
    assert not large.request.answered and len(bench.purgatory) == 0, "it still reads"
    bench.partitions.get("t", 0).append(batch(b"early"), 1)
    found = await large.ends()
    assert values(found[0].records) == [b"early"] and len(found) == COUNT
    assert bool(response(large.request).session_id) is (session_epoch == 0)


async def test_a_large_fetch_waits_and_returns_new_records(bench: Bench) -> None:
    bench.led(count=COUNT)
    large = Fetched(bench)
    await large.waits()
    bench.partitions.get("t", 5).append(batch(b"late"), 1)
    found = await large.ends()
    assert [values(one.records) for one in found] == [[b"late"] if index == 5 else [] for index in range(COUNT)]
    assert has_no_listeners(bench)


async def test_after_its_wait_it_is_answered_with_the_present_records(bench: Bench) -> None:
    bench.led(count=COUNT)
    large = Fetched(bench)
    await large.waits()
    bench.clock.advance(0.5)
    assert [one.error_code for one in await large.ends()] == [0] * COUNT


async def test_each_partition_is_read_in_its_state_at_that_step(bench: Bench) -> None:
    bench.led(count=COUNT)
    large = Fetched(bench, version=10)
    await large.goes_on(5)
    last = bench.partitions.get("t", COUNT - 1)
    last.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
    codes = [one.error_code for one in await large.ends()]
    assert codes == [0] * (COUNT - 1) + [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_lost_leadership_of_an_already_read_partition_is_reported(bench: Bench) -> None:
    bench.led(count=COUNT)
    large = Fetched(bench, version=10)
    await large.goes_on(COUNT)
    bench.partitions.get("t", 0).become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
    assert (await large.ends())[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("goes_before", [3, 40])
async def test_a_disconnected_client_leaves_no_state(bench: Bench, goes_before: int) -> None:
    bench.led(count=COUNT)
    large = Fetched(bench)
    await large.goes_on(goes_before)
    large.request.answers.closed = True
    if large.request.ctx.forget is not None:
        large.request.ctx.forget()
    bench.clock.advance(1)
    assert await large.ends() is None
    assert has_no_listeners(bench) and len(bench.purgatory) == 0


async def test_too_many_reserved_bytes_are_refused(bench: Bench) -> None:
    bench.led(count=COUNT)
    bench.scheduler.reserve(MAX_RESERVED_BYTES)
    refused = Fetched(bench)
    assert refused.task is None and refused.request.answers.closed


async def test_a_large_fetch_starts_when_a_slot_is_free(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoded request takes many times the memory of its bytes, and only the bytes are counted."""
    bench.led(count=COUNT)
    bench.partitions.get("t", 0).append(batch(b"a"), 1)
    begun: list[object] = []
    plan = fetch_api._plan

    def planned(*given: Any) -> Any:
        begun.append(given)
        return plan(*given)

    monkeypatch.setattr(fetch_api, "_plan", planned)
    fetches = [Fetched(bench) for _ in range(5 * MAX_CONCURRENT_JOBS)]
    most = 0
    while not all(one.request.answered for one in fetches):
        await goes(bench.clock)
        most = max(most, len(begun) - sum(one.request.answered for one in fetches))
    assert 1 < most <= MAX_CONCURRENT_JOBS and bench.scheduler.reserved == 0


async def test_waiting_fetches_do_not_occupy_slots(bench: Bench) -> None:
    bench.led(count=COUNT)
    waiting = [Fetched(bench) for _ in range(2 * MAX_CONCURRENT_JOBS)]
    await goes(bench.clock, 2 * MAX_CONCURRENT_JOBS * 20)
    assert len(bench.purgatory) == 2 * MAX_CONCURRENT_JOBS and bench.scheduler.reserved == 0
    bench.partitions.get("t", 5).append(batch(b"late"), 1)
    await goes(bench.clock, 2 * MAX_CONCURRENT_JOBS * 20)
    assert all(one.request.answered for one in waiting)


async def test_a_wrong_session_is_an_error(bench: Bench) -> None:
    bench.led(count=COUNT)
    large = Fetched(bench, version=13, session_id=77, session_epoch=3)
    await large.ends()
    assert response(large.request).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class TestAfterItsRead:
    """A partition changes when it was read and the answer is not made yet: the next fetch of the session hears of
    it."""

    async def answered(
        self, bench: Bench, meanwhile: Callable[[], object], *asked: FetchPartition, version: int = 13, **fields: Any
    ) -> int:
        """Create a session and return its id."""
        large = Fetched(bench, *asked, version=version, session_epoch=0, max_wait_ms=0, **fields)
        await large.goes_on(COUNT)
        assert not large.request.answered
        meanwhile()
        assert [one.error_code for one in await large.ends()] == [0] * COUNT
        return int(response(large.request).session_id)

    async def test_new_records_are_read_next(self, bench: Bench) -> None:
        first = bench.led(count=COUNT)
        session_id = await self.answered(bench, lambda: first.append(batch(b"between"), 1))
        (found,) = results(fetch(bench, version=13, session_id=session_id, session_epoch=1))
        assert values(found.records) == [b"between"]

    async def test_a_follower_gets_the_new_high_watermark(self, bench: Bench) -> None:
        topic = bench.topic("t", *[led_by(1, replicas=(1, 2, 3), isr=(1, 2, 3))] * COUNT)
        for index in range(COUNT):
            bench.host(topic, index).become(topic.partitions[index])
        first = bench.partitions.get("t", 0)
        first.append(batch(b"x"), 1)
        read = want(0, 1, current_leader_epoch=0), *(want(at, current_leader_epoch=0) for at in range(1, COUNT))
        follower: dict[str, Any] = {"replica_id": 2, "replica_epoch": 2}

        def all_others_have_it() -> None:
            assert first.high_watermark == 0
            set_isr(first, 1, 2)
            first.check_isr()

        bench.broker(NodeId(3))
        session_id = await self.answered(bench, all_others_have_it, *read, version=15, **follower)
        assert first.high_watermark == 1
        then = fetch(bench, version=15, session_id=session_id, session_epoch=1, max_wait_ms=0, **follower)
        (found,) = results(then)
        assert found.high_watermark == 1

    async def test_read_records_are_sent_although_the_segment_was_deleted(self, bench: Bench) -> None:
        first = bench.led(count=COUNT)
        first.append(batch(b"kept"), 1)
        large = Fetched(bench)
        await large.goes_on(COUNT)
        assert not large.request.answered
        log = first.online_log
        bench.partitions.remove(first)
        log.close()
        assert values((await large.ends())[0].records) == [b"kept"]

    async def test_a_partition_forgotten_during_the_read_has_no_listener(self, bench: Bench) -> None:
        bench.led(count=COUNT)
        session_id = await self.answered(bench, lambda: None)
        large = Fetched(bench, version=13, session_id=session_id, session_epoch=1)
        await large.goes_on(5)
        forgotten = [(None, bench.image.topics["t"].id, [COUNT - 1])]
        fetch(bench, version=13, session_id=session_id, session_epoch=2, max_wait_ms=0, forgotten_topics=forgotten)
        last = bench.partitions.get("t", COUNT - 1)
        assert not last.listeners
        await large.waits()
        assert not last.listeners
        bench.clock.advance(1)
        await large.ends()
        fetch(bench, version=13, session_id=session_id, session_epoch=-1)
        assert has_no_listeners(bench)


async def test_a_refused_large_fetch_leaves_no_state(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request was decoded immediately and has begun to read, so its temporary session listens."""
    monkeypatch.setattr(fetch_api, "MAX_IMMEDIATE_ELEMENTS", 1000)
    bench.led(count=COUNT)
    bench.scheduler.reserve(MAX_RESERVED_BYTES)
    large = Fetched(bench)
    assert large.request.answers.closed and not large.request.answered
    assert has_no_listeners(bench) and len(bench.purgatory) == 0
