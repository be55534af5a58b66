"""The interface for sending a request and awaiting its response, implemented by a channel and by the connection to the
active controller."""

from __future__ import annotations

from typing import Any, Protocol

from milena.protocol.api_keys import ApiKey


class RequestSender(Protocol):
    """``key`` determines the type of the response: callers annotate it with the type that ``milena.protocol.apis``
    declares."""

    async def request(
        self, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: object
    ) -> Any: ...  # noqa: ANN401 - decoded response; callers annotate it
