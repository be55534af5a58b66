"""Links over the real and the simulated network: a cut link holds bytes back until it is healed, on outgoing and on
accepted connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from milena.node.links.links import Direction, Links
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests.headers import request_header
from tests.contract.peers import Peer, connected
from tests.contract.worlds import Surroundings, in_both_worlds

NODE = 7
CALLER = "broker-2-fetcher-0"
FIRST = request_header(ApiKey.API_VERSIONS, 3, 0, CALLER)
MIB = 1 << 20


def linked(it: Surroundings) -> tuple[Surroundings, Links]:
    """The surroundings with a network of ``Links`` that takes every address for one of node 7."""
    links = Links(it.runtime.network, it.runtime.clock, lambda host, port: NODE)
    return replace(it, runtime=replace(it.runtime, network=links)), links


async def quiet(it: Surroundings) -> None:
    """Sleep long enough for bytes in flight to arrive."""
    await it.runtime.clock.sleep(0.05)


@in_both_worlds
async def test_bytes_that_are_sent_over_a_cut_link_arrive_when_it_is_healed(it: Surroundings) -> None:
    it, links = linked(it)
    server, client = Peer(), Peer()
    await connected(it, server, client)
    links.cut(NODE, "out")
    client.connection.send([b"one\n", b"two\n"])
    server.connection.send([b"back\n"])
    await client.until(lambda: client.frames == [b"back"])
    await quiet(it)
    assert (server.frames, client.connection.unsent()) == ([], 8)
    links.heal(NODE)
    client.connection.send([b"three\n"])
    await server.until(lambda: server.frames == [b"one", b"two", b"three"])


@in_both_worlds
async def test_bytes_that_arrive_over_a_cut_link_are_not_read_until_it_is_healed(it: Surroundings) -> None:
    it, links = linked(it)
    server, client = Peer(), Peer()
    await connected(it, server, client)
    links.cut(NODE, "in")
    server.connection.send([b"one\n"])
    client.connection.send([b"there\n"])
    await server.until(lambda: server.frames == [b"there"])
    await quiet(it)
    assert client.frames == []
    links.heal()
    server.connection.send([b"two\n"])
    await client.until(lambda: client.frames == [b"one", b"two"])


@in_both_worlds
async def test_the_first_request_of_an_accepted_connection_identifies_its_peer(
    it: Surroundings,
) -> None:
    it, links = linked(it)
    links.cut(2)
    server, client = Peer(), Peer()
    await connected(it, server, client)
    client.connection.send([FIRST, b"\n", b"next\n"])
    await quiet(it)
    assert server.frames == []
    other_server, other_client = Peer(), Peer()
    await connected(it, other_server, other_client)
    other_client.connection.send([request_header(ApiKey.API_VERSIONS, 3, 0, "broker-3-fetcher-0"), b"\n"])
    await other_server.until(lambda: len(other_server.frames) == 1)
    assert links.links() == [{"peer": "2", "direction": "both", "connections": 1}]
    links.heal(2)
    await server.until(lambda: server.frames == [FIRST, b"next"])


@in_both_worlds
async def test_connecting_over_a_cut_link_times_out_or_waits_until_it_is_healed(it: Surroundings) -> None:
    it, links = linked(it)
    network = it.runtime.network
    server, client = Peer(), Peer()
    listener = await network.listen("127.0.0.1", 0, lambda: (server.framer, server))
    it.ending(listener.close)
    links.cut(NODE)
    with pytest.raises(TimeoutError, match=r"connecting to 127\.0\.0\.1:\d+ took longer than 0\.05 s"):
        await network.connect("127.0.0.1", listener.port, client.framer, client, timeout=0.05)
    async with asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(network.connect("127.0.0.1", listener.port, client.framer, client, timeout=10))
        await quiet(it)
        assert not connecting.done()
        links.heal(NODE)
        connection = await connecting
    connection.send([b"hello\n"])
    await server.until(lambda: server.frames == [b"hello"])
    connection.abort()
    await client.until(lambda: client.lost == [None])


@in_both_worlds
async def test_the_other_side_notices_a_close_when_the_link_is_healed(it: Surroundings) -> None:
    it, links = linked(it)
    server, client = Peer(), Peer()
    await connected(it, server, client)
    links.cut(NODE)
    client.connection.send([b"last words\n"])
    client.connection.close()
    await client.until(lambda: client.lost == [None])
    await quiet(it)
    assert (server.frames, server.lost) == ([], [])
    links.heal(NODE)
    await server.until(lambda: bool(server.lost))
    assert server.frames == [b"last words"]
    assert client.lost == [None]


@in_both_worlds
async def test_a_close_by_the_other_side_is_noticed_when_the_link_is_healed(it: Surroundings) -> None:
    it, links = linked(it)
    server, client = Peer(), Peer()
    await connected(it, server, client)
    links.cut(NODE)
    server.connection.abort()
    await server.until(lambda: bool(server.lost))
    await quiet(it)
    assert client.lost == []
    links.heal(NODE)
    await client.until(lambda: len(client.lost) == 1)


@in_both_worlds
async def test_closing_and_aborting_a_connection_over_a_cut_link_reports_the_loss_once(it: Surroundings) -> None:
    it, links = linked(it)
    for direction in ("in", "out", "both"):
        server, client = Peer(), Peer()
        await connected(it, server, client)
        links.cut(NODE, direction)
        client.connection.close()
        client.connection.abort()
        await client.until(lambda client=client: client.lost == [None])  # type: ignore[misc]
        links.heal()
        await server.until(lambda server=server: bool(server.lost))  # type: ignore[misc]
        await quiet(it)
        assert client.lost == [None]


@in_both_worlds
async def test_a_sender_that_was_held_back_continues_after_the_link_is_healed(it: Surroundings) -> None:
    it, links = linked(it)
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    links.cut(NODE)
    client.connection.send([bytes(2 * MIB)])
    assert client.connection.unsent() == 2 * MIB
    links.heal(NODE)
    await server.until(lambda: server.bytes_received == 2 * MIB)
    await client.until(lambda: client.writable_count >= 1)


@in_both_worlds
async def test_a_link_that_is_cut_in_each_direction_is_cut_in_both(it: Surroundings) -> None:
    _, links = linked(it)
    links.cut("consumer", "in")
    assert links.cut("consumer", "out") == [{"peer": "consumer", "direction": "both", "connections": 0}]
    assert links.cut_to("consumer-1") is Direction.BOTH
    assert links.cut_to("producer-1") is Direction.NONE
