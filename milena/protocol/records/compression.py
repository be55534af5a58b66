"""Compression of records in the formats of Kafka's Java client: snappy in xerial blocks, lz4 as a frame of independent
blocks of 64 KB. ``protocol.records.decompression`` decompresses.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from milena.protocol.records.batch import Codec, CorruptBatch
from milena.protocol.records.decompression import LZ4_STORED, XERIAL_HEADER, cramjam, decompressed, zstd

__all__ = ["Codec", "DecompressionBomb", "compress", "compressed", "decompress"]

_GZIP_WINDOW: Final = 31
"""zlib's parameter for a window of 15 bits and gzip's header (+16)."""
_ZSTD_DEFAULT_LEVEL: Final = 3
_INT32: Final = Struct(">i")
_XERIAL_BLOCK: Final = 32 << 10
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Magic; flags: independent blocks without checksums; block size 64 KB; checksum of the header."""
_LZ4_BLOCK: Final = 64 << 10
_UINT32_LE: Final = Struct("<I")
_LZ4_DEFAULT_LEVEL: Final = 9


class DecompressionBomb(CorruptBatch):
    """A compressed stream exceeds the limit when decompressed."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the records grow beyond {limit} bytes when they are decompressed")


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Compress ``data`` to one stream. ``level`` is the codec's, None for Kafka's default; snappy has none."""
    return b"".join(compressed(codec, (memoryview(data),), level))


def compressed(
    codec: Codec, pieces: Iterable[bytes | memoryview], level: int | None = None
) -> Iterator[bytes | memoryview]:
    """Compress ``pieces`` to one stream. Yields at least one piece of output, possibly empty, for each piece of
    input."""
    match codec:
        case Codec.NONE:
            return iter(pieces)
        case Codec.GZIP:
            return _gzip(pieces, -1 if level is None else level)
        case Codec.SNAPPY:
            return _snappy(pieces)
        case Codec.LZ4:
            return _lz4(pieces, level)
        case Codec.ZSTD:
            return _zstd(pieces, _ZSTD_DEFAULT_LEVEL if level is None else level)


def decompress(codec: Codec, data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """Decompress ``data``. Uses memory of a small multiple of ``limit``.

    Raises DecompressionBomb if the content has more than ``limit`` bytes, CorruptBatch if the stream is damaged.
    """
    pieces = []
    size = 0
    for piece in decompressed(codec, memoryview(data)):
        size += len(piece)
        if size > limit:
            raise DecompressionBomb(limit)
        pieces.append(piece)
    return b"".join(pieces)


def _gzip(pieces: Iterable[bytes | memoryview], level: int) -> Iterator[bytes]:
    stream = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    for piece in pieces:
        yield stream.compress(piece)
    yield stream.flush()


def _zstd(pieces: Iterable[bytes | memoryview], level: int) -> Iterator[bytes]:
    stream = zstd().ZstdCompressor(level=level)
    for piece in pieces:
        yield stream.compress(piece)
    yield stream.flush()


def _snappy(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    snappy = cramjam().snappy
    yield XERIAL_HEADER
    for block in _blocks(pieces, _XERIAL_BLOCK):
        packed = bytes(snappy.compress_raw(block)) if block else b""
        yield _INT32.pack(len(packed)) + packed if packed else b""


def _lz4(pieces: Iterable[bytes | memoryview], level: int | None) -> Iterator[bytes]:
    compress_block = cramjam().lz4.compress_block
    options: dict[str, object] = {"store_size": False}
    if level is not None and level != _LZ4_DEFAULT_LEVEL:
        options |= {"mode": "high_compression", "compression": level}
    yield _LZ4_HEADER
    for block in _blocks(pieces, _LZ4_BLOCK):
        packed = bytes(compress_block(block, **options)) if block else b""
        if not block:
            yield b""
        elif len(packed) < len(block):
            yield _UINT32_LE.pack(len(packed)) + packed
        else:
            yield _UINT32_LE.pack(len(block) | LZ4_STORED) + block
    yield _UINT32_LE.pack(0)


def _blocks(pieces: Iterable[bytes | memoryview], size: int) -> Iterator[bytes]:
    """Yield blocks of ``size`` bytes; the last one may be shorter. Yields an empty block for a piece that completes
    none."""
    pending = bytearray()
    for piece in pieces:
        pending += piece
        complete = len(pending) - len(pending) % size
        for start in range(0, complete, size):
            yield bytes(pending[start : start + size])
        if not complete:
            yield b""
        del pending[:complete]
    if pending:
        yield bytes(pending)
