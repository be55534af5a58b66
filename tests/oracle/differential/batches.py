"""Record batches, valid ones and ones that no client should send."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from milena.protocol.records.batch import HEADER_SIZE
from milena.protocol.records.crc import crc32c
from milena.protocol.records.records import Record, build_batch

THEN: Final = 1_000_000_000
"""Milliseconds since 1970: a fixed time far from now, so that timestamps in responses can be compared."""
_CRC_AT: Final = 17
_CRC_OVER: Final = 21
FIELDS: Final = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
"""Position and struct format of each field of the batch header."""


def records(count: int = 2, *, key: bytes | None = b"k", value: bytes | None = b"value") -> list[Record]:
    return [Record(index, index, key, value) for index in range(count)]


def batch(wanted: int | Sequence[Record] = 2, **fields: Any) -> bytes:
    """Return a valid batch."""
    made = records(wanted) if isinstance(wanted, int) else wanted
    return build_batch(made, **{"base_timestamp": THEN, **fields})


def forged(good: bytes, **fields: int) -> bytes:
    """Return the batch with other values in its header, and the matching checksum unless it is one of the fields."""
    data = bytearray(good)
    for name, value in fields.items():
        at, form = FIELDS[name]
        struct.pack_into(form, data, at, value)
    if "crc" not in fields:
        struct.pack_into(">I", data, _CRC_AT, crc32c(bytes(data[_CRC_OVER:])))
    return bytes(data)


def with_body(good: bytes, body: bytes) -> bytes:
    """Return the batch with other bytes instead of its records."""
    return forged(good[:HEADER_SIZE] + body, length=HEADER_SIZE - 12 + len(body))


def old_message(magic: int, value: bytes = b"old") -> bytes:
    """Return one message of format 0 or 1."""
    import zlib

    stamp = struct.pack(">q", THEN) if magic else b""
    body = struct.pack(">bb", magic, 0) + stamp + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message
