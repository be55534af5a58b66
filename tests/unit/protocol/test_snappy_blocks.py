"""Large blocks of snappy are opened in bounded memory, to the same content as in one call."""

from __future__ import annotations

import tracemalloc

import cramjam
import pytest

from milena.protocol.records import snappy_blocks
from milena.protocol.records.batch import Codec, CorruptBatch
from milena.protocol.records.decompression import XERIAL_HEADER, decompressed, memory_needed
from milena.protocol.records.snappy_blocks import (
    ELEMENTS_PER_YIELD,
    MAX_WHOLE_BLOCK,
    PIECE,
    RATIO,
    STEP,
    WINDOW,
    decompress_block,
)
from milena.runtime.randomness import Randomness

MIB = 1 << 20


def varint(value: int) -> bytes:
    return bytes([value >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)]) + bytes([value >> 28])


def pieces(block: bytes) -> list[bytes]:
    return list(decompress_block(memoryview(block), cramjam))


def packed(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(content))


def mixed(size: int, seed: int) -> bytes:
    """Runs, repetitions from far and near, and noise."""
    random = Randomness(seed)
    out = bytearray()
    while len(out) < size:
        kind = random.below(4)
        if kind == 0:
            out += bytes([random.below(256)]) * (1 + random.below(200_000))
        elif kind == 1:
            out += random.bytes(16) * (1 + random.below(3))
        elif kind == 2 and out:
            start = random.below(len(out))
            out += out[start : start + 1 + random.below(50_000)]
        else:
            out += random.bytes(1 + random.below(80_000))
    return bytes(out[:size])


CONTENTS = {
    "mixed": lambda: mixed(9 * MIB, 1),
    "noise": lambda: Randomness(6).bytes(9 * MIB),
    "zeros": lambda: bytes(20 * MIB),
    "just beyond": lambda: mixed(MAX_WHOLE_BLOCK + 1, 2),
    "at once": lambda: mixed(MAX_WHOLE_BLOCK, 3),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("xerial", [False, True])
def test_the_content_is_that_of_one_call(name: str, xerial: bool) -> None:
    content = CONTENTS[name]()
    block = packed(content)
    data = XERIAL_HEADER + len(block).to_bytes(4, "big") + block if xerial else block
    assert b"".join(decompressed(Codec.SNAPPY, memoryview(data))) == content


def test_literals_and_copies_of_all_forms() -> None:
    """Literals longer than a step, offsets of 1, 2 and 4 bytes, as far back as the window reaches."""
    literal = mixed(STEP + 5, 4)
    elements = [bytes([63 << 2]) + (len(literal) - 1).to_bytes(4, "little") + literal]
    made = bytearray(literal)

    def copy(offset: int, length: int) -> None:
        if offset < 2048 and 4 <= length <= 11:
            elements.append(bytes([offset >> 8 << 5 | (length - 4) << 2 | 1, offset & 0xFF]))
        elif offset < 1 << 16:
            elements.append(bytes([(length - 1) << 2 | 2]) + offset.to_bytes(2, "little"))
        else:
            elements.append(bytes([(length - 1) << 2 | 3]) + offset.to_bytes(4, "little"))
        for _ in range(length):
            made.append(made[-offset])

    while len(made) < WINDOW + 3 * STEP:
        copy(1, 7)
        copy(65_535, 64)
        copy(min(len(made), WINDOW) - 1, 64)
        for short in (b"x", b"y" * 60, b"z" * 61, b"w" * 300):
            size = len(short) - 1
            head = bytes([size << 2]) if size < 60 else bytes([61 << 2]) + size.to_bytes(2, "little")
            elements.append(head + short)
            made += short
    block = varint(len(made)) + b"".join(elements)
    assert bytes(cramjam.snappy.decompress_raw(block)) == made
    assert b"".join(pieces(block)) == made


def test_pieces_and_the_work_between_them_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    element = snappy_blocks._element

    def counting(block: memoryview, position: int) -> tuple[int, int]:
        nonlocal looked
        looked += 1
        return element(block, position)

    monkeypatch.setattr(snappy_blocks, "_element", counting)
    block = varint(MAX_WHOLE_BLOCK + 1) + b"\x00x" * (MAX_WHOLE_BLOCK + 1)
    before = 0
    for piece in decompress_block(memoryview(block), cramjam):
        assert len(piece) <= PIECE and looked - before <= ELEMENTS_PER_YIELD
        before = looked


def test_memory_does_not_grow_with_the_content(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_needed(Codec.SNAPPY, memoryview(bytes(100 * MIB))) < 64 * MIB
    for name in ("MAX_WHOLE_BLOCK", "STEP", "WINDOW"):
        monkeypatch.setattr(snappy_blocks, name, getattr(snappy_blocks, name) // 32)
    block = packed(bytes(8 * MIB))
    tracemalloc.start()
    total = sum(len(piece) for piece in decompress_block(memoryview(block), cramjam))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 8 * MIB
    assert peak < snappy_blocks.memory_needed(len(block)) < 2 * MIB


LARGE = packed(mixed(9 * MIB, 5))


@pytest.mark.parametrize(
    "block",
    [
        LARGE[:-1],
        LARGE[: len(LARGE) // 2],
        LARGE + b"\x00x",
        varint(10 * MIB) + LARGE[4:],
        varint(8 * MIB) + LARGE[4:],
        varint(MAX_WHOLE_BLOCK + 1) + b"\x05\xff" * MAX_WHOLE_BLOCK,
        varint(MAX_WHOLE_BLOCK + 64) + packed(bytes(MAX_WHOLE_BLOCK))[4:] + b"\xfe\x00\x00",
        varint(RATIO * 4096) + bytes(10),
        varint(MAX_WHOLE_BLOCK + 1) + b"\xfc",
    ],
    ids=["cut", "half", "more", "too short", "too long", "before the start", "offset 0", "a lie", "a cut literal"],
)
def test_damage_is_reported(block: bytes) -> None:
    with pytest.raises(CorruptBatch):
        pieces(block)


def test_references_beyond_the_window_are_reported() -> None:
    size = WINDOW + STEP + 1
    literal = bytes([63 << 2]) + (size - 1).to_bytes(4, "little") + bytes(size)
    block = varint(size + 64) + literal + bytes([63 << 2 | 3]) + (WINDOW + 1).to_bytes(4, "little")
    with pytest.raises(CorruptBatch):
        pieces(block)
