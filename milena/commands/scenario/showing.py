"""What a scenario does, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from milena.lab.scenarios.reading import IN_TIER
from milena.lab.scenarios.remote import tier_lines
from milena.lab.scenarios.script import Fields, Script, variants_of, worlds_of
from milena.lab.scenarios.tables import Table, side_by_side
from milena.lab.scenarios.vocabulary import OTHERS

WIDTH: Final = 100


def described(data: Fields, script: Script) -> Iterator[str]:
    """Lines: what the scenario is about, then each step with its actions and what it expects."""
    yield f"{script.id}: {script.title}"
    about = {
        "from": data.get("document"),
        "variants": ", ".join(variants_of(data)),
        "variant": script.variant,
        "played in": " and ".join(worlds_of(data)),
        "replicas": ", ".join(script.replicas),
        "brokers": ", ".join(script.brokers),
        "topic": _settings(script.config),
        "all nodes": _settings(script.nodes),
        "test peers": _settings(script.peers),
    }
    for name, value in about.items():
        if value:
            yield f"  {name + ':':<12}{value}"
    if note := data.get("note"):
        yield ""
        yield from textwrap.wrap(str(note), WIDTH)
    for number, step in enumerate(script.steps, 1):
        yield ""
        yield f"step {number}: {step.title}"
        for name, arguments in step.actions:
            yield f"  {name} {'' if arguments is None else arguments}".rstrip()
        for what, expected in (("before", step.before), ("expected", step.expect)):
            if expected:
                yield f"  {what}:"
                yield from (f"    {line}".rstrip() for line in _drawn(expected))
        for name, exchanges in step.exchanges.items():
            yield f"  exchanges {name}:"
            yield from (f"    {one}" for one in exchanges)


def _drawn(expected: Fields) -> Iterator[str]:
    columns, others = {}, []
    for name, fields in expected.items():
        kind = name.partition("/")[0]
        try:
            if kind in OTHERS:
                others.append(f"{name}: {fields}")
            elif kind in IN_TIER:
                columns[name] = tier_lines(kind, fields)
            else:
                columns[name] = Table.parse(fields).expected_lines()
        except ValueError:  # it has values that only a run knows, as in [3, $epoch]
            others.append(f"{name}: {fields}")
    if columns:
        yield from side_by_side(columns).splitlines()
    yield from others


def _settings(values: Fields) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
