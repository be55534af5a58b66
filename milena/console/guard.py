"""Checks of each HTTP request before the application sees it: host, origin, token or cookie, size of the body.

Static files and `/health` need no token, all data and every change do.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
from starlette.exceptions import HTTPException

from milena.console.access import COOKIE, Access

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST_BODY: Final = 1 << 20
"""Bytes of a request's body."""
BODY_SECONDS: Final = 30.0
"""Seconds in which the next part of a body has to arrive."""
CLOSING: Final = {"connection": "close"}
READING: Final = ("GET", "HEAD")
PROTECTED: Final = ("/api", "/openapi.json")
SIGN_IN: Final = (
    "send `Authorization: Bearer` with the token in the file http-token of the cluster's directory, or open the link "
    "that `milena console` prints"
)
POLICY: Final = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Refusal(NamedTuple):
    """The answer to a request that is not let through."""

    status: int
    message: str


class Guard:
    """The ASGI application around the one of the API."""

    def __init__(self, inner: Application, access: Access, cookie: str) -> None:
        """``cookie``: the name of the cookie of this server."""
        self._inner = inner
        self._access = access
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers_for(scope["path"])]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            # all bodies are JSON; curl names another type unless it is asked not to
            others = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-type"]
            scope["headers"] = [*others, (b"content-type", b"application/json")]
            await self._inner(scope, _limited(receive), send_with_headers)
        else:
            await _answer(send_with_headers, refusal)

    def _headers_for(self, path: str) -> tuple[tuple[bytes, bytes], ...]:
        return (*HEADERS, (b"cache-control", b"no-store")) if _is_protected(path) or path == "/login" else HEADERS

    def _refusal(self, scope: Scope) -> Refusal | None:
        """Return why a request is not let through; None if it is."""
        headers = _headers_of(scope)
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._access.is_host(hosts[0]):
            named = ", ".join(self._access.hosts)
            return Refusal(421, f"the Host header must name this server: {named}; --allowed-host adds a name")
        length = _first(headers, "content-length")
        if length and (not length.isdecimal() or int(length) > LONGEST_BODY):
            return Refusal(413, _TOO_LONG)
        if not _is_protected(scope["path"]):
            return None if scope["method"] in READING else Refusal(405, f"{scope['path']} can only be read")
        program = self._access.is_token(_first(headers, "authorization"))
        browser = self._access.is_session(_cookies(_first(headers, "cookie")).get(self._cookie, ""))
        if not (program or browser):
            return Refusal(401, SIGN_IN)
        return _of_another_page(scope["method"], headers, hosts[0], by_cookie=not program)


_TOO_LONG: Final = f"a request's body has at most {LONGEST_BODY} bytes"


def _of_another_page(method: str, headers: Mapping[str, list[str]], host: str, *, by_cookie: bool) -> Refusal | None:
    """Refuse what a page of another origin lets a browser send: the browser adds the cookie to such a request."""
    if by_cookie and _first(headers, "sec-fetch-site") in ("cross-site", "same-site"):
        return Refusal(403, "a page of another origin may not read this")
    if method in READING:
        return None
    origins = headers.get("origin", [])
    if not origins and by_cookie:
        return Refusal(403, "a change by a browser needs an Origin header")
    if any(origin not in (f"http://{host}", f"https://{host}") for origin in origins):
        return Refusal(403, f"a page of another origin may not change anything; the origin must be http://{host}")
    return None


def cookie_name(port: int) -> str:
    """Return the cookie's name for a server at this port."""
    return f"{COOKIE}-{port}"


def _is_protected(path: str) -> bool:
    return path.startswith(PROTECTED)


def _headers_of(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def _first(headers: Mapping[str, list[str]], name: str) -> str:
    return headers.get(name, [""])[0]


def _cookies(header: str) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return {name: value for name, _, value in pairs}


def _limited(receive: Receive) -> Receive:
    """Return ``receive`` that raises HTTPException if the body is too long or stops to arrive. After the body it waits
    for the end of the connection, without limit."""
    received, complete = 0, False

    async def limited() -> Message:
        nonlocal received, complete
        if complete:
            return await receive()
        with anyio.move_on_after(BODY_SECONDS) as waiting:
            message = await receive()
        if waiting.cancelled_caught:
            raise HTTPException(408, f"the body did not continue within {BODY_SECONDS:g} s", headers=CLOSING)
        received += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if received > LONGEST_BODY:
            raise HTTPException(413, _TOO_LONG, headers=CLOSING)
        return message

    return limited


async def _answer(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"error": refusal.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status in (408, 413):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
