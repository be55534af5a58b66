"""The log levels of this process: one default, and overrides by component (KIP-412).

The levels are part of structlog's configuration: they belong to the process, like all logging, and are not persisted.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from milena.runtime.lean_import import lean_import

ROOT: Final = "root"
NUMBERS: Final = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
"""Kafka's names of levels. Milena logs nothing below DEBUG."""
COMPONENTS: Final = (
    "applier",
    "auto-create",
    "broker",
    "config",
    "controller",
    "controller-link",
    "directories",
    "fetcher",
    "fetchers",
    "follower",
    "groups",
    "isr",
    "lifecycle",
    "log-mover",
    "markers",
    "metadata",
    "network",
    "node",
    "observer",
    "process",
    "remote log metadata",
    "remote storage",
    "remote-index-cache",
    "remote-log-reader",
    "storage",
    "tier",
    "transactions",
)
"""The components: the first argument of ``get_logger``."""
_METHODS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class Levels:
    """A structlog processor: drops events below the level of their component."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._own: dict[str, str] = {}

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
        if self._own and _METHODS[method] < NUMBERS[self.of(str(event.get("component")))]:
            import structlog

            raise structlog.DropEvent
        return event

    def of(self, component: str) -> str:
        return self._own.get(component, self.root)

    def all(self) -> dict[str, str]:
        return {ROOT: self.root, **{component: self.of(component) for component in COMPONENTS}}

    def set(self, component: str, level: str | None) -> None:
        """Set a level; None removes the component's own level, so that the default applies."""
        if component == ROOT:
            assert level is not None
            self.root = level
        elif level is None:
            self._own.pop(component, None)
        else:
            self._own[component] = level

    def lowest(self) -> int:
        """The lowest level of any component."""
        return max(NUMBERS["DEBUG"], min(NUMBERS[level] for level in (self.root, *self._own.values())))


def current_levels() -> dict[str, str]:
    """The level of each component, and of ``root``."""
    return _present().all()


def set_level(component: str, level: str | None) -> None:
    """Set the level of a component, or the default (``root``); None removes a component's own level."""
    import structlog

    levels = _present()
    levels.set(component, level)
    # Loggers read the configuration with each event.
    processors = structlog.get_config()["processors"]
    if levels not in processors:
        processors = [levels, *processors]
    structlog.configure(processors=processors, wrapper_class=structlog.make_filtering_bound_logger(levels.lowest()))


def _present() -> Levels:
    with lean_import():
        import structlog
    for processor in structlog.get_config()["processors"]:
        if isinstance(processor, Levels):
            return processor
    return Levels("INFO")
