"""Timeouts of clients in seconds, the same for all libraries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The timeouts of one adapter."""

    delivery: float = 120.0
    """The delivery timeout of a record; longer than any fault."""
    close: float = 30.0
    """Records that are not delivered so long after ``close`` are given up, with outcome UNKNOWN."""
    request: float = 10.0
    """The request timeout, after which the request is retried, possibly at another node."""
    session: float = 6.0
    """The session timeout of group members."""

    @property
    def delivery_ms(self) -> int:
        return int(self.delivery * 1000)

    @property
    def request_ms(self) -> int:
        return int(min(self.request, self.delivery / 2) * 1000)

    @property
    def session_ms(self) -> int:
        return int(self.session * 1000)
