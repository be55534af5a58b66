"""The names that a scenario's steps may use, checked before any node starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.lab.scenarios.actions import ACTIONS
from milena.lab.scenarios.conditions import CONDITIONS
from milena.lab.scenarios.peers import PEERS
from milena.lab.scenarios.reading import IN_TIER
from milena.lab.scenarios.script import Fields, Script, ScriptError, check_names
from milena.lab.scenarios.tables import KEYS

OTHERS: Final = frozenset({"same", "differ", "lost", "partition", "describe", "transactions"})
"""The expectations in addition to tables and the tier (``remote``, ``metadata``; ``remote/u-1``): equal logs, offsets
at which logs differ, acknowledged values that the leader lacks, the partition as registered at the controller, a
replica as its broker describes it, and transactional ids as their coordinator describes them."""


def check(script: Script) -> None:
    """Check the names in a script. Raises ScriptError for an unknown test peer, action, condition, expectation or field
    of a table."""
    check_names(f"{script.id}: no test peer", script.peers.values(), PEERS)
    for number, step in enumerate(script.steps, 1):
        place = f"{script.id}, step {number}"
        check_names(f"{place}: no action", (name for name, _ in step.actions), ACTIONS)
        for name, arguments in step.actions:
            if name == "replace" and isinstance(arguments, Mapping):
                check_names(f"{place}: no test peer", (peer for peer in arguments.values() if peer is not None), PEERS)
            if name == "wait" and isinstance(arguments, Mapping):
                check_names(f"{place}: no condition", arguments, CONDITIONS)
        _check_expected(f"{place}, before", script, step.before)
        _check_expected(f"{place}, expect", script, step.expect)


def _check_expected(place: str, script: Script, expected: Fields) -> None:
    brokers = {*script.brokers, *script.replicas}
    for name, fields in expected.items():
        kind, _, _ = name.partition("/")
        check_names(f"{place}: no replica or expectation", [kind], {*brokers, *OTHERS, *IN_TIER})
        if kind in brokers:
            if not isinstance(fields, dict):
                raise ScriptError(f"{place}: {name} has the fields {', '.join(sorted(KEYS))}; it is not {fields!r}")
            check_names(f"{place}: {name} has no", fields, KEYS)
    for name in ("same", "differ"):
        named = expected.get(name, [])
        replicas = named.get("between", []) if isinstance(named, dict) else named
        if name in expected and len(replicas) < 2:
            raise ScriptError(f"{place}: {name} needs two replicas or more, as in [A, B]")
        check_names(f"{place}: {name}: no broker", (str(one).partition("/")[0] for one in replicas), brokers)
