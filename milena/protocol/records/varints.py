"""Varints of records: 7 bits a byte, lowest first, zigzag encoded (KIP-98, Kafka's ``ByteUtils``).

The functions take and return ``i64``: machine integers in the compiled build, Python's integers in the pure build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.protocol.records.batch import CorruptBatch

if TYPE_CHECKING:
    from mypy_extensions import i64

MASK_63: Final = 0x7FFF_FFFF_FFFF_FFFF


def read_raw(data: bytes, position: i64, bits: i64 = 32) -> tuple[i64, i64]:
    """Read a varint of at most ``bits`` bits. Returns its zigzag form, and the position after it. Excess bits of the
    last byte are dropped, as in Kafka.

    In the compiled build the result is negative if its highest of 64 bits is set; ``decoded`` handles both. Raises
    IndexError if the data ends within the varint, CorruptBatch if it is too long.
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
    """Return the number whose zigzag form is ``raw``."""
    return (raw >> 1 & MASK_63) ^ -(raw & 1)


def read_varint(data: bytes, position: i64, bits: i64 = 32) -> tuple[i64, i64]:
    """Read a varint. Returns the number, and the position after it. Raises as ``read_raw``."""
    raw: i64 = data[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_raw(data, position, bits)
    return decoded(raw), position


def write_varint(out: bytearray, value: int) -> None:
    """Append a varint."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
