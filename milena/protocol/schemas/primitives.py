"""Kafka's primitive types: a reader that checks bounds, and a writer.

The length of strings, bytes and arrays is a signed integer of fixed width, -1 for null; in compact types it is an
unsigned varint of length + 1, 0 for null (KIP-482).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct, pack, unpack
from struct import error as StructError
from typing import Final, final
from uuid import UUID

from milena.protocol.schemas.undecodable import DecodeError, TooManyElements
from milena.protocol.types import ZERO_UUID

Data = bytes | bytearray | memoryview

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_UINT16: Final = Struct(">H")
_UINT32: Final = Struct(">I")
_FLOAT64: Final = Struct(">d")

_ANY_NUMBER: Final = 1 << 62
MAX_STRING: Final = 0x7FFF
"""Maximum bytes of a string, compact or not, as in Kafka."""


_TEXT_LIMIT: Final = MAX_STRING // 4
"""The number of characters that fit into a string in any case: one has at most 4 bytes."""
_GROWTH: Final = 3
"""The replacement character for an invalid byte has 3 bytes."""


def decoded_text(data: Data) -> str:
    """Decode UTF-8; invalid bytes become replacement characters, as in Java. Raises DecodeError if the result is longer
    than MAX_STRING when encoded, so that a response could not contain it."""
    text = str(data, "utf-8", "replace")
    if len(data) > MAX_STRING // _GROWTH and len(text.encode()) > MAX_STRING:
        raise DecodeError(f"a string of {len(data)} bytes that are not UTF-8")
    return text


def shortened(text: str | None) -> str | None:
    """Shorten an error message, which may quote a client's input, so that it fits into a string."""
    return text if text is None or len(text) <= _TEXT_LIMIT else f"{text[: _TEXT_LIMIT - 3]}..."


class Reader:
    """Reads values from ``pos`` on. Every method raises DecodeError if the bytes end too early or a length is
    impossible.

    A length is compared with the remaining bytes before memory is allocated. Elements of arrays and tagged fields are
    counted, at any depth; more than ``max_elements`` raise TooManyElements.
    """

    __slots__ = ("_elements", "_max_elements", "data", "pos")

    def __init__(self, data: Data, pos: int = 0, max_elements: int = _ANY_NUMBER) -> None:
        self.data = data if isinstance(data, memoryview) else memoryview(data)
        self.pos = pos
        self._elements = 0
        self._max_elements = max_elements

    @property
    def remaining(self) -> int:
        return len(self.data) - self.pos

    def expect_end(self) -> None:
        """Raise DecodeError if bytes remain."""
        if self.remaining:
            raise DecodeError(f"{self.remaining} bytes are left over after the message")

    def view(self, length: int) -> memoryview:
        """Return the next ``length`` bytes without a copy."""
        start = self.pos
        end = start + length
        if length < 0 or end > len(self.data):
            raise DecodeError(f"{length} bytes expected, {self.remaining} are left")
        self.pos = end
        return self.data[start:end]

    def rest(self) -> memoryview:
        """Return all remaining bytes without a copy."""
        return self.view(self.remaining)

    def _number(self, form: Struct) -> int:
        pos = self.pos
        try:
            value: int = form.unpack_from(self.data, pos)[0]
        except StructError:
            raise DecodeError(f"{form.size} bytes expected, {self.remaining} are left") from None
        self.pos = pos + form.size
        return value

    def int8(self) -> int:
        return self._number(_INT8)

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int32s(self, count: int) -> tuple[int, ...]:
        """Read ``count`` numbers, 20 times as fast as one by one."""
        return unpack(f">{count}i", self.view(4 * count))

    def int64(self) -> int:
        return self._number(_INT64)

    def uint16(self) -> int:
        return self._number(_UINT16)

    def uint32(self) -> int:
        return self._number(_UINT32)

    def float64(self) -> float:
        value: float = _FLOAT64.unpack(self.view(8))[0]
        return value

    def boolean(self) -> bool:
        return self.int8() != 0

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.view(16)))

    def nullable_uuid(self) -> UUID | None:
        """Read a UUID; None for Kafka's zero UUID."""
        value = self.uuid()
        return None if value == ZERO_UUID else value

    def uvarint(self) -> int:
        pos = self.pos
        if pos < len(self.data) and (byte := self.data[pos]) < 0x80:
            self.pos = pos + 1
            return byte
        return self._variable(5)

    def varint(self) -> int:
        value = self._variable(5)
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        value = self._variable(10)
        return (value >> 1) ^ -(value & 1)

    def _variable(self, longest: int) -> int:
        data, pos = self.data, self.pos
        value = 0
        for index, byte in enumerate(data[pos : pos + longest]):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self.pos = pos + index + 1
                return value
        if len(data) - pos < longest:
            raise DecodeError("the bytes end within a variable-length integer")
        raise DecodeError(f"a variable-length integer is longer than {longest} bytes")

    def _text(self, length: int) -> str:
        if length > MAX_STRING:
            raise DecodeError(f"a string of {length} bytes is longer than {MAX_STRING}")
        return decoded_text(self.view(length))

    def string(self) -> str:
        return self._text(_present(self.int16()))

    def nullable_string(self) -> str | None:
        length = self.int16()
        return None if length == -1 else self._text(length)

    def compact_string(self) -> str:
        return self._text(_present(self.uvarint() - 1))

    def compact_nullable_string(self) -> str | None:
        length = self.uvarint() - 1
        return None if length == -1 else self._text(length)

    def blob(self) -> bytes:
        return bytes(self.view(_present(self.int32())))

    def nullable_blob(self) -> bytes | None:
        length = self.int32()
        return None if length == -1 else bytes(self.view(length))

    def compact_blob(self) -> bytes:
        return bytes(self.view(_present(self.uvarint() - 1)))

    def compact_nullable_blob(self) -> bytes | None:
        length = self.uvarint() - 1
        return None if length == -1 else bytes(self.view(length))

    def array(self) -> int:
        """Read the number of elements, -1 for a null array. Raises DecodeError if it exceeds the remaining bytes, since
        each element has at least one byte."""
        return self._count(self.int32())

    def compact_array(self) -> int:
        return self._count(self.uvarint() - 1)

    def _count(self, count: int) -> int:
        if count < -1 or count > self.remaining:
            raise DecodeError(f"an array of {count} elements in {self.remaining} bytes")
        if count > 0:
            self.take(count)
        return count

    def take(self, count: int) -> None:
        """Count elements that will be read. Raises TooManyElements."""
        self._elements += count
        if self._elements > self._max_elements:
            raise TooManyElements(self._max_elements)

    def tags(self) -> Iterator[tuple[int, Reader]]:
        """Yield the tags of the following tagged fields, each with a reader of its bytes."""
        count = self.uvarint()
        if count:
            self.take(count)
        for _ in range(count):
            tag = self.uvarint()
            content = Reader(self.view(self.uvarint()), max_elements=self._max_elements)
            content._elements = self._elements
            yield tag, content
            self._elements = content._elements

    def skip_tags(self) -> None:
        count = self.uvarint()
        if count:
            self.take(count)
        for _ in range(count):
            self.uvarint()
            self.view(self.uvarint())


