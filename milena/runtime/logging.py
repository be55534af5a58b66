"""Structured logging: one event per line, human-readable on a terminal and as JSON otherwise.

Events are constant texts with key=value pairs: ``log.info("partition became leader", topic=..., leader_epoch=...)``.
structlog is imported with the first logger, not with this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO, cast

from milena.runtime.lean_import import lean_import
from milena.runtime.log_levels import Levels
from milena.runtime.printable import printable, shortened

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

LEVELS: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR", "critical": "FATAL"}
"""Level names: ours, and Kafka's."""
COLOURS: Final = {"debug": "\x1b[2m", "info": "", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[1;31m"}
RESET: Final = "\x1b[0m"
FORMAT: Final = "MILENA_LOG_FORMAT"
"""Environment variable with one of FORMATS; by default text on a terminal and JSON otherwise."""
FORMATS: Final = ("text", "json")
LONGEST_VALUE: Final = 2000
LONGEST_TRACE: Final = 16_000
"""Maximum number of characters of a value, and of an exception's traceback."""


def get_logger(component: str, **bound: object) -> FilteringBoundLogger:
    """A logger whose events carry ``component`` and the other bound values (node, topic, partition, ...)."""
    with lean_import():
        import structlog
    if not structlog.is_configured():
        configure()
    logger: FilteringBoundLogger = structlog.get_logger(component=component, **bound)
    return logger


def configure(stream: TextIO | None = None, *, level: str = "info", human: bool | None = None) -> None:
    """Choose the stream (standard error by default), the level, and the form (None: as ``MILENA_LOG_FORMAT`` says).

    Raises ValueError if the level is unknown.
    """
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is not one of {', '.join(LEVELS)}")
    with lean_import():
        import structlog
    terminal = (stream or sys.stderr).isatty()
    if human is None:
        given = os.environ.get(FORMAT)
        human = given == "text" if given in FORMATS else terminal
    levels = Levels(LEVELS[level])
    structlog.configure(
        processors=[
            levels,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=not human),
            structlog.processors.format_exc_info,
            cut,
            partial(render_text, coloured=terminal) if human else render_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(levels.lowest()),
        # Standard error is looked up for each logger: tests and supervisors replace it.
        logger_factory=lambda *_: structlog.WriteLogger(cast("TextIO", LenientStream(stream or sys.stderr))),
        cache_logger_on_first_use=False,
    )


class LenientStream:
    """Writes to a stream. A line that cannot be written is lost, as in Kafka: a full disk must not end what the node
    does."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def cut(_logger: object, _method: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
    """A structlog processor: shortens long values, some of which come from peers."""
    for name, value in event.items():
        longest = LONGEST_TRACE if name == "exception" else LONGEST_VALUE
        if isinstance(value, str) and len(value) > longest:
            event[name] = shortened(value, longest)
    return event


def render_json(_logger: object, _method: str, event: MutableMapping[str, object]) -> str:
    """Time, level, component and event first, then the other keys in their order."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "component", "event") if key in event}
    line = json.dumps({**first, **event}, default=str, ensure_ascii=False)
    # Characters that JSON does not escape and terminals act on, such as marks that change the direction of text.
    return line if line.isprintable() else json.dumps({**first, **event}, default=str)


def render_text(_logger: object, _method: str, event: MutableMapping[str, object], *, coloured: bool) -> str:
    time = str(event.pop("timestamp", ""))[11:23]
    level = str(event.pop("level", "info"))
    component = event.pop("component", "")
    text = event.pop("event", "")
    trace = "\n".join(map(printable, str(event.pop("exception", "")).split("\n")))
    begin = f"{time} {level:<8}"
    begin = f"{COLOURS.get(level, '')}{begin}{RESET}" if coloured else begin
    line = f"{begin} {component}: {text}{_pairs(event)}"
    return f"{line}\n{trace}" if trace else line


def _pairs(event: Mapping[str, object]) -> str:
    return "".join(f" {key}={printable(str(value))}" for key, value in event.items())
