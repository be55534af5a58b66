"""The compressed streams inside record batches, as Kafka's clients write them, read with a bound on memory.

gzip through zlib; snappy, lz4 and zstd through cramjam, imported on first use. What is written is what
Kafka's Java client writes: snappy in xerial blocks, lz4 as a frame of independent blocks of 64 KB (Java
refuses dependent ones). Read are also bare snappy (librdkafka) and any lz4 or zstd frames.
"""

from __future__ import annotations

import zlib
from struct import Struct
from types import ModuleType
from typing import Any, Final

from protocol.batch import Codec, CorruptBatch

__all__ = ["Codec", "DecompressionBomb", "compress", "decompress"]

_GZIP_WINDOW: Final = 31
"""15 bits of window, and 16 for gzip's header instead of zlib's."""
_GZIP_MEMBERS: Final = 64
"""Clients write one. zlib copies the rest of the stream after each, which must not be done 50,000 times."""
_ZSTD_DEFAULT_LEVEL: Final = 3

_INT32: Final = Struct(">i")
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 << 10
_SNAPPY_RATIO: Final = 22
"""A bare snappy stream grows at most so many times: 3 bytes copy 64."""

_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Magic, independent blocks without checksums, 64 KB a block, checksum of the header."""
_LZ4_BLOCK: Final = 64 << 10
_LZ4_STORED: Final = 0x8000_0000
_UINT32_LE: Final = Struct("<I")
_LZ4_DEFAULT_LEVEL: Final = 9

_FIRST_GUESS: Final = 64 << 10
_GROWTH: Final = 4


class DecompressionBomb(CorruptBatch):
    """A compressed stream that grows beyond the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the records grow beyond {limit} bytes when they are decompressed")


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """``data`` as one stream. ``level``: the codec's own scale, None for Kafka's default; snappy has none."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, -1 if level is None else level, _GZIP_WINDOW)
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(memoryview(data), level)
        case Codec.ZSTD:
            return bytes(_cramjam().zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))


def decompress(codec: Codec, data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """What was compressed, at most ``limit`` bytes of it; memory stays within a small multiple of that.

    Raises DecompressionBomb beyond the limit, CorruptBatch where the stream is damaged.
    """
    match codec:
        case Codec.NONE:
            if len(data) > limit:
                raise DecompressionBomb(limit)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        case Codec.LZ4:
            return _decompress_frames(_cramjam().lz4, data, limit)
        case Codec.ZSTD:
            return _decompress_frames(_cramjam().zstd, data, limit)


def _cramjam() -> Any:
    import cramjam

    return cramjam


def _decompress_gzip(data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """All members of the stream, as Java reads them."""
    out = bytearray()
    rest: bytes | bytearray | memoryview = data
    for _ in range(_GZIP_MEMBERS):
        stream = zlib.decompressobj(_GZIP_WINDOW)
        try:
            out += stream.decompress(rest, limit - len(out) + 1)
        except zlib.error as error:
            raise CorruptBatch(f"gzip: {error}") from None
        if len(out) > limit:
            raise DecompressionBomb(limit)
        if not stream.eof:
            raise CorruptBatch("gzip: the stream is cut")
        rest = stream.unused_data
        if not rest:
            return bytes(out)
    raise CorruptBatch(f"gzip: a stream of more than {_GZIP_MEMBERS} members")


def _compress_snappy(data: memoryview) -> bytes:
    snappy = _cramjam().snappy
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, limit, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if bytes(data[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        if len(data) - position < _INT32.size:
            raise CorruptBatch("snappy: the length of a block is cut")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if size < 0 or size > len(data) - position:
            raise CorruptBatch(f"snappy: a block of {size} bytes where {len(data) - position} are left")
        out += _decompress_snappy_block(data[position : position + size], limit - len(out), limit)
        position += size
    return bytes(out)


def _decompress_snappy_block(block: memoryview, left: int, limit: int) -> bytes:
    cramjam = _cramjam()
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > _SNAPPY_RATIO * len(block):
            raise CorruptBatch(f"snappy: {len(block)} bytes cannot become {size}")
        if size > left:
            raise DecompressionBomb(limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"a stream of snappy: {error}") from None


def _compress_lz4(data: memoryview, level: int | None) -> bytes:
    compress_block = _cramjam().lz4.compress_block
    options: dict[str, Any] = {"store_size": False}
    if level is not None and level != _LZ4_DEFAULT_LEVEL:
        options |= {"mode": "high_compression", "compression": level}
    out = bytearray(_LZ4_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start : start + _LZ4_BLOCK]
        block = bytes(compress_block(plain, **options))
        if len(block) < len(plain):
            out += _UINT32_LE.pack(len(block))
            out += block
        else:
            out += _UINT32_LE.pack(len(plain) | _LZ4_STORED)
            out += plain
    out += _UINT32_LE.pack(0)
    return bytes(out)


def _decompress_frames(codec: ModuleType, data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """Frames of lz4 or zstd, into buffers of our own that grow until the content fits."""
    errors = _cramjam().DecompressionError
    size = min(limit, max(_FIRST_GUESS, _GROWTH * len(data)))
    while True:
        out = bytearray(size)
        try:
            written: int = codec.decompress_into(data, out)
            return bytes(memoryview(out)[:written])
        except errors as error:
            if str(error) != "failed to write whole buffer":
                raise CorruptBatch(f"a stream of {codec.__name__}: {error}") from None
        if size == limit:
            raise DecompressionBomb(limit)
        size = min(limit, size * _GROWTH)
