"""Connections of the HTTP server: a client that does not read is disconnected, and so is one that sends no request."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

UNREAD_SECONDS: Final = 20.0
"""Seconds in which a client has to read enough for the next part of an answer."""
SILENT_SECONDS: Final = 30.0
"""Seconds in which a connection has to send a request's headers, from its beginning or the former answer on. The rest
of a former request's body may arrive in them, too."""


class PatientFlow(FlowControl):
    """Waits for a slow reader, up to a limit. Closing the transport would wait for it without a limit."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._connection = transport

    async def drain(self) -> None:
        try:
            async with asyncio.timeout(UNREAD_SECONDS):
                await super().drain()
        except TimeoutError:
            self._connection.abort()


class Http(H11Protocol):
    """uvicorn's protocol with these limits. Its own limit between two requests begins again with each byte."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = PatientFlow(transport)
        self._silence = self.loop.call_later(SILENT_SECONDS, self._end_if_silent)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._silence.cancel()
        self._silence = self.loop.call_later(SILENT_SECONDS, self._end_if_silent)

    def _end_if_silent(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if waits and not self.transport.is_closing():
            self.transport.abort()
