"""Decompression of snappy blocks: small blocks in one call, large blocks a number of elements at a time.

A block begins with the length of its content, and may be as large as a batch (librdkafka and franz-go write one block).
cramjam can only decompress a whole block. So a large block is split: the elements of one step are put into a new block,
after a literal with the preceding content, to which they may refer.

The format (google/snappy, format_description.txt): a varint with the length, then literals and copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from milena.protocol.records.batch import CorruptBatch

RATIO: Final = 22
"""The maximum ratio of content to compressed bytes: 3 bytes copy 64."""
MAX_WHOLE_BLOCK: Final = 4 << 20
"""Bytes of content of a block that is decompressed in one call. Larger ones are decompressed in pieces."""
STEP: Final = 2 << 20
"""Minimum bytes of content of a large block that one step decompresses; the maximum is below twice as much."""
WINDOW: Final = 8 << 20
"""Maximum distance of back references in a large block. The reference encoder uses up to 64 KiB; Go's s2 may use
more."""
PIECE: Final = 64 << 10
ELEMENTS_PER_YIELD: Final = 4096
"""Elements that are parsed before an empty piece is yielded, so that the caller can do other work."""
_COPY_SIZES: Final = (2, 3, 5)
_LONG_LITERAL: Final = 60


def memory_needed(size: int) -> int:
    """Return about how many bytes of memory blocks of ``size`` bytes need at most: input and output of one step."""
    return min(RATIO * size, MAX_WHOLE_BLOCK + 2 * WINDOW + 2 * (WINDOW + 2 * STEP))


def decompress_block(block: memoryview, cramjam: ModuleType) -> Iterator[bytes]:
    """Decompress a block. Yields pieces, some of them empty. Raises CorruptBatch."""
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > RATIO * len(block):
            raise CorruptBatch(f"snappy: {len(block)} bytes cannot become {size}")
        if size > MAX_WHOLE_BLOCK:
            yield from _LargeBlock(block, size, cramjam).pieces()
        else:
            out = bytearray(size)
            written: int = cramjam.snappy.decompress_raw_into(block, out)
            yield bytes(memoryview(out)[:written])
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from None


class _LargeBlock:
    """Decompresses a large block in steps. ``_window`` is the last decompressed content, for back references."""

    def __init__(self, block: memoryview, size: int, cramjam: ModuleType) -> None:
        self._block = block
        self._cramjam = cramjam
        self._remaining = size
        """Bytes of content that are not decompressed yet."""
        self._window = b""

    def pieces(self) -> Iterator[bytes]:
        block, end = self._block, len(self._block)
        first = position = _after_varint(block)
        produced = elements = 0
        while position < end:
            after, length = _element(block, position)
            if length > STEP:  # a literal
                yield from self._decompress_elements(first, position, produced)
                yield from self._literal(block[after - length : after])
                first, produced = after, 0
            else:
                produced += length
            position = after
            elements += 1
            if produced >= STEP:
                yield from self._decompress_elements(first, position, produced)
                first, produced = position, 0
            elif elements % ELEMENTS_PER_YIELD == 0:
                yield b""
        yield from self._decompress_elements(first, position, produced)
        if self._remaining:
            raise CorruptBatch(f"snappy: a block lacks {self._remaining} bytes")

    def _decompress_elements(self, first: int, end: int, produced: int) -> Iterator[bytes]:
        """Decompress the elements in ``block[first:end]``, which produce ``produced`` bytes."""
        if not produced:
            return
        self._count_produced(produced)
        before = len(self._window)
        header = _varint(before + produced) + (_literal_tag(before) if before else b"")
        out = bytearray(before + produced)
        part = b"".join((header, self._window, self._block[first:end]))
        self._window = b""
        if self._cramjam.snappy.decompress_raw_into(part, out) != len(out):
            raise CorruptBatch("snappy: a block is truncated")
        del part
        content = memoryview(out)
        self._window = bytes(content[-WINDOW:])
        yield from _in_pieces(content[before:])

    def _literal(self, content: memoryview) -> Iterator[bytes]:
        self._count_produced(len(content))
        self._window = b"".join((self._window, content[-WINDOW:]))[-WINDOW:]
        yield from _in_pieces(content)

    def _count_produced(self, produced: int) -> None:
        self._remaining -= produced
        if self._remaining < 0:
            raise CorruptBatch("snappy: the content is longer than the block's length field")


def _in_pieces(content: memoryview) -> Iterator[bytes]:
    for start in range(0, len(content), PIECE):
        yield bytes(content[start : start + PIECE])


def _element(block: memoryview, position: int) -> tuple[int, int]:
    """Return the end of the element at ``position``, and the number of bytes that it produces."""
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
        raise CorruptBatch("snappy: a block is truncated within an element")
    return after, length


def _after_varint(block: memoryview) -> int:
    """Return the position after the length field."""
    return next(position for position in range(len(block)) if block[position] < 0x80) + 1


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _literal_tag(length: int) -> bytes:
    """Return the tag of a literal with a 4-byte length."""
    return bytes(((_LONG_LITERAL + 3) << 2,)) + (length - 1).to_bytes(4, "little")
