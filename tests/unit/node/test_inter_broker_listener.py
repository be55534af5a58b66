"""Clients that take all connections there may be do not shut out the cluster's own nodes."""

from __future__ import annotations

import pytest

from milena.node.serving.server import ServerLimits
from milena.protocol.api_keys import ApiKey
from milena.runtime.tcp import sockets as tcp
from tests.unit.node.peers import Client, Endpoint, Running, running, until

INTERNAL = Endpoint("INTERNAL")


@pytest.fixture
def few_descriptors(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Clients have taken theirs. Notes who asked, nodes or clients."""
    asked: list[bool] = []

    def room(fd: int, of_a_node: bool) -> bool:
        asked.append(of_a_node)
        return of_a_node

    monkeypatch.setattr(tcp, "room_for_a_connection", room)
    return asked


async def served(r: Running, listener: str) -> Client:
    client = await r.client(listener)
    await client.ask(ApiKey.LIST_GROUPS, 4)
    return client


async def test_brokers_have_descriptors_that_clients_may_not_take(few_descriptors: list[bool]) -> None:
    async with running(inter_broker=INTERNAL) as r:
        waiting = await r.client()
        broker = await served(r, "INTERNAL")
        assert set(few_descriptors) == {False, True}
        assert [one.caller.listener_name for one in r.server.connections()] == ["INTERNAL"]
        await broker.close()
        await waiting.close()


async def test_a_listener_that_brokers_share_with_clients_has_none(few_descriptors: list[bool]) -> None:
    async with running() as r:
        waiting = await r.client()
        await until(lambda: few_descriptors)
        assert not any(few_descriptors) and not list(r.server.connections())
        await waiting.close()


async def test_a_broker_takes_the_place_of_the_client_that_was_silent_longest() -> None:
    async with running(ServerLimits(max_connections=3), inter_broker=INTERNAL) as r:
        broker = await served(r, "INTERNAL")
        silent = await served(r, "PLAINTEXT")
        client = await served(r, "PLAINTEXT")
        second = await served(r, "INTERNAL")
        assert await silent.closed()
        for one in (broker, client, second):
            await one.ask(ApiKey.LIST_GROUPS, 4)
        late = await r.client()
        assert await late.closed(), "a client replaces no other connection"
        third = await served(r, "INTERNAL")
        assert await client.closed()
        fourth = await r.client("INTERNAL")
        assert await fourth.closed(), "no client is left that could give way"
        for one in (broker, silent, client, second, late, third, fourth):
            await one.close()
