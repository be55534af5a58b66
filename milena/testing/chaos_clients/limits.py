"""How long clients try, in seconds; the same for all libraries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    delivery: float = 120.0
    """A record is tried for so long: longer than any fault lasts."""
    close: float = 30.0
    """What a producer has not delivered that long after ``close`` is given up, and told as UNKNOWN."""
    request: float = 10.0
    """A node that does not answer within this is asked again, or another is."""
    session: float = 6.0
    """Of members of groups."""

    @property
    def delivery_ms(self) -> int:
        return int(self.delivery * 1000)

    @property
    def request_ms(self) -> int:
        return int(min(self.request, self.delivery / 2) * 1000)

    @property
    def session_ms(self) -> int:
        return int(self.session * 1000)
