"""Rate-limited logging of events that peers can cause at will: the first of each kind are logged, the others
counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milena.runtime.printable import printable, shortened

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

BURST: Final = 10
INTERVAL: Final = 60.0
"""At most BURST events of a kind in this many seconds."""
KINDS: Final = 1000
"""The number of kinds that are distinguished; beyond it all others share one."""


class _EventWindow:
    __slots__ = ("began", "left_out", "said")

    def __init__(self, began: float) -> None:
        self.began = began
        self.said = 0
        self.left_out = 0


class LimitedLog:
    """A logger for events that clients cause. ``monotonic`` returns the clock port's seconds.

    The first event of a kind after suppressed ones reports their number (``left_out``). Strings are shortened and
    escaped.
    """

    def __init__(self, log: FilteringBoundLogger, monotonic: Callable[[], float]) -> None:
        self._log = log
        self._monotonic = monotonic
        self._windows: dict[tuple[str, str], _EventWindow] = {}

    def info(self, event: str, *, kind: str = "", **fields: object) -> None:
        """``kind``: distinguishes events with the same text, for example by API; never a client's string."""
        self._say(self._log.info, event, kind, fields)

    def warning(self, event: str, *, kind: str = "", **fields: object) -> None:
        self._say(self._log.warning, event, kind, fields)

    def error(self, event: str, *, kind: str = "", **fields: object) -> None:
        self._say(self._log.error, event, kind, fields)

    def _say(self, say: Callable[..., object], event: str, kind: str, fields: dict[str, object]) -> None:
        now = self._monotonic()
        key = (event, kind) if len(self._windows) < KINDS or (event, kind) in self._windows else ("", "")
        window = self._windows.get(key)
        left_out = 0
        if window is None or now - window.began >= INTERVAL:
            left_out = 0 if window is None else window.left_out
            window = self._windows[key] = _EventWindow(now)
        if window.said >= BURST:
            window.left_out += 1
            return
        window.said += 1
        shown = {
            name: printable(shortened(value)) if isinstance(value, str) else value for name, value in fields.items()
        }
        if left_out:
            shown["left_out"] = left_out
        say(event, **shown)
