"""The compressed streams inside record batches, as Kafka's Java client writes them: snappy in xerial blocks, lz4 as a
frame of independent blocks of 64 KB. ``protocol.records.decompression`` reads them.
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
"""15 bits of window, and 16 for gzip's header instead of zlib's."""
_ZSTD_DEFAULT_LEVEL: Final = 3
_INT32: Final = Struct(">i")
_XERIAL_BLOCK: Final = 32 << 10
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Magic, independent blocks without checksums, 64 KB a block, checksum of the header."""
_LZ4_BLOCK: Final = 64 << 10
_UINT32_LE: Final = Struct("<I")
_LZ4_DEFAULT_LEVEL: Final = 9


class DecompressionBomb(CorruptBatch):
    """A compressed stream that grows beyond the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the records grow beyond {limit} bytes when they are decompressed")


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """``data`` as one stream. ``level``: the codec's own scale, None for Kafka's default; snappy has none."""
    return b"".join(compressed(codec, (memoryview(data),), level))


def compressed(
    codec: Codec, pieces: Iterable[bytes | memoryview], level: int | None = None
) -> Iterator[bytes | memoryview]:
    """The stream of all ``pieces``, in pieces: at least one for each that comes in, perhaps an empty one."""
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
    """What was compressed, at most ``limit`` bytes of it; memory stays within a small multiple of that.

    Raises DecompressionBomb beyond the limit, CorruptBatch if the stream is damaged.
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
    """Blocks of ``size`` bytes and a last one that may be shorter; an empty one for a piece that completes none."""
    rest = bytearray()
    for piece in pieces:
        rest += piece
        whole = len(rest) - len(rest) % size
        for start in range(0, whole, size):
            yield bytes(rest[start : start + size])
        if not whole:
            yield b""
        del rest[:whole]
    if rest:
        yield bytes(rest)
