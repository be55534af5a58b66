"""Varints as records have them: 7 bits a byte, the lowest first, zigzag encoded (KIP-98, Kafka's ByteUtils).

The functions take and return ``i64``: in the compiled form these are machine integers, in the pure form plain ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.protocol.records.batch import CorruptBatch

if TYPE_CHECKING:
    from mypy_extensions import i64

MASK_63: Final = 0x7FFF_FFFF_FFFF_FFFF


def read_raw(data: bytes, position: i64, bits: i64 = 32) -> tuple[i64, i64]:
    """The unsigned form of a varint of at most ``bits`` bits, and the position after it. What the last byte has beyond
    those is dropped, as in Kafka.

    Compiled, the highest of 64 bits makes the number negative: ``decoded`` knows both. Raises IndexError if the data
    ends in it, CorruptBatch if it is too long.
    """
    raw: i64 = 0
    shift: i64 = 0
    while shift < bits:
        byte: i64 = data[position]
        position += 1
        if byte < 0x80:
            if bits - shift < 7:
                byte &= (1 << (bits - shift)) - 1
            return raw | byte << shift, position
        raw |= (byte & 0x7F) << shift
        shift += 7
    raise CorruptBatch(f"a varint of more than {bits} bits")


def decoded(raw: i64) -> i64:
    """The number whose zigzag form is ``raw``."""
    return (raw >> 1 & MASK_63) ^ -(raw & 1)


def read_varint(data: bytes, position: i64, bits: i64 = 32) -> tuple[i64, i64]:
    """The number, and the position after it. Errors as ``read_raw``."""
    raw: i64 = data[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_raw(data, position, bits)
    return decoded(raw), position


def write_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
