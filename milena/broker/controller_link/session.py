"""Whether this broker can still have a session at the controller.

The controller fences a broker that sends no heartbeat for ``broker.session.timeout.ms``, and elects other leaders. The
metadata with this change may reach the broker late, or never, so the broker also computes its session's end itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.runtime.clock import Clock

MIN_FRESHNESS: Final = 2.0
"""Seconds that metadata counts as current even with a shorter session timeout: an idle fetch of metadata alone takes
half a second."""


class Session:
    """The broker's session, as far as the broker can know it. Times are monotonic seconds."""

    __slots__ = ("_clock", "_last_answered", "_metadata_current_at", "_since", "_timeout")

    def __init__(self, clock: Clock, timeout: float, metadata_current_at: Callable[[], float]) -> None:
        """``metadata_current_at``: when this broker had last applied all committed metadata."""
        self._clock = clock
        self._timeout = timeout
        self._metadata_current_at = metadata_current_at
        self._last_answered: float | None = None
        """When the last answered heartbeat was sent. The controller's timeout started at that time or later."""
        self._since = 0.0
        """When the current uninterrupted session began."""

    def answered(self, sent: float, *, fenced: bool) -> None:
        """Note the response to a heartbeat that was sent at ``sent``."""
        now = self._clock.monotonic()
        if fenced or self._last_answered is None or now - self._last_answered >= self._timeout:
            self._since = now  # the controller may have fenced the broker, and unfenced it with this response
        self._last_answered = sent

    @property
    def is_current(self) -> bool:
        """Whether the session cannot have expired, and the metadata is from this session and not older than a session
        timeout. Without the latter, a broker that was paused would count as current after its first heartbeat, before
        it has applied what was committed during the pause."""
        now, current = self._clock.monotonic(), self._metadata_current_at()
        if self._last_answered is None or now - self._last_answered >= self._timeout:
            return False
        return current >= self._since and now - current < max(self._timeout, MIN_FRESHNESS)
