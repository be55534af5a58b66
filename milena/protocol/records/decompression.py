"""Decompression in pieces, with bounded memory for any size of the content.

Each function returns an iterator of pieces, some of them empty, so that the caller can do other work in between. A
truncated stream, or bytes after its end, are errors, since consumers could not read past such a batch.

gzip uses zlib, and zstd the standard library of Python 3.14 or its backport, in pieces of 64 KiB; snappy
(``protocol.records.snappy_blocks``) and lz4 use cramjam, block by block. Supported are snappy in xerial blocks (Java's
clients) and without (librdkafka), lz4 frames of independent blocks (Java's ``Lz4BlockInputStream``), and zstd windows
of up to 128 MiB, as in Kafka.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from struct import Struct
from types import ModuleType
from typing import Final

from milena.protocol.records import snappy_blocks
from milena.protocol.records.batch import Codec, CorruptBatch

PIECE: Final = 64 << 10
"""Maximum bytes of a piece; for snappy and lz4 a piece is a block of up to 4 MiB."""
_INPUT: Final = 16 << 10
"""Bytes passed to zlib and zstd at a time, since they copy the unused part of the input."""
_MAX_STREAMS: Final = 1024
"""Maximum of concatenated streams in one batch. Clients write one."""

_GZIP_WINDOW: Final = 31
"""zlib's parameter for a window of 15 bits and gzip's header (+16)."""

_INT32: Final = Struct(">i")
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"

_UINT32_LE: Final = Struct("<I")
_LZ4_MAGIC: Final = 0x184D2204
LZ4_STORED: Final = 0x8000_0000
_LZ4_VERSION_AND_INDEPENDENT: Final = 0x60
_LZ4_BLOCK_CHECKSUMS: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_ALLOWED: Final = _LZ4_VERSION_AND_INDEPENDENT | _LZ4_BLOCK_CHECKSUMS | _LZ4_CONTENT_SIZE | _LZ4_CONTENT_CHECKSUM

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SMALL_WINDOW: Final = 8 << 20
"""The largest window of compression levels below 20."""
_SMALL_WINDOW_LOG: Final = 23


def decompressed(codec: Codec, data: memoryview) -> Iterator[bytes | memoryview]:
    """Decompress the stream in ``data``. Raises CorruptBatch if it is damaged or truncated, or if bytes follow it."""
    match codec:
        case Codec.NONE:
            return iter((data,))
        case Codec.GZIP:
            return _gzip(data)
        case Codec.SNAPPY:
            return _snappy(data)
        case Codec.LZ4:
            return _lz4(data)
        case Codec.ZSTD:
            return _zstd(data)


def memory_needed(codec: Codec, data: memoryview) -> int:
    """Return about how many bytes of memory decompressing needs at most. For a damaged stream the result is
    arbitrary."""
    if codec is Codec.SNAPPY:
        return snappy_blocks.memory_needed(len(data))
    if codec is Codec.ZSTD:
        return _zstd_window(data)
    return 4 << 20 if codec is Codec.LZ4 else PIECE


def load_codecs() -> None:
    """Import the libraries now. Otherwise the first use imports them, and may fail if no file descriptor is free
    then."""
    cramjam()
    zstd()


def cramjam() -> ModuleType:
    """Return the module, imported on first use."""
    import cramjam as module

    return module


def zstd() -> ModuleType:
    """Return the module of Python 3.14 or its backport, imported on first use."""
    if sys.version_info >= (3, 14):
        from compression import zstd as module
    else:
        from backports import zstd as module
    return module


def _gzip(data: memoryview) -> Iterator[bytes]:
    """Decompress all members of the stream, as Java does."""
    position = 0
    for _ in range(_MAX_STREAMS):
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            chunk: bytes | memoryview = data[position : position + _INPUT]
            if not chunk:
                raise CorruptBatch("gzip: the stream is truncated")
            position += len(chunk)
            while True:
                try:
                    yield member.decompress(chunk, PIECE)
                except zlib.error as error:
                    raise CorruptBatch(f"gzip: {error}") from None
                chunk = member.unconsumed_tail
                if not chunk or member.eof:
                    break
        position -= len(member.unused_data)
        if position == len(data):
            return
    raise CorruptBatch(f"gzip: a stream of more than {_MAX_STREAMS} members")


def _zstd(data: memoryview) -> Iterator[bytes]:
    """Decompress all frames of the stream. Only the first may have a window of more than 8 MiB."""
    module = zstd()
    options = None
    position = 0
    for _ in range(_MAX_STREAMS):
        frame = module.ZstdDecompressor(options=options)
        while not frame.eof:
            chunk: bytes | memoryview = data[position : position + _INPUT]
            if not chunk:
                raise CorruptBatch("zstd: the stream is truncated")
            position += len(chunk)
            try:
                yield frame.decompress(chunk, PIECE)
                while not frame.needs_input and not frame.eof:
                    if more := frame.decompress(b"", PIECE):
                        yield more
            except module.ZstdError as error:
                raise CorruptBatch(f"zstd: {error}") from None
        position -= len(frame.unused_data)
        if position == len(data):
            return
        options = {module.DecompressionParameter.window_log_max: _SMALL_WINDOW_LOG}
    raise CorruptBatch(f"zstd: a stream of more than {_MAX_STREAMS} frames")


def _zstd_window(data: memoryview) -> int:
    """Return the window size of the first frame (RFC 8878, 3.1.1.1)."""
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC or data[4] & 0x20:
        return _SMALL_WINDOW
    base = 1 << (10 + (data[5] >> 3))
    return base + (base >> 3) * (data[5] & 7)


def _snappy(data: memoryview) -> Iterator[bytes]:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield from snappy_blocks.decompress_block(data, cramjam())
        return
    position = len(XERIAL_HEADER)
    while position < len(data):
        if bytes(data[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        if len(data) - position < _INT32.size:
            raise CorruptBatch("snappy: the length of a block is truncated")
        (size,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if size < 0 or size > len(data) - position:
            raise CorruptBatch(f"snappy: a block of {size} bytes but {len(data) - position} bytes remain")
        yield from snappy_blocks.decompress_block(data[position : position + size], cramjam())
        position += size
    if position != len(data):
        raise CorruptBatch("snappy: the stream is truncated")


def _lz4(data: memoryview) -> Iterator[bytes]:
    """Decompress one frame; Java does not read a second one."""
    flags, block_size, position = _lz4_header(data)
    out = bytearray(block_size)
    while (length := _uint32_at(data, position)) != 0:
        position += _UINT32_LE.size
        end = position + (length & ~LZ4_STORED)
        if end - position > block_size:
            raise CorruptBatch(f"lz4: a block of {end - position} bytes in a frame of blocks of {block_size}")
        after = end + (_UINT32_LE.size if flags & _LZ4_BLOCK_CHECKSUMS else 0)
        if after > len(data):
            raise CorruptBatch("lz4: the stream is truncated within a block")
        if after != end:
            yield _lz4_checked_block(data[position - _UINT32_LE.size : after], out)
        elif length & LZ4_STORED:
            yield bytes(data[position:end])
        else:
            yield _lz4_block(data[position:end], out)
        position = after
    position += _UINT32_LE.size
    if flags & _LZ4_CONTENT_CHECKSUM:
        # The checksum of the whole content is not verified, as in Java.
        _uint32_at(data, position)
        position += _UINT32_LE.size
    if position != len(data):
        raise CorruptBatch(f"lz4: {len(data) - position} bytes follow the frame")


def _lz4_header(data: memoryview) -> tuple[int, int, int]:
    """Return the flags, the maximum size of a block, and the position of the first block."""
    if _uint32_at(data, 0) != _LZ4_MAGIC:
        raise CorruptBatch("lz4: the stream is not a frame")
    start = _UINT32_LE.size
    end = start + 2 + (8 if len(data) > start and data[start] & _LZ4_CONTENT_SIZE else 0)
    if end >= len(data):
        raise CorruptBatch("lz4: the header of the frame is truncated")
    flags, block = data[start], data[start + 1]
    if flags & ~_LZ4_ALLOWED or flags & _LZ4_VERSION_AND_INDEPENDENT != _LZ4_VERSION_AND_INDEPENDENT:
        raise CorruptBatch(
            f"lz4: a frame with flags {flags:#04x}: its blocks must be independent, without a dictionary"
        )
    if block & ~0x70 or not 4 <= block >> 4 <= 7:
        raise CorruptBatch(f"lz4: blocks of an unknown size {block:#04x}")
    if _xxh32_of_short(bytes(data[start:end])) >> 8 & 0xFF != data[end]:
        raise CorruptBatch("lz4: the checksum of the frame's header is wrong")
    return flags, 1 << (8 + 2 * (block >> 4)), end + 1


def _uint32_at(data: memoryview, position: int) -> int:
    if len(data) - position < _UINT32_LE.size:
        raise CorruptBatch("lz4: the stream is truncated")
    value: int = _UINT32_LE.unpack_from(data, position)[0]
    return value


def _lz4_block(block: memoryview, out: bytearray) -> bytes:
    module = cramjam()
    try:
        written: int = module.lz4.decompress_block_into(block, out, output_len=len(out))
    except module.DecompressionError as error:
        raise CorruptBatch(f"lz4: {error}") from None
    return bytes(memoryview(out)[:written])


def _lz4_checked_block(block: memoryview, out: bytearray) -> bytes:
    """Decompress a block with its length and checksum, as a frame, so that cramjam verifies the checksum."""
    module = cramjam()
    size = (len(out).bit_length() - 9) // 2 << 4
    descriptor = bytes((_LZ4_VERSION_AND_INDEPENDENT | _LZ4_BLOCK_CHECKSUMS, size))
    header = _UINT32_LE.pack(_LZ4_MAGIC) + descriptor + bytes((_xxh32_of_short(descriptor) >> 8 & 0xFF,))
    try:
        written: int = module.lz4.decompress_into(b"".join((header, block, bytes(4))), out)
    except module.DecompressionError as error:
        raise CorruptBatch(f"lz4: {error}") from None
    return bytes(memoryview(out)[:written])


def _xxh32_of_short(data: bytes) -> int:
    """Return the 32-bit xxHash, with seed 0, of fewer than 16 bytes."""
    mask = 0xFFFF_FFFF
    value = 0x165667B1 + len(data)
    whole = len(data) & ~3
    for (word,) in _UINT32_LE.iter_unpack(data[:whole]):
        value = value + word * 0xC2B2AE3D & mask
        value = (value << 17 | value >> 15) & mask
        value = value * 0x27D4EB2F & mask
    for byte in data[whole:]:
        value = value + byte * 0x165667B1 & mask
        value = (value << 11 | value >> 21) & mask
        value = value * 0x9E3779B1 & mask
    value = (value ^ value >> 15) * 0x85EBCA77 & mask
    value = (value ^ value >> 13) * 0xC2B2AE3D & mask
    return value ^ value >> 16
