"""Who sends requests and returns their responses: a channel, or the way to the active controller."""

from __future__ import annotations

from typing import Any, Protocol

from milena.protocol.api_keys import ApiKey


class Asking(Protocol):
    """``key`` says which response it is: callers annotate it with the type that ``milena.protocol.apis`` declares."""

    async def request(
        self, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: object
    ) -> Any: ...
