"""The control page speaks enough HTTP for a scraper, and ends what is no HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from milena.node.metrics import Metrics
from milena.node.serving.control_http import MAX_CONNECTIONS, Answer, ControlServer, health_page, metrics_page
from milena.protocol.cooperative import Cooperative
from milena.runtime.process import real_runtime

LAST = b"GET /metrics HTTP/1.0\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(state: dict[str, Any]) -> AsyncIterator[tuple[str, int]]:
    metrics = Metrics()
    metrics.gauge("up", lambda: 1)
    metrics.counter("kafka_server_brokertopicmetrics_messagesinpersec_total", topic="t")
    server = ControlServer(
        real_runtime(), {"/metrics": metrics_page(metrics, "reporter"), "/health": health_page(lambda: state, "ready")}
    )
    yield await server.start("127.0.0.1", 0)
    server.stop()


async def ask(address: tuple[str, int], *requests: bytes) -> bytes:
    """Sends and reads until the server closes."""
    reader, writer = await asyncio.open_connection(*address)
    for request in requests:
        writer.write(request)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


async def test_metrics_are_served_as_prometheus_text() -> None:
    async with serving({}) as address:
        answer = await ask(address, b"GET /metrics?x=1 HTTP/1.0\r\nHost: h\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert b"\nup 1\n" in body and b'messagesinpersec_total{topic="t"} 0\n' in body


async def test_the_query_selects_the_names() -> None:
    async with serving({}) as address:
        strimzi = await ask(address, b"GET /metrics?x=1&names=strimzi HTTP/1.0\r\n\r\n")
        unknown = await ask(address, b"GET /metrics?names=other HTTP/1.0\r\n\r\n")
    assert b'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 0\n' in strimzi
    assert unknown.startswith(b"HTTP/1.1 400 Bad Request") and b"reporter, strimzi, confluent\n" in unknown


async def test_one_page_is_under_construction_at_a_time_and_others_are_served_between_its_steps() -> None:
    steps: list[str] = []

    def sliced(query: str) -> Cooperative[Answer]:
        for _ in range(3):
            steps.append(query)
            yield
        return 200, "text/plain", query

    server = ControlServer(real_runtime(), {"/sliced": sliced, "/plain": lambda _query: (200, "text/plain", "plain")})
    address = await server.start("127.0.0.1", 0)
    asked = [ask(address, b"GET /sliced?%d HTTP/1.0\r\n\r\n" % number) for number in range(4)]
    answers = await asyncio.gather(*asked, ask(address, b"GET /plain HTTP/1.0\r\n\r\n"))
    server.stop()
    assert [answer.rpartition(b"\n")[2] for answer in answers] == [b"0", b"1", b"2", b"3", b"plain"]
    assert sorted(steps) == [query for query in "0123" for _ in range(3)]
    assert [steps[place] for place in (0, 3, 6, 9)] == [steps[place + 2] for place in (0, 3, 6, 9)]


async def test_scrapers_are_served_in_turn_and_other_pages_do_not_wait_for_them() -> None:
    done: list[str] = []
    goes_on = asyncio.Event()

    def sliced(query: str) -> Cooperative[Answer]:
        while not goes_on.is_set():
            yield
        for _ in range(3):
            yield
        done.append(query)
        return 200, "text/plain", query

    server = ControlServer(real_runtime(), {"/sliced": sliced, "/plain": lambda _query: (200, "text/plain", "plain")})
    address = await server.start("127.0.0.1", 0)

    async def scraper(number: int) -> None:
        for turn in range(3):
            await ask(address, b"GET /sliced?%d.%d HTTP/1.0\r\n\r\n" % (turn, number))

    scrapers = [asyncio.create_task(scraper(number)) for number in range(5)]
    await asyncio.sleep(0.05)
    assert (await ask(address, b"GET /plain HTTP/1.0\r\n\r\n")).endswith(b"plain")
    goes_on.set()
    await asyncio.gather(*scrapers)
    server.stop()
    assert [query[0] for query in done] == [*"000001111122222"]


async def test_a_connection_that_is_closed_during_the_construction_of_its_page_makes_room() -> None:
    begun = asyncio.Event()

    def sliced(query: str) -> Cooperative[Answer]:
        begun.set()
        while query == "endless":
            yield
        return 200, "text/plain", "done"

    server = ControlServer(real_runtime(), {"/sliced": sliced})
    address = await server.start("127.0.0.1", 0)
    opened = [await asyncio.open_connection(*address)]
    opened[0][1].write(b"GET /sliced?endless HTTP/1.1\r\n\r\n")
    await begun.wait()
    opened += [await asyncio.open_connection(*address) for _ in range(MAX_CONNECTIONS - 1)]
    assert (await ask(address, b"GET /sliced HTTP/1.0\r\n\r\n")).endswith(b"done")
    server.stop()
    for _, writer in opened:
        writer.close()


@pytest.mark.parametrize(("ready", "status"), [(True, b"200 OK"), (False, b"503 Service Unavailable")])
async def test_health_says_whether_the_node_is_ready(ready: bool, status: bytes) -> None:
    async with serving({"ready": ready, "state": "x"}) as address:
        answer = await ask(address, b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert status in answer.partition(b"\r\n")[0]
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"ready": ready, "state": "x"}


async def test_a_connection_is_kept_for_several_requests() -> None:
    async with serving({}) as address:
        answer = await ask(
            address, b"GET /metrics HTTP/1.1\r\n\r\nGET /nothing", b" HTTP/1.1\r\n\r\nGET /metrics HTTP/1.0\r\n\r\n"
        )
    assert answer.count(b"\nup 1\n") == 2 and b"404 Not Found" in answer and b"/health, /metrics" in answer


async def test_only_get_is_served() -> None:
    async with serving({}) as address:
        assert b"405 Method Not Allowed" in await ask(address, b"POST /metrics HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("garbage", [b"\x00\x00\x00\x05hello\r\n\r\n", b"x" * 10_000], ids=["no HTTP", "endless"])
async def test_what_is_no_http_ends_the_connection(garbage: bytes) -> None:
    async with serving({}) as address:
        with contextlib.suppress(ConnectionError):
            assert await ask(address, garbage) == b""


async def test_a_port_in_use_is_named() -> None:
    async with serving({}) as (host, port):
        with pytest.raises(OSError, match=rf"the control port: cannot listen on {host}:{port}"):
            await ControlServer(real_runtime(), {}).start(host, port)


async def test_pages_are_made_one_at_a_time_for_one_scraper_after_the_other() -> None:
    made: list[int] = []
    rounds = [0]

    def page(_query: str) -> tuple[int, str, str]:
        made.append(rounds[0])
        return 200, "text/plain", "up 1"

    server = ControlServer(real_runtime(), {"/metrics": page})
    address = await server.start("127.0.0.1", 0)

    def count() -> None:
        rounds[0] += 1
        asyncio.get_running_loop().call_soon(count)

    count()
    await asyncio.gather(*(ask(address, *[b"GET /metrics HTTP/1.1\r\n\r\n"] * 30, LAST) for _ in range(5)))
    server.stop()
    assert len(made) == 5 * 31
    assert len(set(made)) == len(made), "no two in one round of the loop"


async def test_nothing_is_made_for_a_scraper_that_does_not_read() -> None:
    made: list[int] = []

    def page(_query: str) -> tuple[int, str, str]:
        made.append(1)
        return 200, "text/plain", "x" * (1 << 20)

    server = ControlServer(real_runtime(), {"/metrics": page})
    address = await server.start("127.0.0.1", 0)
    _deaf, writer = await asyncio.open_connection(*address, limit=1)
    writer.write(b"GET /metrics HTTP/1.1\r\n\r\n" * 300)
    for _ in range(5):
        assert b"200 OK" in await ask(address, LAST)
    assert len(made) - 5 < 30
    server.stop()
    writer.close()


async def test_connections_beyond_the_limit_take_the_place_of_those_that_ask_for_nothing() -> None:
    async with serving({}) as address:
        opened = [await asyncio.open_connection(*address) for _ in range(MAX_CONNECTIONS)]
        for _ in range(3):
            assert b"up 1" in await ask(address, LAST)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                assert await opened[0][0].read() == b""
        for _reader, writer in opened:
            writer.close()
