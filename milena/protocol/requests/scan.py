"""Functions that read primitive types at positions of a buffer, for the codecs of Produce and Fetch: faster than
``schemas.primitives.Reader``, with the same checks.

Each function takes the buffer and a position, and returns the value and the position after it. They raise DecodeError,
and IndexError or struct.error if the bytes end too early; ``decoding`` converts both to DecodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

from milena.protocol.cooperative import Cooperative
from milena.protocol.limits import MAX_TAGS
from milena.protocol.schemas.primitives import Data, decoded_text
from milena.protocol.schemas.undecodable import DecodeError

T = TypeVar("T")
P = ParamSpec("P")

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_MAX_STRING: Final = 0x7FFF
_TWO_BYTES: Final = 0x7F
"""From this length on, the length of a compact field takes two bytes."""


def decoding(decode: Callable[Concatenate[int, Data, P], T]) -> Callable[Concatenate[int, Data, P], T]:
    """Wrap ``decode(version, body)`` so that it raises only DecodeError."""

    def checked(version: int, body: Data, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decode(version, body, *args, **kwargs)
        except (IndexError, struct.error) as error:
            raise DecodeError(f"the {len(body)} bytes end too early") from error

    return checked


def decoding_cooperatively(work: Cooperative[T], size: int) -> Cooperative[T]:
    """Run ``work``, which decodes ``size`` bytes. The result raises only DecodeError."""
    try:
        return (yield from work)
    except (IndexError, struct.error) as error:
        raise DecodeError(f"the {size} bytes end too early") from error


def uvarint_at(data: Data, pos: int) -> tuple[int, int]:
    byte = data[pos]
    if byte < 0x80:
        return byte, pos + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        pos += 1
        byte = data[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
    raise DecodeError("a variable-length integer is longer than 5 bytes")


def length_at(data: Data, pos: int, flexible: bool) -> tuple[int, int]:
    """Read the length of an array or of bytes: -1 for null. Raises DecodeError if it exceeds the remaining bytes."""
    if flexible:
        length = data[pos] - 1
        if length < _TWO_BYTES:
            pos += 1
        else:
            length, pos = uvarint_at(data, pos)
            length -= 1
    else:
        length = _INT32.unpack_from(data, pos)[0]
        pos += 4
    if length > len(data) - pos or length < -1:
        raise DecodeError(f"a length of {length} with {len(data) - pos} bytes left")
    return length, pos


def count_at(data: Data, pos: int, flexible: bool) -> tuple[int, int]:
    """Read the length of an array that must not be null."""
    count, pos = length_at(data, pos, flexible)
    if count < 0:
        raise DecodeError("null where an array must be")
    return count, pos


def nullable_text_at(data: Data, pos: int, flexible: bool) -> tuple[str | None, int]:
    if flexible:
        length = data[pos] - 1
        if length < _TWO_BYTES:
            pos += 1
        else:
            length, pos = uvarint_at(data, pos)
            length -= 1
    else:
        length = _INT16.unpack_from(data, pos)[0]
        pos += 2
    end = pos + length
    if length < 0:
        if length == -1:
            return None, pos
        raise DecodeError(f"a string of {length} bytes")
    if end > len(data) or length > _MAX_STRING:
        raise DecodeError(f"a string of {length} bytes with {len(data) - pos} bytes left")
    return decoded_text(data[pos:end]), end


def text_at(data: Data, pos: int, flexible: bool) -> tuple[str, int]:
    text, pos = nullable_text_at(data, pos, flexible)
    if text is None:
        raise DecodeError("null where a string must be")
    return text, pos


def uuid_at(data: Data, pos: int) -> tuple[UUID, int]:
    end = pos + 16
    if end > len(data):
        raise DecodeError("the bytes end within a UUID")
    return uuid_of(bytes(data[pos:end])), end


@lru_cache(1024)
def uuid_of(data: bytes) -> UUID:
    """Return the UUID with these bytes; cached, since creating one takes a microsecond and most requests name the same
    topics."""
    return UUID(bytes=data)


def tags_end(data: Data, pos: int) -> int:
    """Skip tagged fields; return the position after them."""
    if not data[pos]:
        return pos + 1
    count, pos = tag_count_at(data, pos)
    for _ in range(count):
        _, _, pos = tag_at(data, pos)
    return pos


def tag_count_at(data: Data, pos: int) -> tuple[int, int]:
    """Read the number of tagged fields."""
    count, pos = uvarint_at(data, pos)
    if count > MAX_TAGS:
        raise DecodeError(f"{count} tagged fields in one element")
    return count, pos


def tag_at(data: Data, pos: int) -> tuple[int, int, int]:
    """Read a tagged field: return its tag, the position of its content, and the position after it."""
    tag, pos = uvarint_at(data, pos)
    size, pos = uvarint_at(data, pos)
    end = pos + size
    if end > len(data):
        raise DecodeError(f"a tagged field of {size} bytes with {len(data) - pos} bytes left")
    return tag, pos, end


def expect_within(data: Data, pos: int) -> None:
    """Check the end of a request; bytes after it are ignored, as in Kafka. Raises DecodeError if ``pos`` is beyond the
    end of ``data``."""
    if pos > len(data):
        raise DecodeError(f"the message ends {pos - len(data)} bytes too early")


def expect_end(data: Data, pos: int) -> None:
    """Raise DecodeError unless ``pos`` is the end of ``data``."""
    if pos != len(data):
        raise DecodeError(f"{len(data) - pos} bytes are left over after the message")
