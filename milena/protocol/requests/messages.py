"""Codecs of requests and responses of all APIs except Produce, Fetch and ApiVersions: instances of kio's classes with
plain values.

    request = decode_request(ApiKey.METADATA, 12, body)
    request.topics[0].name
    answer = encode_response(ApiKey.METADATA, 12, brokers=[{"node_id": 1, "host": "h", "port": 9092}], ...)

Durations and times are integers in milliseconds. Their fields have Kafka's name or kio's, which lacks ``_ms``
(``throttle_time_ms=0``, ``get(request, "timeout_ms")``, but ``request.timeout``). Error codes are integers. A zero
UUID is None. Fields that an old version lacks are dropped from its response; ``get`` reads a field that a request of an
old version may lack.

kio's modules are imported on first use of an (API, version), since importing all of them takes a second.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, TypeVar, overload

from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.limits import max_elements
from milena.protocol.schemas.message_classes import Kind, message_class
from milena.protocol.schemas.primitives import Data, Reader, Writer
from milena.protocol.schemas.structs import StructCodec, codec

T = TypeVar("T")


def decode_request(key: int, version: int, body: Data) -> Any:  # noqa: ANN401 - a message of any key and version
    """Decode the request in ``body``, the bytes after its header. The result does not refer to ``body``.

    Raises DecodeError for a malformed or truncated body, TooManyElements if it exceeds the API's limit, LookupError for
    an unknown version. Bytes after the request are ignored, as in Kafka: librdkafka 2.16 sends three too many in a
    Metadata request for all topics.
    """
    return _codec(key, version, "request").read(Reader(body, 0, max_elements(key)))


def decode_large_request(key: int, version: int, body: Data) -> Cooperative[Any]:
    """Like ``decode_request``; yields between elements."""
    return _codec(key, version, "request").read_cooperatively(Reader(body, 0, max_elements(key)), YieldBudget())


def decode_response(key: int, version: int, body: Data) -> Any:  # noqa: ANN401 - a message of any key and version
    """Decode the response in ``body``. Raises as ``decode_request``, and DecodeError for bytes after the response."""
    reader = Reader(body)
    entity = _codec(key, version, "response").read(reader)
    reader.expect_end()
    return entity


def build_request(_key: int, _version: int, /, **fields: object) -> Any:  # noqa: ANN401 - a message of any key and version
    """Build a request from plain data: nested mappings and sequences of mappings (``StructCodec.build``)."""
    return _codec(_key, _version, "request").build(fields)


def build_response(_key: int, _version: int, /, **fields: object) -> Any:  # noqa: ANN401 - a message of any key and version
    """Build a response from plain data, like ``build_request``."""
    return _codec(_key, _version, "response").build(fields)


def encode_request(_key: int, _version: int, /, **fields: object) -> bytes:
    """Return the bytes of ``build_request``'s result, without building the instance."""
    return _encode(_codec(_key, _version, "request"), fields)


def encode_response(_key: int, _version: int, /, **fields: object) -> bytes:
    """Return the bytes of ``build_response``'s result, without building the instance."""
    return _encode(_codec(_key, _version, "response"), fields)


def encode_large_response(_key: int, _version: int, /, **fields: object) -> Cooperative[bytes]:
    """Like ``encode_response``; yields between elements."""
    writer = Writer()
    yield from _codec(_key, _version, "response").write_cooperatively(writer, fields, YieldBudget())
    return bytes(writer)


def response_has(key: int, version: int, name: str) -> bool:
    """Whether this version of a response has a top-level field of that name."""
    return _codec(key, version, "response").has(name)


def encode(entity: object) -> bytes:
    """Return the bytes of a request or response, without a header."""
    cls: Any = type(entity)
    return _encode(codec(cls), entity)


def replaced(_entity: T, /, **fields: object) -> T:
    """Return a copy of a message with other values in some of its fields."""
    instance: Any = _entity
    copy: T = replace(instance, **fields)
    return copy


@overload
def get(entity: object, name: str, default: None) -> Any: ...  # noqa: ANN401 - a message of any key and version
@overload
def get(entity: object, name: str, default: tuple[()]) -> tuple[Any, ...]: ...
@overload
def get(entity: object, name: str, default: T) -> T: ...
def get(entity: object, name: str, default: object) -> object:
    """Return a field, or ``default`` if the entity's version lacks the field. The type is that of ``default``, unless
    that is None or an empty tuple."""
    value = getattr(entity, name, _MISSING)
    if value is _MISSING:
        value = getattr(entity, name[:-3] if name.endswith("_ms") else f"{name}_", _MISSING)
    return default if value is _MISSING else value


_MISSING = object()


def _encode(struct: StructCodec, value: object) -> bytes:
    writer = Writer()
    struct.write(writer, value)
    return bytes(writer)


@cache
def _codec(key: int, version: int, kind: Kind) -> StructCodec:
    return codec(message_class(key, version, kind))
