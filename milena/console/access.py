"""Who may use the server: programs with the token, and browsers with a cookie for which they gave a one-time code."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from milena.up.http_files import CODE_LIFE

MOST_SESSIONS: Final = 100
"""Browsers that are signed in at the same time; the oldest session ends when there is a new one."""
LOCAL_HOSTS: Final = ("127.0.0.1", "localhost", "::1")
COOKIE: Final = "milena"
"""The cookie's name, followed by the port: cookies of one host are shared by all its ports."""


class Access:
    """The secrets of one server. Compared values are hashes, so that comparing takes the same time for all values."""

    def __init__(self, token: str, code_file: str | None, allowed_hosts: Iterable[str]) -> None:
        """``code_file``: where a command has left a one-time code for a browser; None if browsers cannot sign in."""
        self._token = _hash(token)
        self._code_file = code_file
        self._hosts = frozenset(host.lower().strip("[]") for host in (*LOCAL_HOSTS, *allowed_hosts))
        self._sessions: deque[bytes] = deque(maxlen=MOST_SESSIONS)

    @property
    def hosts(self) -> Sequence[str]:
        """The names that a Host header may have, sorted."""
        return sorted(self._hosts)

    def is_host(self, host: str) -> bool:
        """Whether a Host header names this server. The port is not compared: a container's port is published as
        another one."""
        return host_name(host) in self._hosts

    def is_token(self, authorization: str) -> bool:
        """Whether an Authorization header has the token."""
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() == "bearer" and compare_digest(_hash(token.strip()), self._token)

    def is_session(self, cookie: str) -> bool:
        """Whether a cookie's value is that of a signed-in browser."""
        given = _hash(cookie)
        return any(compare_digest(given, known) for known in self._sessions)

    def redeem(self, code: str) -> str | None:
        """Exchange a one-time code for a cookie's value; None if the code is wrong, was used, or is too old."""
        if self._code_file is None:
            return None
        try:
            with open(self._code_file, encoding="ascii") as file:
                known, age = file.read().strip(), time.time() - os.fstat(file.fileno()).st_mtime
        except (OSError, ValueError):
            return None
        if not known or age > CODE_LIFE or not compare_digest(_hash(code), _hash(known)):
            return None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._code_file)
        cookie = secrets.token_urlsafe(32)
        self._sessions.append(_hash(cookie))
        return cookie


def host_name(host: str) -> str:
    """Return the name or address in a Host header, in lower case, without port and brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0].strip("[")
    return name.partition(":")[0]


def _hash(secret: str) -> bytes:
    return sha256(secret.encode(errors="surrogateescape")).digest()
