"""Request and response headers, for flexible and other versions (KIP-482).

Request header v1: api key, api version, correlation id, client id; v2 adds tagged fields and belongs to the flexible
versions of an API. The client id is a legacy string in both. Response header v0 is the correlation id, v1 adds
tagged fields. ApiVersions responses always have v0, so that a client can read them before it knows the versions.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

from milena.protocol.api_keys import ApiKey
from milena.protocol.limits import MAX_TAGS
from milena.protocol.schemas.primitives import Data, Reader, decoded_text
from milena.protocol.schemas.registry import REGISTRY
from milena.protocol.schemas.undecodable import DecodeError

_FIXED: Final = Struct(">hhih")
_CORRELATION: Final = Struct(">i")
_NEVER: Final = 0x8000
_FLEXIBLE_FROM: Final = {int(key): _NEVER if api.flexible is None else api.flexible for key, api in REGISTRY.items()}


@final
class RequestHeader:
    """The fields of a request header of either version."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return f"{self.correlation_id} of {self.client_id!r} (API key {self.api_key} version {self.api_version})"


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, memoryview]:
    """Return the header of a request frame, and the body as a view of the frame.

    The version need not be a served one. Raises DecodeError for a frame that is too short, and for an unknown API key,
    since the version of its header is unknown.
    """
    size = len(frame)
    if size < 10:
        raise DecodeError(f"a request of {size} bytes is shorter than its header")
    api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
    flexible_from = _FLEXIBLE_FROM.get(api_key)
    if flexible_from is None:
        raise DecodeError(f"unknown API key {api_key}")
    pos = 10
    if length >= 0:
        pos += length
        if pos > size:
            raise DecodeError(f"a client id of {length} bytes in a request of {size}")
        client_id = decoded_text(frame[10:pos])
    elif length == -1:
        client_id = None
    else:
        raise DecodeError(f"a client id of {length} bytes")
    if api_version >= flexible_from:
        if pos < size and frame[pos] == 0:
            pos += 1
        else:
            reader = Reader(frame, pos, MAX_TAGS)
            reader.skip_tags()
            pos = reader.pos
    return RequestHeader(api_key, api_version, correlation_id, client_id), frame[pos:]


def request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the request header for an API version. Raises KeyError for an unknown key."""
    tags = b"\0" if version >= _FLEXIBLE_FROM[key] else b""
    if client_id is None:
        return _FIXED.pack(key, version, correlation_id, -1) + tags
    name = client_id.encode()
    return _FIXED.pack(key, version, correlation_id, len(name)) + name + tags


def response_header(key: int, version: int, correlation_id: int) -> bytes:
    """Return the response header for an API version. Raises KeyError for an unknown key."""
    if version >= _FLEXIBLE_FROM[key] and key != ApiKey.API_VERSIONS:
        return _CORRELATION.pack(correlation_id) + b"\0"
    return _CORRELATION.pack(correlation_id)


def parse_response_header(key: int, version: int, frame: Data) -> tuple[int, memoryview]:
    """Return the correlation id of a response to ``key`` and ``version``, and the body as a view of the frame.

    Raises DecodeError for a frame that is too short.
    """
    reader = Reader(frame)
    correlation_id = reader.int32()
    if version >= _FLEXIBLE_FROM[key] and key != ApiKey.API_VERSIONS:
        if reader.remaining and frame[4] == 0:
            reader.pos = 5
        else:
            reader.skip_tags()
    return correlation_id, reader.rest()
