"""A server answers in order, holds back what it must, and closes what Kafka would close."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from milena.node.api import RequestContext
from milena.node.metrics_text import render
from milena.node.rules.rules import Rule, RuleAction
from milena.node.serving.connection import MAX_PIPELINED, ServerConnection
from milena.node.serving.server import ServerLimits
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.limits import max_elements
from tests.unit.node.peers import Client, Endpoint, running, until


class TestAnswers:
    async def test_a_cold_request_is_decoded_and_answered_with_fields(self) -> None:
        async with running() as r:
            r.node.cold = lambda ctx, request: {"groups": [{"group_id": request.states_filter[0]}]}
            client = await r.client()
            response = await client.ask(ApiKey.LIST_GROUPS, 4, states_filter=["Stable"])
            assert response.groups[0].group_id == "Stable"
            await client.close()

    async def test_a_raw_request_gets_the_body_and_answers_in_parts(self) -> None:
        async with running() as r:
            r.node.raw = lambda ctx, body: ctx.respond([b"<", bytes(body), b">"])
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"abc")
            assert await client.receive() == (0, b"<abc>")
            await client.close()

    async def test_answers_leave_in_the_order_of_the_requests(self) -> None:
        async with running() as r:
            waiting: list[RequestContext] = []
            r.node.raw = lambda ctx, body: waiting.append(ctx)
            client = await r.client()
            for number in range(3):
                client.send_raw(ApiKey.PRODUCE, 9, b"%d" % number)
            await until(lambda: len(waiting) == 3)
            for ctx in reversed(waiting):
                ctx.respond([b"late"])
            assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]
            await client.close()

    async def test_a_request_without_an_answer_frees_its_slot(self) -> None:
        async with running() as r:
            r.node.raw = lambda ctx, body: ctx.no_response() if bytes(body) == b"silent" else ctx.respond([b"x"])
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"silent")
            client.send_raw(ApiKey.PRODUCE, 9, b"loud")
            assert (await client.receive())[0] == 1
            await client.close()

    async def test_an_awaitable_answer_is_awaited(self) -> None:
        async with running() as r:

            async def later(ctx: RequestContext, request: Any) -> dict[str, Any]:
                await asyncio.sleep(0)
                return {"groups": [{"group_id": "g"}]}

            r.node.cold = later
            client = await r.client()
            assert (await client.ask(ApiKey.LIST_GROUPS, 4)).groups[0].group_id == "g"
            await client.close()

    async def test_a_request_is_answered_once(self) -> None:
        async with running() as r:
            broken: list[Exception] = []

            def twice(ctx: RequestContext, body: memoryview) -> None:
                ctx.respond([b"one"])
                try:
                    ctx.set_response([b"two"])
                except BrokenInvariant as error:
                    broken.append(error)

            r.node.raw = twice
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"x")
            assert await client.receive() == (0, b"one")
            assert "was answered twice" in str(broken[0])
            await client.close()


class TestARequestThatHoldsItsConnection:
    async def test_what_follows_waits_until_it_has_taken_effect(self) -> None:
        async with running() as r:
            seen: list[RequestContext] = []

            def handle(ctx: RequestContext, body: memoryview) -> None:
                if not seen:
                    ctx.hold()
                seen.append(ctx)

            r.node.raw = handle
            client, other = await r.client(), await r.client()
            for number in range(3):
                client.send_raw(ApiKey.PRODUCE, 9, b"%d" % number)
            await until(lambda: len(seen) == 1)
            other.send_raw(ApiKey.PRODUCE, 9, b"of another connection")
            await until(lambda: len(seen) == 2)
            seen[0].release()
            await until(lambda: len(seen) == 4)
            for ctx in (seen[3], seen[2], seen[0]):
                ctx.respond([b"late"])
            assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]
            await client.close()
            await other.close()

    async def test_an_answer_lets_the_next_one_in(self) -> None:
        async with running() as r:
            seen: list[RequestContext] = []

            def handle(ctx: RequestContext, body: memoryview) -> None:
                ctx.hold()
                seen.append(ctx)

            r.node.raw = handle
            client = await r.client()
            client.send_raw(ApiKey.PRODUCE, 9, b"one")
            client.send_raw(ApiKey.PRODUCE, 9, b"two")
            await until(lambda: len(seen) == 1)
            seen[0].respond([b"x"])
            await until(lambda: len(seen) == 2)
            seen[0].release()
            assert (await client.receive())[0] == 0
            await client.close()


class TestHolding:
    async def test_a_held_server_accepts_and_answers_once_it_serves(self) -> None:
        async with running() as r:
            r.server.holding = True
            client = await r.client()
            for number in range(3):
                client.send_raw(ApiKey.PRODUCE, 9, b"%d" % number)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.reader.read(1)
            r.server.serve()
            assert [(await client.receive())[1] for _ in range(3)] == [b"0", b"1", b"2"]
            await client.close()


class TestOrderOfEffects:
    async def test_nothing_overtakes_a_cold_request_that_waits(self) -> None:
        async with running() as r:
            seen: list[bytes] = []
            gate = asyncio.Event()

            async def slow(ctx: RequestContext, request: Any) -> dict[str, Any]:
                seen.append(b"slow begins")
                await gate.wait()
                seen.append(b"slow ends")
                return {}

            def raw(ctx: RequestContext, body: memoryview) -> None:
                seen.append(bytes(body))
                ctx.respond([b""])

            r.node.cold, r.node.raw = slow, raw
            client = await r.client()
            client.send(ApiKey.LIST_GROUPS, 4)
            client.send_raw(ApiKey.PRODUCE, 9, b"one")
            client.send_raw(ApiKey.PRODUCE, 9, b"two")
            await until(lambda: seen)
            other = await r.client()
            other.send_raw(ApiKey.PRODUCE, 9, b"other")
            await other.receive()
            assert seen == [b"slow begins", b"other"]
            gate.set()
            assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]
            assert seen[2:] == [b"slow ends", b"one", b"two"]
            await client.close()
            await other.close()

    async def test_no_more_than_the_limit_of_requests_is_under_way(self) -> None:
        async with running() as r:
            waiting: asyncio.Queue[RequestContext] = asyncio.Queue()
            r.node.raw = lambda ctx, body: waiting.put_nowait(ctx)
            client = await r.client()
            total = MAX_PIPELINED * 3
            for _ in range(total):
                client.send_raw(ApiKey.PRODUCE, 9, b"x" * 5000)
            await until(lambda: waiting.qsize() == MAX_PIPELINED)
            other = await r.client()
            await other.ask(ApiKey.LIST_GROUPS, 4)
            assert waiting.qsize() == MAX_PIPELINED
            for number in range(total):
                (await waiting.get()).respond([b"y"])
                assert (await client.receive())[0] == number
            await client.close()
            await other.close()

    async def test_a_connection_with_more_requests_than_may_be_in_flight_ends(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ServerConnection, "_must_wait", lambda _: False)
        async with running() as r:
            seen: list[RequestContext] = []
            r.node.raw = lambda ctx, body: seen.append(ctx)
            client, other = await r.client(), await r.client()
            for _ in range(MAX_PIPELINED + 1):
                client.send_raw(ApiKey.PRODUCE, 9, b"x")
            assert await client.reader.read() == b""
            assert len(seen) == MAX_PIPELINED
            await other.ask(ApiKey.LIST_GROUPS, 4)
            await client.close()
            await other.close()

    async def test_a_reader_that_does_not_read_is_served_no_further(self) -> None:
        async with running() as r:
            served = []

            def big(ctx: RequestContext, body: memoryview) -> None:
                served.append(1)
                ctx.respond([bytes(1 << 20)])

            r.node.raw = big
            client = await r.client()
            for _ in range(60):
                client.send_raw(ApiKey.PRODUCE, 9, b"x")
            await client.writer.drain()
            other = await r.client()
            await other.ask(ApiKey.LIST_GROUPS, 4)
            assert len(served) < 20
            for number in range(60):
                assert (await client.receive())[0] == number
            await client.close()
            await other.close()


class TestErrors:
    async def test_a_kafka_error_goes_to_the_top_level_code(self) -> None:
        async with running() as r:

            def refuse(ctx: RequestContext, request: Any) -> None:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

            r.node.cold = refuse
            client = await r.client()
            response = await client.ask(ApiKey.LIST_GROUPS, 4)
            assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            await client.close()

    async def test_an_api_may_shape_its_failure(self) -> None:
        async with running() as r:
            r.node.error = KafkaError(ErrorCode.NOT_CONTROLLER)
            client = await r.client()
            response = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=[{"name": "t"}], timeout_ms=5)
            assert response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
            name = "kafka_network_requestmetrics_errorspersec_total"
            assert r.metrics.value(name, request="CreateTopics", error=r.node.error.code.name) == 1
            await client.close()

    async def test_an_unexpected_exception_is_an_unknown_server_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        async with running() as r:
            r.node.error = ZeroDivisionError("oops")
            client = await r.client()
            response = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=[{"name": "t"}], timeout_ms=5)
            assert response.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            await client.close()
        assert "ZeroDivisionError" in capsys.readouterr().err

    async def test_a_broken_invariant_fails_the_request_alone(self, capsys: pytest.CaptureFixture[str]) -> None:
        async with running() as r:
            r.node.error = AssertionError("must not be")
            client = await r.client()
            for _ in range(3):
                response = await client.ask(ApiKey.CREATE_TOPICS, 7, topics=[{"name": "t"}], timeout_ms=5)
                assert response.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            await client.close()
            assert (r.failures, r.server.runtime.contained.count) == ([], 3)
        said = capsys.readouterr().err
        assert said.count("must not be") == 1, "a client does not fill the log"

    async def test_an_error_without_a_place_closes_the_connection(self) -> None:
        async with running() as r:

            def refuse(ctx: RequestContext, request: Any) -> None:
                raise KafkaError(ErrorCode.INVALID_REQUEST)

            r.node.cold = refuse
            client = await r.client()
            client.send(ApiKey.METADATA, 12, topics=[])
            assert await client.closed()
            await client.close()

    async def test_a_late_error_that_cannot_be_encoded_closes_the_connection(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr("milena.protocol.requests.messages.encode_response", broken)
        async with running() as r:

            async def late(ctx: RequestContext, request: Any) -> None:
                await asyncio.sleep(0)
                raise KafkaError(ErrorCode.INVALID_REQUEST)

            r.node.cold = late
            client = await r.client()
            client.send(ApiKey.LIST_GROUPS, 4)
            assert await client.closed()
            assert r.failures == []
            await client.close()


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


BAD_INPUT = {
    "an unknown API": frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "an API of the other role": frame(struct.pack(">hhih", ApiKey.BROKER_HEARTBEAT, 0, 1, -1) + b"\0"),
    "a version out of range": frame(struct.pack(">hhih", ApiKey.LIST_GROUPS, 99, 1, -1) + b"\0"),
    "a truncated header": frame(b"\0\x10\0"),
    "a truncated body": frame(struct.pack(">hhih", ApiKey.LIST_GROUPS, 4, 1, -1) + b"\0\x05"),
    "a negative length": struct.pack(">i", -1),
    "a length above the limit": struct.pack(">i", (100 << 20) + 1),
    "a body too large to be decoded": frame(struct.pack(">hhih", ApiKey.LIST_GROUPS, 4, 1, -1) + bytes(9 << 20)),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(100),
    "garbage": bytes(range(255, 0, -1)) * 8,
}


class TestBadInput:
    async def test_trailing_bytes_are_ignored_as_kafka_does(self) -> None:
        async with running() as r:
            client = await r.client()
            client.send_raw(ApiKey.LIST_GROUPS, 0, b"more")
            assert (await client.receive())[0] == 0
            await client.close()

    @pytest.mark.parametrize("name", BAD_INPUT)
    async def test_the_connection_is_closed_and_others_notice_nothing(self, name: str) -> None:
        async with running() as r:
            other = await r.client()
            client = await r.client()
            client.writer.write(BAD_INPUT[name])
            assert await client.closed()
            assert (await other.ask(ApiKey.LIST_GROUPS, 4)).groups == ()
            await client.close()
            await other.close()

    async def test_answers_before_the_bad_request_still_leave(self) -> None:
        async with running() as r:
            client = await r.client()
            client.send(ApiKey.LIST_GROUPS, 4)
            client.writer.write(BAD_INPUT["an unknown API"])
            assert (await client.receive())[0] == 0
            assert await client.closed()
            await client.close()


class TestLimits:
    async def test_connections_beyond_the_limit_are_closed(self) -> None:
        async with running(ServerLimits(max_connections=1)) as r:
            first = await r.client()
            await first.ask(ApiKey.LIST_GROUPS, 4)
            second = await r.client()
            assert await second.closed()
            await first.ask(ApiKey.LIST_GROUPS, 4)
            await first.close()
            await until(lambda: not r.server.connections())
            third = await r.client()
            await third.ask(ApiKey.LIST_GROUPS, 4)
            for client in (second, third):
                await client.close()

    async def test_connections_per_address_are_limited_and_the_limit_overridden(self) -> None:
        async with running(ServerLimits(max_connections_per_ip=0, per_ip_overrides={"127.0.0.1": 1})) as r:
            first = await r.client()
            await first.ask(ApiKey.LIST_GROUPS, 4)
            second = await r.client()
            assert await second.closed()
            for client in (first, second):
                await client.close()

    async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(self) -> None:
        async with running(ServerLimits(idle_ms=60)) as r:
            waiting: list[RequestContext] = []
            r.node.raw = lambda ctx, body: waiting.append(ctx)
            busy, idle = await r.client(), await r.client()
            busy.send_raw(ApiKey.FETCH, 12, b"")
            assert await idle.closed()
            waiting[0].respond([b"at last"])
            assert await busy.receive() == (0, b"at last")
            for client in (busy, idle):
                await client.close()

    async def test_many_announced_frames_cost_nothing(self) -> None:
        async with running() as r:
            clients = [await r.client() for _ in range(100)]
            for client in clients:
                client.writer.write(struct.pack(">i", 99 << 20) + b"four")
            await until(lambda: len(list(r.server.connections())) == 100)
            other = await r.client()
            assert (await other.ask(ApiKey.LIST_GROUPS, 4)).groups == ()
            for client in [*clients, other]:
                await client.close()


class TestRules:
    async def test_a_dropped_request_never_reaches_its_handler(self) -> None:
        async with running() as r:
            rule = r.rules.add(Rule(action=RuleAction.DROP, api=ApiKey.LIST_GROUPS))
            client = await r.client()
            client.send(ApiKey.LIST_GROUPS, 4)
            r.node.raw = lambda ctx, body: ctx.respond([b"x"])
            client.send_raw(ApiKey.PRODUCE, 9, b"")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.reader.read(1)
            assert r.rules.release(rule).hits == 1
            await client.close()

    async def test_a_rule_can_cut_the_connection_of_one_client(self) -> None:
        async with running() as r:
            r.rules.add(Rule(action=RuleAction.DISCONNECT, peer="test"))
            r.rules.add(Rule(action=RuleAction.DROP, peer="another client"))
            client = await r.client()
            client.send(ApiKey.LIST_GROUPS, 4)
            assert await client.closed()
            await client.close()


async def test_metrics_count_requests_by_api_and_version() -> None:
    async with running() as r:
        client = await r.client()
        for _ in range(3):
            await client.ask(ApiKey.LIST_GROUPS, 4)
        name = "kafka_network_requestmetrics_requestspersec_total"
        assert r.metrics.value(name, request="ListGroups", version="4") == 3
        text = render(r.metrics)
        assert f'{name}{{request="ListGroups",version="4"}} 3' in text
        assert 'kafka_network_requestmetrics_totaltimems_count{request="ListGroups"} 3' in text
        connections = "kafka_server_socket_server_metrics_connection_count"
        assert f'{connections}{{listener="PLAINTEXT",networkprocessor="0"}} 1' in text
        await client.close()


async def test_a_port_in_use_is_one_clear_sentence() -> None:
    async with running() as r:
        port = r.server.bound["PLAINTEXT"][1]
        with pytest.raises(OSError, match=rf"listener PLAINTEXT: cannot listen on 127\.0\.0\.1:{port}: "):
            async with running(endpoint=Endpoint(port=port)):
                pass


async def test_stopping_closes_every_connection() -> None:
    async with running() as r:
        clients: list[Client] = [await r.client() for _ in range(3)]
        await clients[0].ask(ApiKey.LIST_GROUPS, 4)
        await r.server.stop()
        for client in clients:
            assert await client.closed()
            await client.close()


class TestElements:
    async def test_a_request_of_too_many_elements_closes_its_connection_alone(self) -> None:
        async with running() as r:
            r.node.cold = lambda ctx, request: {"groups": []}
            greedy, other = await r.client(), await r.client()
            greedy.send(ApiKey.LIST_GROUPS, 4, states_filter=["s"] * (max_elements(ApiKey.LIST_GROUPS) + 1))
            assert await greedy.closed()
            await greedy.close()
            assert (await other.ask(ApiKey.LIST_GROUPS, 4, states_filter=["s"])).groups == ()
            await other.close()
