"""The contract of connections: frames, order, one send per wake-up of the loop, pausing, closing, errors."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from tests.contract.peers import Peer, connected
from tests.contract.worlds import Surroundings, on, on_all_networks, on_asyncio, on_uvloop

MIB = 1024 * 1024


@on_all_networks
async def test_parts_and_frames_arrive_in_order(it: Surroundings) -> None:
    server, client = Peer(), Peer()
    await connected(it, server, client)
    client.connection.send([b"one\ntw", bytearray(b"o\n"), memoryview(b"three\n"), b""])
    client.connection.send([b"four\n"])
    await server.until(lambda: len(server.frames) == 4)
    assert server.frames == [b"one", b"two", b"three", b"four"]
    server.connection.send([b"back\n"])
    await client.until(lambda: client.frames == [b"back"])


@on_all_networks
async def test_data_that_is_sent_while_frames_are_handled_arrives_in_one_piece(it: Surroundings) -> None:
    server, client = Peer(on_frame=lambda peer, frame: peer.connection.send([frame, b"\n"])), Peer(chunks=True)
    await connected(it, server, client)
    client.connection.send([b"a\nb\nc\nd\n"])
    await client.until(lambda: client.bytes_received == 8)
    assert client.frames == [b"a\nb\nc\nd\n"]


@on_all_networks
async def test_a_handler_can_send_to_another_connection(it: Surroundings) -> None:
    other_server, other_client = Peer(), Peer(chunks=True)
    await connected(it, other_server, other_client)
    server, client = Peer(on_frame=lambda _peer, frame: other_server.connection.send([frame])), Peer()
    await connected(it, server, client)
    client.connection.send([b"a\nb\nc\n"])
    await other_client.until(lambda: other_client.bytes_received == 3)
    assert other_client.frames == [b"abc"]


@on_all_networks
async def test_many_small_parts_arrive(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    client.connection.send([b"%d," % number for number in range(5000)])
    expected = b"".join(b"%d," % number for number in range(5000))
    await server.until(lambda: server.bytes_received == len(expected))
    assert b"".join(server.frames) == expected


@on_all_networks
async def test_a_slow_reader_holds_the_sender_back_until_it_has_read(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    server.connection.pause_reading()
    for _ in range(16):
        client.connection.send([bytes(MIB)])
    await it.runtime.clock.sleep(0.05)
    held = client.connection.unsent()
    assert server.bytes_received == 0
    assert held > MIB
    assert client.writable_count == 0
    server.connection.resume_reading()
    await server.until(lambda: server.bytes_received == 16 * MIB)
    await client.until(lambda: client.writable_count == 1)
    assert client.connection.unsent() == 0


@on_all_networks
async def test_a_sender_is_notified_once_when_everything_is_sent(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    server.connection.pause_reading()
    sent: list[int] = []
    client.connection.send([bytes(16 * MIB)])
    client.connection.when_sent(lambda: sent.append(client.connection.unsent()))
    await it.runtime.clock.sleep(0.05)
    assert sent == []
    server.connection.resume_reading()
    await server.until(lambda: server.bytes_received == 16 * MIB)
    await client.until(lambda: client.writable_count == 1)
    client.connection.send([b"more"])
    await server.until(lambda: server.bytes_received == 16 * MIB + 4)
    assert sent == [0]


@on_all_networks
async def test_a_paused_connection_reads_no_further_frames(it: Surroundings) -> None:
    server, client = Peer(on_frame=lambda peer, _frame: peer.connection.pause_reading()), Peer()
    await connected(it, server, client)
    client.connection.send([b"one\n"])
    await server.until(lambda: server.frames == [b"one"])
    client.connection.send([b"two\n"])
    await it.runtime.clock.sleep(0.05)
    assert server.frames == [b"one"]
    server.connection.resume_reading()
    server.connection.resume_reading()
    await server.until(lambda: server.frames == [b"one", b"two"])


@on_all_networks
async def test_close_sends_the_queued_data_first(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    server.connection.pause_reading()
    client.connection.send([bytes(8 * MIB)])
    client.connection.close()
    client.connection.send([b"too late"])
    assert client.lost == []
    server.connection.resume_reading()
    await server.until(lambda: server.lost == [None])
    assert server.bytes_received == 8 * MIB
    await client.until(lambda: client.lost == [None])
    assert client.framer.closed_count == server.framer.closed_count == 1


@on_all_networks
async def test_close_in_a_handler_sends_the_response_and_handles_no_further_frame(it: Surroundings) -> None:
    def answer(peer: Peer, frame: bytes) -> None:
        peer.connection.send([b"bye " + frame + b"\n"])
        peer.connection.close()
        assert peer.lost == []

    server, client = Peer(on_frame=answer), Peer()
    await connected(it, server, client)
    client.connection.send([b"one\ntwo\n"])
    await client.until(lambda: len(client.lost) == 1)
    assert client.frames == [b"bye one"]
    assert server.frames == [b"one"]


@on_all_networks
async def test_abort_discards_the_queued_data(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    server.connection.pause_reading()
    client.connection.send([bytes(16 * MIB)])
    client.connection.abort()
    client.connection.abort()
    assert client.connection.unsent() == 0
    await client.until(lambda: client.lost == [None])
    server.connection.resume_reading()
    await server.until(lambda: len(server.lost) == 1)
    assert server.bytes_received < 16 * MIB


@on_all_networks
async def test_an_invalid_frame_closes_the_connection(it: Surroundings) -> None:
    server, client = Peer(on_frame=lambda peer, frame: peer.connection.send([frame, b"\n"])), Peer()
    await connected(it, server, client)
    client.connection.send([b"good\n!\nnever\n"])
    await server.until(lambda: len(server.lost) == 1)
    assert [type(error).__name__ for error in server.lost] == ["FrameError"]
    assert server.frames == [b"good"]
    await client.until(lambda: len(client.lost) == 1)
    assert client.frames == [b"good"]


@on_all_networks
async def test_connecting_to_a_port_without_a_listener_is_refused(it: Surroundings) -> None:
    listener = await it.runtime.network.listen("127.0.0.1", 0, lambda: (Peer().framer, Peer()))
    port = listener.port
    listener.close()
    listener.close()
    with pytest.raises(ConnectionRefusedError, match=f"127.0.0.1:{port}"):
        await it.runtime.network.connect("127.0.0.1", port, Peer().framer, Peer(), timeout=5)


@on_all_networks
async def test_the_error_for_a_port_in_use_names_the_port(it: Surroundings) -> None:
    listener = await it.runtime.network.listen("127.0.0.1", 0, lambda: (Peer().framer, Peer()))
    with pytest.raises(OSError, match=f"127.0.0.1:{listener.port}: address already in use") as raised:
        await it.runtime.network.listen("127.0.0.1", listener.port, lambda: (Peer().framer, Peer()))
    assert raised.value.errno == errno.EADDRINUSE
    listener.close()


@on_all_networks
async def test_the_error_for_an_unknown_host_names_the_host(it: Surroundings) -> None:
    with pytest.raises(OSError, match=r"cannot resolve 'nowhere\.invalid'"):
        await it.runtime.network.connect("nowhere.invalid", 1, Peer().framer, Peer(), timeout=5)


@on_all_networks
async def test_accepted_connections_outlive_their_listener(it: Surroundings) -> None:
    server, client = Peer(), Peer()
    listener = await connected(it, server, client)
    listener.close()
    client.connection.send([b"still\n"])
    await server.until(lambda: server.frames == [b"still"])


@on_all_networks
async def test_a_connection_knows_the_address_of_its_peer(it: Surroundings) -> None:
    server, client = Peer(), Peer()
    listener = await connected(it, server, client)
    assert client.connection.peer == f"127.0.0.1:{listener.port}"
    assert server.connection.peer.rpartition(":")[2].isdecimal()


@on(on_asyncio, on_uvloop)
async def test_an_empty_host_listens_on_both_families(it: Surroundings) -> None:
    server, client = Peer(), Peer()
    listener = await it.runtime.network.listen("", 0, lambda: (server.framer, server))
    await it.runtime.network.connect("127.0.0.1", listener.port, client.framer, client, timeout=5)
    await server.until(lambda: hasattr(server, "connection"))
    assert server.connection.peer.startswith("127.0.0.1:")
    it.ending(listener.close, server.abort, client.abort)


@on(on_asyncio, on_uvloop)
async def test_a_reset_by_the_peer_is_noticed(it: Surroundings) -> None:
    await reset_after(it, b"")
    await reset_after(it, b"half a fra")


async def reset_after(it: Surroundings, begun: bytes) -> None:
    server = Peer()
    listener = await it.runtime.network.listen("127.0.0.1", 0, lambda: (server.framer, server))
    with socket.create_connection(("127.0.0.1", listener.port)) as plain:
        await server.until(lambda: hasattr(server, "connection"))
        plain.sendall(begun)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await server.until(lambda: len(server.lost) == 1)
    assert isinstance(server.lost[0], ConnectionResetError)
    listener.close()
