"""The trace of a simulated run, line by line with virtual time; and the nodes' logs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, MutableMapping
from typing import Final

import structlog

INFO: Final = 20
CRITICAL: Final = 50


class Trace:
    """The lines of one run. ``listener`` is called with each line."""

    def __init__(self, listener: Callable[[str], object] | None = None) -> None:
        self.lines: list[str] = []
        self._listener = listener

    def note(self, text: str) -> None:
        line = f"{_now()} {text}"
        self.lines.append(line)
        if self._listener is not None:
            self._listener(line)

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


def show_logs(write: Callable[[str], object]) -> None:
    """Write the logs of all nodes of this process to ``write`` from now on, with virtual time."""
    _configure(write, INFO)


def quiet_logs() -> None:
    """Log only critical events of the nodes of this process."""
    _configure(lambda line: None, CRITICAL)


def _configure(write: Callable[[str], object], level: int) -> None:
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.format_exc_info, _render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Writer(write),
        cache_logger_on_first_use=False,
    )


class _Writer:
    """The object that structlog calls with a finished line, by the name of the level."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.debug = self.info = self.warning = self.error = self.critical = self.msg = write


def _render(_logger: object, _method: str, event: MutableMapping[str, object]) -> str:
    level, component, text = (event.pop(key, "") for key in ("level", "component", "event"))
    trace = event.pop("exception", None)
    pairs = "".join(f" {key}={value}" for key, value in event.items())
    line = f"{_now()}     {level} {component}: {text}{pairs}"
    return f"{line}\n{trace}" if trace else line


def _now() -> str:
    return f"{asyncio.get_running_loop().time():11.6f}"
