"""The interface of whatever sends requests and returns responses: a channel, or the link to the active controller."""

from __future__ import annotations

from typing import Any, Protocol

from milena.protocol.api_keys import ApiKey


class Asking(Protocol):
    """``key`` determines the type of the response: callers annotate it with the type that ``milena.protocol.apis``
    declares."""

    async def request(
        self, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: object
    ) -> Any: ...  # noqa: ANN401 - decoded response; callers annotate it