def _present(length: int) -> int:
    if length == -1:
        raise DecodeError("null where a value must be")
    return length


@final
class Writer:
    """Appends values to ``data``. Integers out of range raise struct.error."""

    __slots__ = ("data",)

    data: bytearray

    def __init__(self, data: Data = b"") -> None:
        self.data = bytearray(data)

    def __len__(self) -> int:
        return len(self.data)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def append(self, byte: int) -> None:
        self.data.append(byte)

    def raw(self, data: Data) -> None:
        self.data += data

    def int8(self, value: int) -> None:
        self.data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.data += _INT32.pack(value)

    def int32s(self, values: Sequence[int]) -> None:
        self.data += pack(f">{len(values)}i", *values)

    def int64(self, value: int) -> None:
        self.data += _INT64.pack(value)

    def uint16(self, value: int) -> None:
        self.data += _UINT16.pack(value)

    def uint32(self, value: int) -> None:
        self.data += _UINT32.pack(value)

    def float64(self, value: float) -> None:
        self.data += _FLOAT64.pack(value)

    def boolean(self, value: bool) -> None:
        self.data.append(1 if value else 0)

    def uuid(self, value: UUID | None) -> None:
        self.data += (ZERO_UUID if value is None else value).bytes

    def uvarint(self, value: int) -> None:
        if value < 0:
            raise ValueError(f"{value} is negative, an unsigned variable-length integer cannot hold it")
        while value >= 0x80:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def varint(self, value: int) -> None:
        self.uvarint(value << 1 if value >= 0 else (-value << 1) - 1)

    def varlong(self, value: int) -> None:
        self.varint(value)

    def string(self, value: str) -> None:
        data = value.encode()
        if len(data) > MAX_STRING:
            raise ValueError(f"a string of {len(data)} bytes is longer than {MAX_STRING}")
        self.data += _INT16.pack(len(data))
        self.data += data

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.data += b"\xff\xff"
        else:
            self.string(value)

    def compact_string(self, value: str) -> None:
        data = value.encode()
        if len(data) > MAX_STRING:
            raise ValueError(f"a string of {len(data)} bytes is longer than {MAX_STRING}")
        self.compact_array(len(data))
        self.data += data

    def compact_nullable_string(self, value: str | None) -> None:
        if value is None:
            self.data.append(0)
        else:
            self.compact_string(value)

    def blob(self, value: Data) -> None:
        self.data += _INT32.pack(len(value))
        self.data += value

    def nullable_blob(self, value: Data | None) -> None:
        if value is None:
            self.data += b"\xff\xff\xff\xff"
        else:
            self.blob(value)

    def compact_blob(self, value: Data) -> None:
        self.uvarint(len(value) + 1)
        self.data += value

    def compact_nullable_blob(self, value: Data | None) -> None:
        if value is None:
            self.data.append(0)
        else:
            self.compact_blob(value)

    def array(self, count: int) -> None:
        """Append the number of elements; -1 for a null array."""
        self.data += _INT32.pack(count)

    def compact_array(self, count: int) -> None:
        if count < 0x7F:
            self.data.append(count + 1)
        else:
            self.uvarint(count + 1)

    def tag(self, tag: int, data: Data) -> None:
        """Append one tagged field. The caller appends the number of fields (``uvarint``) before the first, and the
        fields in ascending order of tags."""
        self.uvarint(tag)
        self.uvarint(len(data))
        self.data += data
