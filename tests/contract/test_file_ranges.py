"""The contract of sending ranges of files: with sendfile, with reads, and in the simulation."""

from __future__ import annotations

from milena.runtime.disk import File
from milena.runtime.network import FileRange
from tests.contract.peers import Peer, connected
from tests.contract.worlds import Surroundings, on_all_networks

CONTENT = bytes(range(256)) * 4096 * 6
"""6 MiB: more than is sent after one wake-up of the event loop."""


def a_file(it: Surroundings, content: bytes = CONTENT) -> File:
    file = it.runtime.disk.open(f"{it.folder}/file", create=True)
    file.append([content])
    return file


@on_all_networks
async def test_ranges_and_memory_arrive_in_order(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    file = a_file(it)
    client.connection.send([b"<", FileRange(file, 3, 5), b"|", FileRange(file, 0, 0), FileRange(file, 100, 2), b">"])
    client.connection.send([FileRange(file, 0, len(CONTENT)), b"."])
    expected = b"<" + CONTENT[3:8] + b"|" + CONTENT[100:102] + b">" + CONTENT + b"."
    assert client.connection.unsent() <= len(expected)
    await server.until(lambda: server.bytes_received == len(expected))
    assert b"".join(server.frames) == expected


@on_all_networks
async def test_many_small_ranges_arrive_in_order(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    file = a_file(it)
    server.connection.pause_reading()
    for number in range(2000):
        client.connection.send([b"|", FileRange(file, number, 3000)])
    server.connection.resume_reading()
    expected = b"".join(b"|" + CONTENT[number : number + 3000] for number in range(2000))
    await server.until(lambda: server.bytes_received == len(expected))
    assert b"".join(server.frames) == expected


@on_all_networks
async def test_a_file_closed_and_removed_meanwhile_is_still_sent(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    file = a_file(it)
    server.connection.pause_reading()
    client.connection.send([FileRange(file, 0, len(CONTENT)), FileRange(file, 0, len(CONTENT))])
    file.close()
    it.runtime.disk.remove(file.path)
    server.connection.resume_reading()
    await server.until(lambda: server.bytes_received == 2 * len(CONTENT))
    assert b"".join(server.frames) == 2 * CONTENT


@on_all_networks
async def test_a_range_that_was_created_before_its_file_was_closed_can_be_sent(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    file = a_file(it, b"content")
    part = FileRange(file, 0, 7)
    file.close()
    client.connection.send([part])
    await server.until(lambda: server.bytes_received == 7)


@on_all_networks
async def test_a_file_that_is_too_short_closes_the_connection(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    client.connection.send([b"head", FileRange(a_file(it, b"short"), 0, 10), b"tail"])
    await client.until(lambda: len(client.lost) == 1)
    assert isinstance(client.lost[0], OSError)
    await server.until(lambda: len(server.lost) == 1)
    assert b"tail" not in b"".join(server.frames)


@on_all_networks
async def test_a_slow_reader_of_files_holds_the_sender_back(it: Surroundings) -> None:
    server, client = Peer(chunks=True), Peer()
    await connected(it, server, client)
    file = a_file(it)
    server.connection.pause_reading()
    for _ in range(3):
        client.connection.send([FileRange(file, 0, len(CONTENT))])
    await it.runtime.clock.sleep(0.05)
    assert client.connection.unsent() > len(CONTENT)
    server.connection.resume_reading()
    await server.until(lambda: server.bytes_received == 3 * len(CONTENT))
    await client.until(lambda: client.writable_count == 1)
