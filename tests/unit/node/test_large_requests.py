"""Large requests are handled in slices: in order, with the errors of small ones, and within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Iterator
from typing import Any

import pytest

from milena.node.api import RequestContext
from milena.node.serving import scheduler
from milena.node.serving.dispatch import PLAIN_BODY_BYTES
from milena.node.serving.scheduler import MAX_RESERVED_BYTES
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from tests.unit.node.peers import Running, running, until

LONG = ["x" * 1000] * (PLAIN_BODY_BYTES // 1000 + 1)


def remembering(r: Running, seen: list[int]) -> None:
    """Let the node remember how many states each ListGroups asks for, and answer with as many groups."""

    def handle(ctx: RequestContext, request: Any) -> dict[str, Any]:
        seen.append(len(request.states_filter))
        return {"groups": [{"group_id": "g"}] * len(request.states_filter)}

    r.node.cold = handle


async def test_what_follows_a_large_request_waits_for_its_answer() -> None:
    async with running() as r:
        seen: list[int] = []
        remembering(r, seen)
        client = await r.client()
        client.send(ApiKey.LIST_GROUPS, 4, states_filter=LONG)
        client.send(ApiKey.LIST_GROUPS, 4, states_filter=["a"])
        client.send_raw(ApiKey.PRODUCE, 9, b"raw")
        assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]
        assert seen == [len(LONG), 1]
        await client.close()


async def test_a_large_request_takes_effect_if_its_client_is_gone() -> None:
    async with running() as r:
        seen: list[int] = []
        remembering(r, seen)
        client = await r.client()
        client.send(ApiKey.LIST_GROUPS, 4, states_filter=LONG)
        await client.close()
        await until(lambda: seen == [len(LONG)])


class AsCompiled(Generator[Any, Any, Any], Awaitable[Any]):
    """What a coroutine of a compiled module is: a Generator, too."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: object) -> object:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> object:
        return self._coroutine.throw(*error)

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()


async def test_a_large_request_may_be_answered_in_steps_or_later() -> None:
    async with running() as r:

        def in_steps(ctx: RequestContext, request: Any) -> Iterator[None]:
            yield
            return {"groups": [{"group_id": str(len(request.states_filter))}]}  # type: ignore[return-value]

        async def later(ctx: RequestContext, request: Any) -> dict[str, Any]:
            loop = asyncio.get_running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            loop.call_soon(turn.set_result, None)
            await turn
            return {"groups": [{"group_id": str(len(request.states_filter))}]}

        def later_if_compiled(ctx: RequestContext, request: Any) -> AsCompiled:
            return AsCompiled(later(ctx, request))

        client = await r.client()
        for handle in (in_steps, later, later_if_compiled):
            r.node.cold = handle  # type: ignore[assignment]
            for wanted in (LONG, ["a"]):
                answer = await client.ask(ApiKey.LIST_GROUPS, 4, states_filter=wanted)
                assert [group.group_id for group in answer.groups] == [str(len(wanted))]
        await client.close()


async def test_a_request_that_is_answered_before_its_work_yields_does_not_hold_its_connection() -> None:
    async with running() as r:

        def answer_first(ctx: RequestContext, request: Any) -> Iterator[None]:
            ctx.respond_fields(groups=[])
            yield

        r.node.cold = answer_first  # type: ignore[assignment]
        client = await r.client()
        for _ in range(3):
            assert not (await client.ask(ApiKey.LIST_GROUPS, 4, states_filter=[])).groups
        await client.close()


async def test_an_error_of_a_large_request_is_answered() -> None:
    async with running() as r:

        def refuse(ctx: RequestContext, request: Any) -> None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        r.node.cold = refuse
        client = await r.client()
        answer = await client.ask(ApiKey.LIST_GROUPS, 4, states_filter=LONG)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await client.close()


async def test_an_undecodable_large_request_closes_its_connection() -> None:
    async with running() as r:
        client = await r.client()
        body = messages.encode_request(ApiKey.LIST_GROUPS, 4, states_filter=LONG)
        client.send_raw(ApiKey.LIST_GROUPS, 4, body[:-100])
        assert await client.closed()
        await client.close()


async def test_large_requests_that_wait_are_bounded() -> None:
    async with running() as r:
        work = r.server.dispatcher.scheduler
        assert work.reserve(MAX_RESERVED_BYTES)
        client = await r.client()
        client.send(ApiKey.LIST_GROUPS, 4, states_filter=LONG)
        assert await client.closed()
        await client.close()
        work.release(MAX_RESERVED_BYTES)
        other = await r.client()
        assert not (await other.ask(ApiKey.LIST_GROUPS, 4, states_filter=LONG)).groups
        assert work.reserved == 0
        await other.close()


class Unanswered:
    """How many large requests are handled and not answered yet, and the most that ever were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = 0
        encode = messages.encode_large_response

        def encoded(*given: Any, **fields: Any) -> Iterator[None]:
            for _ in range(5):
                yield
            body = yield from encode(*given, **fields)
            self.now -= 1
            return body  # type: ignore[return-value]

        monkeypatch.setattr(messages, "encode_large_response", encoded)

    def add(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)


@pytest.mark.parametrize("returns", [True, False])
async def test_a_large_request_begins_when_there_is_room_for_its_answer(
    returns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decoded and its answer take many times the memory of the request's bytes, which alone are counted."""
    unanswered = Unanswered(monkeypatch)
    async with running() as r:

        def handle(ctx: RequestContext, request: Any) -> dict[str, Any] | None:
            unanswered.add()
            if returns:
                return {"groups": []}
            ctx.respond_fields(groups=[])
            return None

        r.node.cold = handle
        clients = [await r.client() for _ in range(5 * scheduler.MAX_CONCURRENT_JOBS)]
        for client in clients:
            client.send(ApiKey.LIST_GROUPS, 4, states_filter=LONG)
        for client in clients:
            await client.receive()
            await client.close()
        assert unanswered.now == 0 and 1 < unanswered.most <= scheduler.MAX_CONCURRENT_JOBS
        assert r.server.dispatcher.scheduler.reserved == 0


async def test_an_error_after_its_answer_was_given_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as r:

        def handle(ctx: RequestContext, request: Any) -> None:
            ctx.respond_fields(groups=[])
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        r.node.cold = handle
        client = await r.client()
        answer = await client.ask(ApiKey.LIST_GROUPS, 4, states_filter=LONG)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        r.node.cold = lambda ctx, request: {"groups": []}
        assert not (await client.ask(ApiKey.LIST_GROUPS, 4, states_filter=LONG)).groups
        await client.close()
