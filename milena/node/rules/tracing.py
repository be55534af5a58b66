"""Recording of requests and their answers for the lab command ``trace``: stored as bytes, shown as JSON values.

Records that a Fetch sends from files are not stored; they are replaced by zeros.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from milena.node.api import Answers, RequestContext
from milena.node.rules.answers_decorator import AnswersDecorator
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.requests.frames import part_length
from milena.protocol.schemas.undecodable import DecodeError
from milena.runtime.clock import Clock
from milena.runtime.network import Part

KEPT: Final = 1000
"""The number of exchanges kept per rule; older ones are dropped."""


class Exchange(NamedTuple):
    """One request and its answer, without their headers."""

    key: int
    version: int
    client_id: str | None
    request: bytes
    response: bytes
    at: float
    """When the request was read, in monotonic seconds of the node's clock."""
    answered_at: float

    def as_json(self) -> dict[str, object]:
        """Return the exchange as JSON values. Byte fields are replaced by their lengths; ``request_bytes`` and
        ``response_bytes`` are the lengths of the whole bodies."""
        try:
            request = plain(messages.decode_request(self.key, self.version, self.request))
            response = plain(messages.decode_response(self.key, self.version, self.response))
        except DecodeError as error:
            request = response = {"undecodable": str(error)}
        return {
            "api": ApiKey(self.key).name,
            "version": self.version,
            "client_id": self.client_id,
            "request": request,
            "request_bytes": len(self.request),
            "response": response,
            "response_bytes": len(self.response),
            "at": self.at,
            "answered_at": self.answered_at,
        }


Exchanges = deque[Exchange]


def new_trace() -> Exchanges:
    return deque(maxlen=KEPT)


def body_of(parts: Sequence[Part]) -> bytes:
    """Return the body of a framed response, with zeros in place of bytes in files."""
    return b"".join(
        bytes(part) if isinstance(part, bytes | bytearray | memoryview) else bytes(part_length(part))
        for part in parts[1:]
    )


class TracedAnswers(AnswersDecorator):
    """Records a request and its answer when the request is answered."""

    __slots__ = ("_clock", "_exchanges", "_request")

    def __init__(self, clock: Clock, exchanges: Exchanges, answers: Answers, body: memoryview) -> None:
        self._clock = clock
        self._exchanges = exchanges
        super().__init__(answers)
        self._request = bytes(body)

    def answered(self, ctx: RequestContext) -> None:
        header, parts = ctx.header, ctx.parts
        if parts:
            times = ctx.received_at, self._clock.monotonic()
            self._exchanges.append(
                Exchange(header.api_key, header.api_version, header.client_id, self._request, body_of(parts), *times)
            )
        ctx.answers = self._answers
        ctx.answers.answered(ctx)


def plain(value: object) -> object:
    """Convert a message, or part of one, to JSON values: error codes to names, bytes to their length, times to ms."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _field(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)}
    match value:
        case enum.Enum():
            return value.name.upper() if isinstance(value.name, str) else value.value
        case tuple() | list():
            return [plain(item) for item in value]
        case UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return len(value)
        case datetime.timedelta():
            return round(value.total_seconds() * 1000)
        case datetime.datetime():
            return round(value.timestamp() * 1000)
    return value


def _field(name: str, value: object) -> object:
    if name == "error_code" and isinstance(value, int) and value in ErrorCode._value2member_map_:
        return ErrorCode(value).name
    return plain(value)
