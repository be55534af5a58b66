"""Frames out of any stream, whatever its pieces, and closed connections for what is none."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from milena.protocol.requests.frames import (
    FIRST_OWN_SIZE,
    SHARED_SIZE,
    SPARE_LIMIT,
    TAIL_LIMIT,
    BadFrame,
    FrameDecoder,
    ReceiveBuffers,
    frame,
)
from milena.protocol.requests.memory_budget import MemoryBudget
from tests.fixtures.properties import examples

MAX_SIZE = 100 << 20


def buffers(limit: int = 1 << 30) -> ReceiveBuffers:
    return ReceiveBuffers(MemoryBudget(limit, lambda: 0.0))


def feed(decoder: FrameDecoder, data: bytes) -> Iterator[bytes]:
    """Receive ``data`` in as few pieces as the decoder's buffers allow."""
    while data:
        room = decoder.get_buffer()
        assert len(room) > 0
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        yield from map(bytes, decoder.buffer_updated(count))


def framed(*contents: bytes) -> bytes:
    return b"".join(len(content).to_bytes(4, "big") + content for content in contents)


SIZES = st.one_of(
    st.integers(0, 50),
    st.sampled_from(
        [TAIL_LIMIT - 4, TAIL_LIMIT - 3, TAIL_LIMIT, SHARED_SIZE - 4, SHARED_SIZE, SHARED_SIZE + 1, 900_000]
    ),
)


@settings(max_examples=examples(60))
@given(
    sizes=st.lists(st.lists(SIZES, max_size=6), min_size=1, max_size=3),
    pieces=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 400_000)), max_size=40),
)
@example(sizes=[[900_000], [900_000]], pieces=[(0, 300_000), (1, 300_000)] * 10)
def test_interleaved_streams_in_any_pieces_give_their_frames(
    sizes: list[list[int]], pieces: list[tuple[int, int]]
) -> None:
    shared = buffers()
    contents = [[bytes([65 + index]) * size for index, size in enumerate(stream)] for stream in sizes]
    streams = [framed(*stream) for stream in contents]
    decoders = [FrameDecoder(shared, MAX_SIZE) for _ in streams]
    got: list[list[bytes]] = [[] for _ in streams]
    for index, count in [*pieces, *((index, len(stream)) for index, stream in enumerate(streams))]:
        which = index % len(streams)
        got[which] += feed(decoders[which], streams[which][:count])
        streams[which] = streams[which][count:]
    assert got == contents
    assert shared.budget.used == 0


@settings(max_examples=examples(100))
@given(
    contents=st.lists(SIZES, max_size=8),
    piece=st.integers(20_000, 400_000),
    refused=st.sets(st.integers(0, 40)),
    between=st.booleans(),
)
@example(contents=[5, 900_000, 5, TAIL_LIMIT], piece=400_000, refused={0, 1, 2, 3, 4}, between=True)
def test_frames_that_are_put_by_come_again_in_order(
    contents: list[int], piece: int, refused: set[int], between: bool
) -> None:
    shared = buffers()
    decoder, other = FrameDecoder(shared, MAX_SIZE), FrameDecoder(shared, MAX_SIZE)
    expected = [bytes([65 + index]) * size for index, size in enumerate(contents)]
    got: list[bytes] = []
    seen = [0]

    def handle(frames: Iterator[memoryview]) -> None:
        for one in frames:
            seen[0] += 1
            if seen[0] in refused:
                decoder.store(one)
            else:
                got.append(bytes(one))

    data = framed(*expected)
    while data or decoder.has_stored:
        if decoder.has_stored:
            assert shared.budget.used > 0
            if between:
                assert list(feed(other, framed(b"other" * 1000))) == [b"other" * 1000]
            handle(decoder.stored_frames())
            continue
        room = decoder.get_buffer()
        count = min(len(room), len(data), piece)
        room[:count] = data[:count]
        data = data[count:]
        only = decoder.only_frame(count)
        handle(decoder.buffer_updated(count) if only is None else iter((only,)))
    assert got == expected
    assert shared.budget.used == 0


@settings(max_examples=examples(300))
@given(st.lists(st.binary(max_size=40), max_size=10))
def test_any_bytes_are_frames_or_a_bad_frame(pieces: list[bytes]) -> None:
    shared = buffers()
    decoder = FrameDecoder(shared, 64)
    data = b""
    try:
        for piece in pieces:
            data += piece
            for content in feed(decoder, piece):
                assert data[:4] == len(content).to_bytes(4, "big")
                assert data[4 : 4 + len(content)] == content
                data = data[4 + len(content) :]
    except BadFrame:
        size = int.from_bytes(data[:4], "big", signed=True)
        assert not 0 <= size <= 64
    decoder.closed()
    assert shared.budget.used == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"\x7f\xff\xff\xff",
        b"\x06\x40\x00\x01",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["minus one", "least int", "greatest int", "one above the limit", "TLS hello", "HTTP"],
)
def test_what_is_no_frame_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(BadFrame, match=r"a frame of -?\d+ bytes"):
        list(feed(FrameDecoder(buffers(), MAX_SIZE), data))


def test_a_frame_of_the_greatest_size_and_an_empty_one_are_frames() -> None:
    decoder = FrameDecoder(buffers(), 100)
    assert list(feed(decoder, framed(b"x" * 100, b"", b"y"))) == [b"x" * 100, b"", b"y"]


