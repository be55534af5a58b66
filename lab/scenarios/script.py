"""A scenario as data: ``lab/scenarios/<id>.yaml``, read for one of its variants.

::

    id, title, document        what it shows, and whose picture it is
    replicas: [A, B]           the partition's replicas in order; brokers are letters, A is node 1
    epochs: [0, 1, 2]          the document's leader epochs with records; without it a run is compared as it is
    config, nodes              configuration of the topic, and of all nodes
    release_version            the cluster's metadata version at its beginning, as in 3.5-IV0
    log_dirs: 2                of each broker
    variants: {name: {...}}    ``peers`` ({A: name of a test peer}), ``set`` (values for $names); the three above
    steps:
      - title
        in: [variant]          only there
        do: [{action: ...}]    see ``lab.scenarios.actions``
        expect: {A: table}     see ``lab.scenarios.tables``; also ``same`` and ``differ``
        exchanges: {trace: [...]}

``$name`` stands for a value of the variant, or one that the run remembers, ``$name + 1`` for the one after it. Where
a scenario has a plain variant, that is the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

KEYS: Final = frozenset(
    {
        "id",
        "title",
        "document",
        "replicas",
        "epochs",
        "config",
        "nodes",
        "release_version",
        "log_dirs",
        "variants",
        "steps",
        "note",
    }
)
VARIANT_KEYS: Final = frozenset({"peers", "set", "config", "nodes", "release_version"})
STEP_KEYS: Final = frozenset({"title", "in", "do", "expect", "exchanges", "note"})
BROKERS: Final = "ABCDE"


class ScriptError(ValueError):
    """A scenario's file cannot be read."""


@dataclass(frozen=True, slots=True)
class Step:
    """``actions`` are (name, arguments)."""

    title: str
    actions: Sequence[tuple[str, Any]]
    expect: Mapping[str, Any]
    exchanges: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Script:
    """One variant of one scenario."""

    id: str
    variant: str
    title: str
    replicas: tuple[str, ...]
    steps: Sequence[Step]
    epochs: tuple[int, ...] | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Kafka's names to values."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """Node names to the test peers that run in their place."""
    release_version: str | None = None
    log_dirs: int = 1
    values: Mapping[str, Any] = field(default_factory=dict)


def node_id(broker: str) -> int:
    """A is 1. Raises ScriptError."""
    if len(broker) != 1 or broker not in BROKERS:
        raise ScriptError(f"{broker!r} is no broker: they are {', '.join(BROKERS)}")
    return BROKERS.index(broker) + 1


def variants(scenario: str) -> list[str]:
    """The first is the plain one."""
    return list(_read(scenario).get("variants") or {"plain": {}})


def all_scenarios() -> list[str]:
    """The ids of all files."""
    names = (entry.name for entry in resources.files("lab.scenarios").iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def load(scenario: str, variant: str | None = None) -> Script:
    """Raises ScriptError."""
    data = _read(scenario)
    known = data.get("variants") or {"plain": {}}
    variant = variant or next(iter(known))
    if variant not in known:
        raise ScriptError(f"{scenario} has no variant {variant!r}; it has {', '.join(known)}")
    chosen = known[variant] or {}
    return Script(
        id=scenario,
        variant=variant,
        title=data["title"],
        replicas=tuple(data["replicas"]),
        epochs=tuple(data["epochs"]) if data.get("epochs") is not None else None,
        config=_texts({**data.get("config", {}), **chosen.get("config", {})}),
        nodes=_texts({**data.get("nodes", {}), **chosen.get("nodes", {})}),
        peers=chosen.get("peers") or {},
        release_version=chosen.get("release_version", data.get("release_version")),
        log_dirs=data.get("log_dirs", 1),
        values=chosen.get("set") or {},
        steps=[_step(step) for step in data["steps"] if variant in step.get("in", [variant])],
    )


def _step(data: Mapping[str, Any]) -> Step:
    _check_keys("a step", data, STEP_KEYS)
    actions = []
    for action in data.get("do") or []:
        ((name, arguments),) = action.items() if isinstance(action, dict) else ((action, None),)
        actions.append((name, arguments))
    return Step(data["title"], actions, data.get("expect") or {}, data.get("exchanges") or {})


@cache
def _read(scenario: str) -> Mapping[str, Any]:
    file = resources.files("lab.scenarios").joinpath(f"{scenario}.yaml")
    if not file.is_file():
        raise ScriptError(f"no scenario {scenario!r}; there are {', '.join(all_scenarios())}")
    data = yaml.safe_load(file.read_text())
    _check_keys(scenario, data, KEYS)
    if data["id"] != scenario:
        raise ScriptError(f"{scenario}.yaml calls itself {data['id']}")
    for name, chosen in (data.get("variants") or {}).items():
        _check_keys(f"variant {name}", chosen or {}, VARIANT_KEYS)
    for step in data["steps"]:
        if unknown := set(step.get("in", ())) - set(data.get("variants") or {"plain": {}}):
            raise ScriptError(f"{scenario} has no variant {', '.join(sorted(unknown))}, which a step is for")
    return dict(data)


def _check_keys(what: str, data: Mapping[str, Any], keys: frozenset[str]) -> None:
    if unknown := set(data) - keys:
        raise ScriptError(f"{what} has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(keys))}")


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}
