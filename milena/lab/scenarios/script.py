"""A scenario as data: ``milena/lab/scenarios/<id>.yaml``, read for one of its variants.

::

    id, title, document        the subject, and the document that it is from
    replicas: [A, B]           the partition's replicas in order; brokers are letters, A is node 1
    brokers: [A, B, C]         if there are more brokers than replicas
    epochs: [0, 1, 2]          the document's leader epochs with records; without it epochs are not renumbered
    config, nodes              configuration of the topic, and of all nodes
    release_version            the initial metadata version of the cluster, as in 3.5-IV0
    log_dirs: 2                of each broker
    tier: true                 the cluster has a remote tier; its periodic tasks run once an hour, unless
                               ``nodes`` configures another interval
    only: {simulation: why}    if it can run in one world only
    variants: {name: {...}}    ``peers`` ({A: name of a test peer}), ``set`` (values for $names), and of the above
                               ``config``, ``nodes``, ``release_version``; ``conclusion``: what a control experiment
                               shows, as in "msg 4 is lost"
    steps:
      - title
        quote: text            the document's sentence about this step
        in: [variant]          only in this variant
        do: [{action: ...}]    see ``lab.scenarios.actions``
        before: {A: table}     the expected state before the step
        expect: {A: table}     see ``lab.scenarios.tables``; also ``same`` and ``differ``, ``remote`` and ``metadata``
        exchanges: {trace: [...]}

``$name`` is a value of the variant, or one that the run has remembered; ``$name + 1`` is the value plus one. If a
scenario has the variant ``plain``, that is the first.

A file with ``cases`` in place of ``steps`` compares algorithms (``lab.scenarios.comparing.cases``).

Most scenarios have one partition, 0 of topic ``t``. Others are named explicitly: ``of: u-1``, and ``A/u-1`` is their
replica.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from milena.command_line.options import nearest
from milena.lab.scenarios.heads import PLAIN, SIMULATION, SUFFIX, WORLDS, all_scenarios

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
        "brokers",
        "tier",
        "only",
        "variants",
        "steps",
        "note",
    }
)
CASES: Final = "cases"
REQUIRED: Final = ("id", "title", "replicas", "steps")
REQUIRED_TO_COMPARE: Final = ("id", "title", CASES)
VARIANT_KEYS: Final = frozenset({"peers", "set", "config", "nodes", "release_version", "conclusion"})
STEP_KEYS: Final = frozenset({"title", "quote", "in", "before", "do", "expect", "exchanges", "note"})
BROKERS: Final = "ABCDE"
TOPIC: Final = "t"
COORDINATORS: Final = "coordinators"
"""The action that every scenario with transactions has."""


Fields: TypeAlias = Mapping[str, Any]
"""A part of a scenario's file. Its readers check the content (``lab.scenarios.vocabulary``)."""


class ScriptError(ValueError):
    """A scenario's file is invalid."""


@dataclass(frozen=True, slots=True)
class Step:
    """``actions``: (name, arguments). ``quote``: the document's sentence about the step."""

    title: str
    before: Fields
    actions: Sequence[tuple[str, object]]
    expect: Fields
    exchanges: Mapping[str, Sequence[object]]
    quote: str | None = None


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
    """Configuration by Kafka's keys."""
    peers: Mapping[str, str] = field(default_factory=dict)
    """Names of nodes to the test peers that replace them."""
    release_version: str | None = None
    log_dirs: int = 1
    values: Fields = field(default_factory=dict)
    brokers: tuple[str, ...] = ()
    tier: bool = False
    document: str = ""
    note: str = ""
    conclusion: str | None = None
    """What the control experiment shows; the expectations of its steps verify that."""

    @property
    def has_transactions(self) -> bool:
        """Whether it creates the topics of coordinators."""
        return any(name == COORDINATORS for step in self.steps for name, _ in step.actions)


