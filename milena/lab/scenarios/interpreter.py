"""Plays a scenario on a driver: step by step, and after each step compares what its data expects.

An expectation is waited for: followers come after their leaders. What must *not* happen is therefore expected after
something that would come later. The report of a failure shows the replicas as the documents draw them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from milena.lab.scenarios.actions import carry_out
from milena.lab.scenarios.driver import CONTROLLER, Driver
from milena.lab.scenarios.exchanges import differences, mismatch, renumbered
from milena.lab.scenarios.reading import IN_TIER
from milena.lab.scenarios.script import THE_PARTITION, Script, Step, node_id, partition_of, replica_of
from milena.lab.scenarios.stage import ScenarioFailed, Stage
from milena.lab.scenarios.tables import Table, TableError, side_by_side
from milena.node.serving.verbs import VerbError

OTHERS: Final = frozenset({"same", "differ", "lost", "partition", "describe"})
"""What can be expected beside tables and the tier (``remote``, ``metadata``; ``remote/u-1``): equal logs, offsets at
which logs differ, acknowledged values that the leader lacks, the partition as the controller has it, and a replica as
its broker describes it."""


async def play(script: Script, driver: Driver) -> list[str]:
    """The replicas after each step, as text. Raises ScenarioFailed naming the step."""
    stage = Stage(script, driver)
    shown = []
    try:
        await driver.start(CONTROLLER)
        for number, step in enumerate(script.steps, 1):
            place = f"{script.id} ({script.variant}), step {number}: {step.title}"
            try:
                await _play_step(stage, step)
            except (ScenarioFailed, TableError, VerbError, OSError) as error:
                raise ScenarioFailed(f"{place}\n{error}\n\n{_drawn(stage)}") from error
            shown.append(f"{place}\n{_drawn(stage)}")
    finally:
        stage.close()
    return shown


async def _play_step(stage: Stage, step: Step) -> None:
    if step.before:
        await _expect(stage, step.before)
    for name, arguments in step.actions:
        await carry_out(stage, name, arguments)
    if step.expect:
        await _expect(stage, step.expect)
    for name, exchanges in step.exchanges.items():
        await _compare_exchanges(stage, name, await stage.resolve(list(exchanges)))


async def _expect(stage: Stage, expect: Mapping[str, Any]) -> None:
    expected = await stage.resolve(dict(expect))
    await stage.until("expected", lambda: _missing(stage, expected))


async def _missing(stage: Stage, expected: Mapping[str, Any]) -> str | None:
    await stage.observe()
    wrong = []
    for name, fields in expected.items():
        kind, _, partition = name.partition("/")
        if kind in IN_TIER:
            place = stage.place(partition_of(partition) if partition else THE_PARTITION)
            wrong += await IN_TIER[kind](stage, place, fields)
        elif kind not in OTHERS:
            found = replace(stage.shown(name), stopped=kind not in stage.up)
            wrong += [f"{name}: {one}" for one in Table.parse(fields).differences(found)]
    if (same := expected.get("same")) and (at := _difference(stage, *same)):
        wrong.append(f"the logs of {' and '.join(same)} differ at {at}")
    if differ := expected.get("differ"):
        at = _difference(stage, *differ["between"])
        first, last = differ["at"]
        if at != list(range(first, last + 1)):
            wrong.append(f"the logs differ at {at}, expected {first} to {last}")
    if "lost" in expected and (lost := await _lost(stage)) != expected["lost"]:
        wrong.append(f"acknowledged and lost are {lost}, expected {expected['lost']}")
    if "partition" in expected and (reason := mismatch(expected["partition"], await stage.partition())):
        wrong.append(f"partition{reason}")
    for broker, fields in expected.get("describe", {}).items():
        if reason := mismatch(fields, await stage.replica(broker)):
            wrong.append(f"{broker}{reason}")
    return "\n".join(wrong) or None


def _difference(stage: Stage, one: str, other: str) -> list[int]:
    """The offsets at which two logs do not hold the same record of the same epoch."""
    left, right = (stage.tables[broker].log or {} for broker in (one, other))
    return sorted(offset for offset in {*left, *right} if left.get(offset) != right.get(offset))


async def _lost(stage: Stage) -> list[str]:
    """Values that were acknowledged at acks=all and are not in the leader's log."""
    leader = (await stage.partition())["leader"]
    broker = next((one for one in stage.script.replicas if node_id(one) == leader), None)
    log = {} if broker is None else stage.tables[broker].log or {}
    held = {(offset, value) for offset, (value, _) in log.items()}
    return [value for value, offset in stage.acknowledged.items() if (offset, value) not in held]


async def _compare_exchanges(stage: Stage, name: str, expected: Sequence[Any]) -> None:
    node, number = stage.rules[name]
    numbers = None if stage.numbering is None else stage.numbering.numbers

    async def missing() -> str | None:
        found = renumbered(await stage.verb(node, "traced", rule=number), numbers)
        return "\n".join(differences(expected, found)) or None

    await stage.until(f"exchanges {name}", missing)


def _drawn(stage: Stage) -> str:
    columns = {}
    for name in stage.tables:
        broker, _ = replica_of(name)
        columns[name] = replace(stage.shown(name), stopped=broker not in stage.up).lines()
    return side_by_side(columns) if columns else ""
