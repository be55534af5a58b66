"""A channel connects when it is used, learns versions, matches answers, and says when a peer is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from milena.node.api import RequestContext
from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.process import real_runtime
from tests.unit.node.peers import Endpoint, Running, running, until


@contextlib.asynccontextmanager
async def linked(request_timeout: float = 5.0) -> AsyncIterator[tuple[Running, Channel]]:
    async with running() as r:
        host, port = r.server.bound["PLAINTEXT"]
        channel = Channel(real_runtime(), host, port, "channel", request_timeout=request_timeout)
        try:
            yield r, channel
        finally:
            channel.close()


async def test_a_request_is_sent_in_the_highest_version_both_sides_know() -> None:
    async with linked() as (r, channel):
        seen: list[tuple[int, str | None]] = []

        def cold(ctx: RequestContext, request: Any) -> dict[str, Any]:
            seen.append((ctx.version, ctx.client_id))
            return {"groups": [{"group_id": "g"}]}

        r.node.cold = cold
        response = await channel.request(ApiKey.LIST_GROUPS, states_filter=[])
        assert response.groups[0].group_id == "g"
        assert seen == [(4, "channel")]


async def test_an_old_peer_is_asked_for_its_versions_again_in_version_0() -> None:
    async with linked() as (r, channel):
        r.node.newest_api_versions = 2
        r.node.versions[ApiKey.LIST_GROUPS] = (0, 1)
        await channel.connect()
        assert channel.choose(ApiKey.LIST_GROUPS) == 1


async def test_a_connect_learns_the_finalized_features() -> None:
    async with linked() as (r, channel):
        r.node.features, r.node.features_epoch = {"transaction.version": 2}, 17
        await channel.connect()
        assert (channel.features, channel.features_epoch) == ({"transaction.version": 2}, 17)


async def test_a_version_the_peer_lacks_is_an_error_that_names_it() -> None:
    async with linked() as (_, channel):
        with pytest.raises(KafkaError, match=r"serves LIST_GROUPS in versions 0-4, not 5") as caught:
            await channel.request(ApiKey.LIST_GROUPS, 5)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError, match="serves END_TXN in versions none"):
            await channel.request(ApiKey.END_TXN)


async def test_answers_find_the_requests_they_belong_to() -> None:
    async with linked() as (_, channel):

        async def echo(number: int) -> int:
            return await channel.request_raw(ApiKey.PRODUCE, 9, [b"%d" % number], lambda body: int(bytes(body)))

        assert await asyncio.gather(*(echo(number) for number in range(20))) == list(range(20))


async def test_when_the_connection_breaks_what_waits_fails_and_the_next_request_connects_again() -> None:
    async with linked() as (r, channel):
        held: list[RequestContext] = []
        r.node.raw = lambda ctx, body: held.append(ctx)
        waiting = [asyncio.ensure_future(channel.request_raw(ApiKey.PRODUCE, 9, [b""], bytes)) for _ in range(2)]
        await until(lambda: len(held) == 2)
        held[0].disconnect("the test wants it")
        for future in waiting:
            with pytest.raises(ChannelError):
                await future
        assert not channel.connected
        await channel.request(ApiKey.LIST_GROUPS)
        assert channel.connected


async def test_a_late_answer_times_out_and_the_connection_is_given_up() -> None:
    async with linked(request_timeout=0.02) as (r, channel):
        r.node.raw = lambda ctx, body: None
        with pytest.raises(KafkaError, match=r"did not answer PRODUCE within 0\.02 s") as caught:
            await channel.request_raw(ApiKey.PRODUCE, 9, [b""], bytes)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert not channel.connected


async def test_a_cancelled_request_leaves_the_others_alone() -> None:
    async with linked() as (r, channel):
        held: list[RequestContext] = []
        r.node.raw = lambda ctx, body: held.append(ctx)
        futures = [asyncio.ensure_future(channel.request_raw(ApiKey.PRODUCE, 9, [b""], bytes)) for _ in range(2)]
        await until(lambda: len(held) == 2)
        futures[0].cancel()
        for ctx in held:
            ctx.respond([b"x"])
        assert await futures[1] == b"x"


async def test_a_request_without_an_answer_is_only_sent() -> None:
    async with linked() as (r, channel):
        got: list[bytes] = []

        def raw(ctx: RequestContext, body: memoryview) -> None:
            got.append(bytes(body))
            ctx.no_response()

        r.node.raw = raw
        await channel.send_only(ApiKey.PRODUCE, 9, [b"once"])
        await channel.request(ApiKey.LIST_GROUPS)
        assert got == [b"once"]


async def test_an_unreachable_peer_is_named_and_asked_again_only_after_a_pause() -> None:
    async with running() as r:
        host, port = r.server.bound["PLAINTEXT"]
        await r.server.stop()
        runtime = real_runtime()
        channel = Channel(runtime, host, port, "channel")
        with pytest.raises(ChannelError, match=rf"cannot connect to {host}:{port}"):
            await channel.connect()
        before = runtime.clock.monotonic()
        with pytest.raises(ChannelError):
            await channel.connect()
        assert runtime.clock.monotonic() - before >= 0.03
    async with running(endpoint=Endpoint(port=port)):
        await channel.connect()
        channel.close()
    with pytest.raises(ChannelError, match="is closed"):
        await channel.connect()


async def test_a_repeated_request_goes_on_until_there_is_no_next_one() -> None:
    async with linked() as (_, channel):
        seen: list[bytes] = []

        def take(body: memoryview) -> list[bytes] | None:
            seen.append(bytes(body))
            return [b"%d" % len(seen)] if len(seen) < 4 else None

        await channel.repeat(ApiKey.PRODUCE, 3, [b"0"], take, timeout=5)
        assert seen == [b"0", b"1", b"2", b"3"]


async def test_a_repeated_request_that_is_not_answered_any_more_times_out() -> None:
    async with linked() as (r, channel):
        answered: list[bytes] = []

        def raw(ctx: RequestContext, body: memoryview) -> None:
            if not answered:
                ctx.respond([bytes(body)])

        def take(body: memoryview) -> list[bytes]:
            answered.append(bytes(body))
            return [b"again"]

        r.node.raw = raw
        with pytest.raises(KafkaError, match=r"did not answer PRODUCE within 0\.05 s"):
            await channel.repeat(ApiKey.PRODUCE, 3, [b"once"], take, timeout=0.05)
        assert answered == [b"once"]


async def test_what_taking_a_repeated_answer_raises_reaches_the_caller() -> None:
    def take(body: memoryview) -> None:
        raise KafkaError(ErrorCode.INVALID_RECORD, "no")

    async with linked() as (_, channel):
        with pytest.raises(KafkaError, match="no"):
            await channel.repeat(ApiKey.PRODUCE, 3, [b"once"], take, timeout=5)
        assert channel.connected


async def test_an_answer_that_cannot_be_used_costs_the_connection(capsys: pytest.CaptureFixture[str]) -> None:
    def take(body: memoryview) -> None:
        raise UnicodeError("unexpected")

    async with linked() as (_, channel):
        with pytest.raises(ChannelError, match="answered PRODUCE with an answer that cannot be used: unexpected"):
            await channel.repeat(ApiKey.PRODUCE, 3, [b"once"], take, timeout=5)
        assert not channel.connected
    assert "answer to PRODUCE failed" in capsys.readouterr().err
