"""Blocks of snappy: small ones are opened in one call, large ones some elements at a time.

A block says how long its content is, and may be as large as a batch (librdkafka and franz-go write one for the whole).
cramjam opens a block as a whole. So of a large one its elements are gone through, and as many as make a step become a
block of their own, behind the content before them, to which they may refer.

The format (google/snappy, format_description.txt): a varint with the length, then literals and copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from milena.protocol.records.batch import CorruptBatch

RATIO: Final = 22
"""A block grows at most so many times: 3 bytes copy 64."""
MAX_WHOLE_BLOCK: Final = 4 << 20
"""Bytes of content of a block that is decompressed in one call. Larger ones are decompressed in pieces."""
STEP: Final = 2 << 20
"""Content of a large block that is made at a time, at least; less than twice as much."""
WINDOW: Final = 8 << 20
"""So far elements of a large block may refer back. Encoders look back 64 KiB, as the format's own does; Go's s2 may
look back further."""
PIECE: Final = 64 << 10
LOOKS: Final = 4096
"""Elements that are gone through before other work may have its turn."""
_COPY_SIZES: Final = (2, 3, 5)
_LONG_LITERAL: Final = 60


def memory_needed(size: int) -> int:
    """Bytes that it takes at most to open blocks of ``size`` bytes, roughly: what is opened, and what that becomes."""
    return min(RATIO * size, MAX_WHOLE_BLOCK + 2 * WINDOW + 2 * (WINDOW + 2 * STEP))


def opened(block: memoryview, cramjam: ModuleType) -> Iterator[bytes]:
    """The content of a block, in pieces, some of them empty. Raises CorruptBatch."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > RATIO * len(block):
            raise CorruptBatch(f"snappy: {len(block)} bytes cannot become {size}")
        if size > MAX_WHOLE_BLOCK:
            yield from _Large(block, size, cramjam).pieces()
        else:
            out = bytearray(size)
            written: int = cramjam.snappy.decompress_raw_into(block, out)
            yield bytes(memoryview(out)[:written])
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from None


class _Large:
    def __init__(self, block: memoryview, size: int, cramjam: ModuleType) -> None:
        self._block = block
        self._cramjam = cramjam
        self._left = size
        """Content that is to come yet."""
        self._window = b""

    def pieces(self) -> Iterator[bytes]:
        block, end = self._block, len(self._block)
        first = position = _after_varint(block)
        made = looks = 0
        while position < end:
            after, length = _element(block, position)
            if length > STEP:  # a literal
                yield from self._open(first, position, made)
                yield from self._literal(block[after - length : after])
                first, made = after, 0
            else:
                made += length
            position = after
            looks += 1
            if made >= STEP:
                yield from self._open(first, position, made)
                first, made = position, 0
            elif looks % LOOKS == 0:
                yield b""
        yield from self._open(first, position, made)
        if self._left:
            raise CorruptBatch(f"snappy: a block lacks {self._left} bytes")

    def _open(self, first: int, end: int, made: int) -> Iterator[bytes]:
        """Elements that make so much."""
        if not made:
            return
        self._take(made)
        before = len(self._window)
        head = _varint(before + made) + (_literal_head(before) if before else b"")
        out = bytearray(before + made)
        part = b"".join((head, self._window, self._block[first:end]))
        self._window = b""
        if self._cramjam.snappy.decompress_raw_into(part, out) != len(out):
            raise CorruptBatch("snappy: a block is cut")
        del part
        content = memoryview(out)
        self._window = bytes(content[-WINDOW:])
        yield from _in_pieces(content[before:])

    def _literal(self, content: memoryview) -> Iterator[bytes]:
        self._take(len(content))
        self._window = b"".join((self._window, content[-WINDOW:]))[-WINDOW:]
        yield from _in_pieces(content)

    def _take(self, made: int) -> None:
        self._left -= made
        if self._left < 0:
            raise CorruptBatch("snappy: a block is longer than it says")


def _in_pieces(content: memoryview) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE):
        yield bytes(content[start : start + PIECE])


def _element(block: memoryview, position: int) -> tuple[int, int]:
    """Where the element at ``position`` ends, and how much it makes."""
    tag = block[position]
    kind = tag & 3
    if kind:
        after, length = position + _COPY_SIZES[kind - 1], (4 + (tag >> 2 & 7) if kind == 1 else 1 + (tag >> 2))
    else:
        length, after = tag >> 2, position + 1
        if length >= _LONG_LITERAL:
            start, after = after, after + length - _LONG_LITERAL + 1
            length = int.from_bytes(block[start:after], "little")
        length += 1
        after += length
    if after > len(block):
        raise CorruptBatch("snappy: a block is cut within an element")
    return after, length


def _after_varint(block: memoryview) -> int:
    """Behind the length, which cramjam has read."""
    return next(position for position in range(len(block)) if block[position] < 0x80) + 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _literal_head(length: int) -> bytes:
    """Of a literal, with four bytes for its length."""
    return bytes(((_LONG_LITERAL + 3) << 2,)) + (length - 1).to_bytes(4, "little")