class Partition(NamedTuple):
    """A partition by its name, as in ``t-0``."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    def on(self, broker: str) -> str:
        """Return the name of its replica on a broker."""
        return broker if self == THE_PARTITION else f"{broker}/{self}"


THE_PARTITION: Final = Partition(TOPIC, 0)


def partition_of(name: str) -> Partition:
    """Parse ``u-1``. Raises ScriptError."""
    topic, _, number = name.rpartition("-")
    if not topic or not number.isdecimal():
        raise ScriptError(f"{name!r} is not a partition: write it as <topic>-<number>")
    return Partition(topic, int(number))


def replica_of(name: str) -> tuple[str, Partition]:
    """Parse a replica: ``A`` of the one partition, ``A/u-1`` of another. Raises ScriptError."""
    broker, _, partition = name.partition("/")
    return broker, partition_of(partition) if partition else THE_PARTITION


def node_id(broker: str) -> int:
    """Return the node id; that of A is 1. Raises ScriptError."""
    if len(broker) != 1 or broker not in BROKERS:
        raise ScriptError(f"{broker!r} is not a broker; there are {', '.join(BROKERS)}")
    return BROKERS.index(broker) + 1


def is_comparison(data: Fields) -> bool:
    """Return whether the file compares algorithms (``lab.scenarios.comparing``) and has no steps."""
    return CASES in data


def worlds_of(data: Fields) -> list[str]:
    """Return the worlds in which a scenario can run. Raises ScriptError."""
    return list(_only(data)) or list(WORLDS)


def reason_for(data: Fields) -> str:
    """Return why a scenario cannot run in all worlds; empty if it can. Raises ScriptError."""
    return next(iter(_only(data).values()), "")


def _only(data: Fields) -> Mapping[str, str]:
    only = data.get("only") or {}
    if not isinstance(only, Mapping) or len(only) > 1 or not all(only.values()):
        raise ScriptError(f"{data['id']}: only is one world with the reason, as in {{{SIMULATION}: why}}, not {only!r}")
    check_names(f"{data['id']}: no world", only, WORLDS)
    return only


def variants_of(data: Fields) -> list[str]:
    """Return the variants in the order of the file."""
    return list(_variants(data))


def load(scenario: str, variant: str | None = None) -> Script:
    """Load a variant, by default the first. Raises ScriptError."""
    return script_of(source(scenario), variant)


@cache
def source(scenario: str) -> Fields:
    """Return the content of a scenario's file. Raises ScriptError."""
    file = resources.files("milena.lab.scenarios").joinpath(scenario + SUFFIX)
    if not file.is_file():
        known = all_scenarios()
        raise ScriptError(f"no scenario {scenario!r}{nearest(scenario, known)}; there are {', '.join(known)}")
    data = parse(file.read_text(), scenario + SUFFIX)
    if data["id"] != scenario:
        raise ScriptError(f"{scenario}{SUFFIX} has the id {data['id']}")
    return data


def parse(text: str, name: str) -> Fields:
    """Parse a scenario file. Raises ScriptError if it is not YAML, or lacks a required field."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScriptError(f"{name}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise ScriptError(f"{name}: not a scenario, which has {', '.join(REQUIRED)}")
    required = REQUIRED_TO_COMPARE if is_comparison(data) else REQUIRED
    if lacking := [key for key in required if key not in data]:
        raise ScriptError(f"{name}: a scenario needs {', '.join(lacking)}")
    return data


def script_of(data: Fields, variant: str | None = None) -> Script:
    """Return one variant of a scenario given as data. Raises ScriptError, also for a comparison."""
    scenario, known = data["id"], _variants(data)
    if is_comparison(data):
        raise ScriptError(f"{scenario} compares algorithms and has no steps")
    _check(data, known)
    variant = variant or next(iter(known))
    if variant not in known:
        raise ScriptError(
            f"{scenario} has no variant {variant!r}{nearest(variant, list(known))}; it has {', '.join(known)}"
        )
    chosen = known[variant]
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
        brokers=tuple(data.get("brokers", data["replicas"])),
        tier=bool(data.get("tier", False)),
        document=str(data.get("document", "")),
        note=_on_one_line(data.get("note", "")),
        conclusion=chosen.get("conclusion"),
        steps=[_step(step) for step in data["steps"] if variant in step.get("in", [variant])],
    )


def _variants(data: Fields) -> dict[str, Fields]:
    return {name: chosen or {} for name, chosen in (data.get("variants") or {PLAIN: {}}).items()}


def _check(data: Fields, known: Mapping[str, Fields]) -> None:
    _check_keys(data["id"], data, KEYS)
    for name, chosen in known.items():
        _check_keys(f"variant {name}", chosen, VARIANT_KEYS)
    for number, step in enumerate(data["steps"], 1):
        _check_keys(f"step {number}", step, STEP_KEYS)
        if "title" not in step:
            raise ScriptError(f"step {number} needs a title")
        if strangers := [name for name in step.get("in", ()) if name not in known]:
            raise ScriptError(f"{data['id']} has no variant {', '.join(strangers)}, which a step names")


def _step(data: Fields) -> Step:
    actions = []
    for action in data.get("do") or []:
        if isinstance(action, dict) and len(action) != 1:
            raise ScriptError(f"step {data['title']!r}: one action is one key with its arguments, not {action}")
        ((name, arguments),) = action.items() if isinstance(action, dict) else ((action, None),)
        actions.append((name, arguments))
    before, expect = data.get("before") or {}, data.get("expect") or {}
    quote = _on_one_line(data["quote"]) if "quote" in data else None
    return Step(data["title"], before, actions, expect, data.get("exchanges") or {}, quote)


def _on_one_line(text: object) -> str:
    return " ".join(str(text).split())


def _check_keys(what: str, data: object, keys: frozenset[str]) -> None:
    if not isinstance(data, Mapping):
        raise ScriptError(f"{what} has the fields {', '.join(sorted(keys))}; it is not {data!r}")
    check_names(f"{what} has no", data, keys)


def check_names(what: str, names: Iterable[object], known: Collection[str]) -> None:
    """Check that all ``names`` are known. Raises ScriptError with the nearest known name."""
    for name in names:
        if name not in known:
            there_are = ", ".join(sorted(known))
            raise ScriptError(f"{what} {name}{nearest(str(name), sorted(known))}; there are: {there_are}")


def _texts(config: Fields) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}