def test_frames_before_a_bad_one_are_delivered() -> None:
    got = []
    with pytest.raises(BadFrame):
        for content in feed(FrameDecoder(buffers(), 100), framed(b"good") + b"\xff\xff\xff\xff"):
            got.append(content)
    assert got == [b"good"]


def test_a_frame_is_writable_in_place() -> None:
    shared = buffers()
    decoder = FrameDecoder(shared, MAX_SIZE)
    for size in (10, 500_000):
        data = framed(bytes(size))
        while data:
            room = decoder.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            for content in decoder.buffer_updated(count):
                content[0:2] = b"ok"
                assert bytes(content[:3]) == b"ok\x00"
                assert len(content) == size


def test_idle_connections_hold_no_buffer() -> None:
    shared = buffers()
    decoders = [FrameDecoder(shared, MAX_SIZE) for _ in range(100)]
    for decoder in decoders:
        assert list(feed(decoder, framed(b"hello"))) == [b"hello"]
        assert decoder.get_buffer() is shared.shared
    assert shared.budget.used == 0


def test_announcing_a_huge_frame_costs_what_arrives_and_not_what_was_announced() -> None:
    shared = buffers()
    decoders = [FrameDecoder(shared, MAX_SIZE) for _ in range(300)]
    for decoder in decoders:
        assert list(feed(decoder, MAX_SIZE.to_bytes(4, "big") + b"1234")) == []
    assert shared.budget.used == 300 * 8
    assert list(feed(decoders[0], bytes(TAIL_LIMIT))) == []
    assert shared.budget.used <= 300 * 8 + FIRST_OWN_SIZE
    assert list(feed(decoders[0], bytes(FIRST_OWN_SIZE))) == []
    assert shared.budget.used <= 300 * 8 + 4 * FIRST_OWN_SIZE


def _note(gone: list[int], which: int, _reason: str) -> None:
    gone.append(which)


def test_the_budget_bounds_unfinished_frames_over_all_connections_and_a_newcomer_gets_in() -> None:
    clock, gone = [0.0], list[int]()
    shared = ReceiveBuffers(MemoryBudget(2 * FIRST_OWN_SIZE, lambda: clock[0]))
    decoders = [FrameDecoder(shared, MAX_SIZE, partial(_note, gone, which)) for which in range(4)]
    start = MAX_SIZE.to_bytes(4, "big") + bytes(TAIL_LIMIT)
    for decoder in decoders[:3]:
        assert list(feed(decoder, start)) == []
        assert shared.budget.used <= shared.budget.limit
        clock[0] += 1
    assert gone == [0], "the one that has held as much for longest"
    assert list(feed(decoders[3], framed(b"x" * TAIL_LIMIT * 2))) == [b"x" * TAIL_LIMIT * 2]
    assert list(feed(FrameDecoder(shared, MAX_SIZE), framed(b"small"))) == [b"small"]
    for decoder in decoders:
        decoder.closed()
    assert shared.budget.used == 0


def test_a_frame_larger_than_all_that_may_be_held_ends_its_own_connection_alone() -> None:
    shared, gone = buffers(limit=FIRST_OWN_SIZE), list[str]()
    other = FrameDecoder(shared, MAX_SIZE, gone.append)
    assert list(feed(other, framed(b"1234")[:6])) == []
    large = FrameDecoder(shared, MAX_SIZE, lambda reason: gone.append(f"large: {reason}"))
    with pytest.raises(BadFrame, match="an unfinished request: more than 131072 bytes at once"):
        list(feed(large, framed(bytes(3 * FIRST_OWN_SIZE))))
    assert gone == ["large: an unfinished request: more than 131072 bytes at once"]
    assert shared.budget.used == 6


def test_a_connection_that_closes_while_its_frame_is_handled_gives_everything_back() -> None:
    shared = buffers()
    decoder = FrameDecoder(shared, MAX_SIZE)
    data = framed(b"one", b"two") + b"\x00\x00"
    room = decoder.get_buffer()
    room[: len(data)] = data
    for _ in decoder.buffer_updated(len(data)):
        decoder.closed()
    decoder.closed()
    assert shared.budget.used == 0


def test_large_buffers_are_used_again_and_their_number_is_bounded() -> None:
    shared = buffers()
    taken = [shared.take(1 << 20) for _ in range(5)]
    for buffer in taken:
        shared.give(buffer)
    assert shared.take(1 << 20) is taken[3]
    assert shared.take(1 << 19) is taken[4]
    assert all(shared.take(1 << 20) is not buffer for buffer in taken)
    shared.give(memoryview(bytearray(SPARE_LIMIT + 1)))
    assert len(shared.take(1)) == 1


def test_a_shared_buffer_must_have_room_behind_a_tail() -> None:
    with pytest.raises(ValueError, match="cannot hold a tail"):
        ReceiveBuffers(MemoryBudget(1, lambda: 0.0), TAIL_LIMIT)


def test_a_frame_has_the_length_of_all_its_parts() -> None:
    class FileRange:
        length = 1000

    records = FileRange()
    assert frame([b"ab", memoryview(b"cde"), bytearray(b"f"), records]) == [
        (1006).to_bytes(4, "big"),
        b"ab",
        b"cde",
        b"f",
        records,
    ]
