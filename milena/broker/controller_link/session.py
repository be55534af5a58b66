"""How long the controller has let a broker believe what it believes.

The controller fences a broker that is silent for ``broker.session.timeout.ms``, and others lead from then on. The
broker learns that from its metadata, which may come late, or never: until then it must be able to tell by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.runtime.clock import Clock

LEAST_FRESHNESS: Final = 2.0
"""Seconds: an idle fetch of metadata alone takes half a second."""


class Session:
    """One broker's, as it can know it. Times are monotonic seconds."""

    __slots__ = ("_clock", "_heard_at", "_metadata_current_at", "_since", "_timeout")

    def __init__(self, clock: Clock, timeout: float, metadata_current_at: Callable[[], float]) -> None:
        """``metadata_current_at``: when the metadata here was last all that was committed."""
        self._clock = clock
        self._timeout = timeout
        self._metadata_current_at = metadata_current_at
        self._heard_at: float | None = None
        """When the last heartbeat that was answered was sent: the controller's clock began then, or later."""
        self._since = 0.0
        """When the session began that has not been broken since."""

    def answered(self, sent: float, *, fenced: bool) -> None:
        """A heartbeat that was sent at ``sent`` has been answered just now."""
        now = self._clock.monotonic()
        if fenced or self._heard_at is None or now - self._heard_at >= self._timeout:
            self._since = now  # the controller may have fenced this broker in between, and unfenced it with this answer
        self._heard_at = sent

    @property
    def is_current(self) -> bool:
        """Whether the session cannot have run out, and the metadata is younger than its beginning, and than a
        session: a broker that was paused is answered before it learns what has happened meanwhile."""
        now, current = self._clock.monotonic(), self._metadata_current_at()
        if self._heard_at is None or now - self._heard_at >= self._timeout:
            return False
        return current >= self._since and now - current < max(self._timeout, LEAST_FRESHNESS)
