"""The levels from which on the components of this process log: one for all, and others for some (KIP-412).

The levels live where structlog keeps its configuration: as everything about logging they belong to the process, and end
with it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

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
)
"""What ``get_logger`` is called with."""
_METHODS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class Levels:
    """A structlog processor: drops the events of components that are to say less than others."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._own: dict[str, str] = {}

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if self._own and _METHODS[method] < NUMBERS[self.of(str(event.get("component")))]:
            import structlog

            raise structlog.DropEvent
        return event

    def of(self, component: str) -> str:
        return self._own.get(component, self.root)

    def all(self) -> dict[str, str]:
        return {ROOT: self.root, **{component: self.of(component) for component in COMPONENTS}}

    def set(self, component: str, level: str | None) -> None:
        """None goes back to the level of all."""
        if component == ROOT:
            assert level is not None
            self.root = level
        elif level is None:
            self._own.pop(component, None)
        else:
            self._own[component] = level

    def lowest(self) -> int:
        """What any component says."""
        return max(NUMBERS["DEBUG"], min(NUMBERS[level] for level in (self.root, *self._own.values())))


def current_levels() -> dict[str, str]:
    """Level by component, and of ``root``."""
    return _present().all()


def set_level(component: str, level: str | None) -> None:
    """Let a component, or all (``root``), log from ``level`` on; None takes a component's own level back."""
    import structlog

    levels = _present()
    levels.set(component, level)
    # Loggers look at the configuration with each event.
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
