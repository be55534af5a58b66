"""Mutations of a frame, as a broken client or an attacker would send it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Final

from milena.protocol.records.crc import crc32c

INTERESTING: Final = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)
LENGTHS: Final = (-(2**31), -2, -1, 0, 1, 1000, 65_536, 2**24, 2**31 - 1)
HEADER: Final = 10
"""The bytes before the client id. Damage there mostly fails the parsing of the header."""
BATCH_MAGIC_AT: Final = 16
BATCH_CRC_AT: Final = 17
BATCH_ATTRIBUTES_AT: Final = 21

Mutation = Callable[[bytearray, random.Random], None]


def mutate(frame: bytes, rnd: random.Random) -> bytes:
    """Returns the frame with one to four mutations; in one of sixteen cases unchanged."""
    data = bytearray(frame)
    if rnd.random() < 1 / 16:
        return frame
    for _ in range(rnd.choice((1, 1, 1, 2, 4))):
        rnd.choice(MUTATIONS)(data, rnd)
    return bytes(data)


def _position(data: bytearray, rnd: random.Random, width: int = 1) -> int:
    """Return a random position for ``width`` bytes, rarely within the header."""
    first = 0 if rnd.random() < 0.05 else HEADER
    last = len(data) - width
    return rnd.randint(min(first, last), last) if last >= 0 else 0


def flip_bit(data: bytearray, rnd: random.Random) -> None:
    if data:
        data[_position(data, rnd)] ^= 1 << rnd.randrange(8)


def set_byte(data: bytearray, rnd: random.Random) -> None:
    if data:
        data[_position(data, rnd)] = rnd.choice(INTERESTING)


def set_length(data: bytearray, rnd: random.Random) -> None:
    """Overwrite four bytes, which a parser may take for a count or a size."""
    if len(data) >= 4:
        struct.pack_into(">i", data, _position(data, rnd, 4), rnd.choice(LENGTHS))


def set_varint(data: bytearray, rnd: random.Random) -> None:
    """Replace a byte by a very large varint or by one that is too long."""
    at = _position(data, rnd)
    data[at : at + 1] = rnd.choice((b"\xff\xff\xff\xff\x0f", b"\xff" * 11, b"\x80\x80\x80\x80\x08", b"\x80\x00"))


def cut_off(data: bytearray, rnd: random.Random) -> None:
    del data[_position(data, rnd) :]


def take_out(data: bytearray, rnd: random.Random) -> None:
    at = _position(data, rnd)
    del data[at : at + rnd.randint(1, 16)]


def put_in(data: bytearray, rnd: random.Random) -> None:
    at = _position(data, rnd)
    data[at:at] = rnd.randbytes(rnd.randint(1, 16))


def repeat(data: bytearray, rnd: random.Random) -> None:
    at = _position(data, rnd)
    piece = data[at : at + rnd.randint(1, 64)]
    data[at:at] = piece * rnd.choice((1, 2, 50))


def append(data: bytearray, rnd: random.Random) -> None:
    data += rnd.randbytes(rnd.randint(1, 32))


def damage_batch(data: bytearray, rnd: random.Random) -> None:
    """Damage a record batch and correct its checksum, so that the damage reaches the parser of records."""
    begin = _find_batch(data)
    if begin is None:
        flip_bit(data, rnd)
        return
    (length,) = struct.unpack_from(">i", data, begin + 8)
    end = begin + 12 + length
    for _ in range(rnd.choice((1, 1, 3))):
        data[rnd.randrange(begin + BATCH_ATTRIBUTES_AT, end)] = rnd.randrange(256)
    crc = crc32c(bytes(data[begin + BATCH_ATTRIBUTES_AT : end]))
    struct.pack_into(">I", data, begin + BATCH_CRC_AT, crc)


def _find_batch(data: bytearray) -> int | None:
    """Return the position of a complete batch, recognised by its magic and its length; None if there is none."""
    for begin in range(HEADER, len(data) - 61):
        if data[begin + BATCH_MAGIC_AT] == 2:
            (length,) = struct.unpack_from(">i", data, begin + 8)
            if 49 <= length <= len(data) - begin - 12:
                return begin
    return None


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip_bit,
    set_byte,
    set_length,
    set_varint,
    cut_off,
    take_out,
    put_in,
    repeat,
    append,
    damage_batch,
)
