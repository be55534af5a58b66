"""Varints as records have them: 7 bits a byte, the lowest first, zigzag encoded."""

from __future__ import annotations

from milena.protocol.records.batch import CorruptBatch


def read_raw(data: bytes | memoryview, position: int, bits: int = 32) -> tuple[int, int]:
    """The unsigned form of a varint of at most ``bits`` bits, and the position after it.

    Raises IndexError if the data ends in it, CorruptBatch if it is too long.
    """
    raw = shift = 0
    while shift < bits:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return raw, position
        shift += 7
    raise CorruptBatch(f"a varint of more than {bits} bits")


def read_longer(data: bytes, position: int, first: int, bits: int = 32) -> tuple[int, int]:
    """The unsigned form of a varint whose ``first`` byte, right before ``position``, is not its last. Errors as
    ``read_raw``."""
    second = data[position]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 1
    return read_raw(data, position - 1, bits)


def read_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """The number, and the position after it. Errors as ``read_raw``."""
    raw = data[position]
    if raw < 0x80:
        return (raw >> 1) ^ -(raw & 1), position + 1
    raw, position = read_raw(data, position, bits)
    return (raw >> 1) ^ -(raw & 1), position


def write_varint(out: bytearray, value: int) -> None:
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
