"""The output of the console consumer: one record as Kafka's DefaultMessageFormatter writes it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from milena.client.consumer import ConsumedRecord
from milena.scripts.common.failures import ScriptError

DEFAULT: Final = ("org.apache.kafka.tools.consumer.DefaultMessageFormatter", "kafka.tools.DefaultMessageFormatter")
LOGGING: Final = ("org.apache.kafka.tools.consumer.LoggingMessageFormatter", "kafka.tools.LoggingMessageFormatter")
NOTHING: Final = ("org.apache.kafka.tools.consumer.NoOpMessageFormatter", "kafka.tools.NoOpMessageFormatter")
SERIALIZATION: Final = "org.apache.kafka.common.serialization."
NUMBERS: Final = {
    "LongDeserializer": ">q",
    "IntegerDeserializer": ">i",
    "ShortDeserializer": ">h",
    "DoubleDeserializer": ">d",
    "FloatDeserializer": ">f",
}
FIELDS: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")

Deserializer = Callable[[bytes], bytes]


class Formatter(Protocol):
    """Formats a record; returns the bytes to print."""

    def __call__(self, record: ConsumedRecord) -> bytes: ...


def formatter_of(name: str, properties: Mapping[str, str]) -> Formatter:
    """Return the formatter of a class of Kafka. Raises ScriptError for one that Milena does not have."""
    if name in (*DEFAULT, *LOGGING):  # what the second one logs in addition, is not wanted in standard error
        return DefaultFormatter(properties)
    if name in NOTHING:
        return lambda record: b""
    raise ScriptError(f"--formatter {name} is not supported: only {DEFAULT[0]}, {LOGGING[0]} and {NOTHING[0]} are")


class DefaultFormatter:
    """Which fields of a record are printed, and how."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises ScriptError for a deserializer that Milena does not have."""
        chosen = {"value": "true"} | {
            name: properties.get(f"print.{name}", "") for name in FIELDS if f"print.{name}" in properties
        }
        self._fields = [name for name in FIELDS if chosen.get(name, "").strip().lower() == "true"]
        self._separator = properties.get("key.separator", "\t").encode()
        self._end = properties.get("line.separator", "\n").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._null = properties.get("null.literal", "null").encode()
        self._deserializers = {
            name: deserializer_of(properties.get(f"{name}.deserializer")) for name in ("key", "value", "headers")
        }

    def __call__(self, record: ConsumedRecord) -> bytes:
        return self._separator.join(self._texts(record)) + self._end

    def _texts(self, record: ConsumedRecord) -> Iterator[bytes]:
        for name in self._fields:
            match name:
                case "timestamp":
                    yield time_of(record).encode()
                case "partition" | "offset":
                    yield f"{name.capitalize()}:{record.partition if name == 'partition' else record.offset}".encode()
                case "delivery" | "epoch":
                    yield f"{name.capitalize()}:NOT_PRESENT".encode()
                case "headers":
                    pairs = (key.encode() + b":" + self._text("headers", value) for key, value in record.headers)
                    yield self._headers_separator.join(pairs) if record.headers else b"NO_HEADERS"
                case _:
                    yield self._text(name, record.key if name == "key" else record.value)

    def _text(self, field: str, data: bytes | None) -> bytes:
        return self._null if data is None else self._deserializers[field](data)


def time_of(record: ConsumedRecord) -> str:
    """Return the timestamp in ms with its type."""
    if record.timestamp < 0:
        return "NO_TIMESTAMP"
    return f"{'LogAppendTime' if record.appended else 'CreateTime'}:{record.timestamp}"


def deserializer_of(name: str | None) -> Deserializer:
    """Return the function that turns bytes into text. Raises ScriptError."""
    short = (name or "StringDeserializer").removeprefix(SERIALIZATION)
    if short in NUMBERS:
        return Number(short)
    if short in ("StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer"):
        return bytes
    if short == "UUIDDeserializer":
        return bytes  # the serializer writes the text of the UUID
    if short == "VoidDeserializer":
        return lambda data: b"null"
    raise ScriptError(
        f"the deserializer {name} is not supported: only those of {SERIALIZATION}* for strings, bytes and numbers are"
    )


class Number:
    """Reads a number of a fixed size. Raises ScriptError for data of another size, as Kafka does."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._layout = struct.Struct(NUMBERS[name])

    def __call__(self, data: bytes) -> bytes:
        if len(data) != self._layout.size:
            raise ScriptError(
                f"Size of data received by {self._name} is not {self._layout.size}",
                "org.apache.kafka.common.errors.SerializationException",
            )
        return str(self._layout.unpack(data)[0]).encode()
