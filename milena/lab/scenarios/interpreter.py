"""Runs a scenario on a driver, and compares the state after each step with the expected one.

An expectation is waited for, because followers lag behind their leaders. That something does *not* happen is therefore
expected after something that would happen later. The report of a failure shows the replicas as the documents draw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from milena.lab.scenarios.actions import carry_out
from milena.lab.scenarios.driver import CONTROLLER, Driver
from milena.lab.scenarios.exchanges import differences, mismatch, renumbered
from milena.lab.scenarios.played import PlayedStep, Watch
from milena.lab.scenarios.reading import IN_TIER
from milena.lab.scenarios.remote import tier_lines
from milena.lab.scenarios.script import (
    THE_PARTITION,
    Fields,
    Script,
    ScriptError,
    Step,
    node_id,
    partition_of,
    replica_of,
)
from milena.lab.scenarios.stage import ScenarioFailed, Stage
from milena.lab.scenarios.tables import Table, TableError
from milena.lab.scenarios.vocabulary import OTHERS, check
from milena.node.serving.lab_commands import LabCommandError


def silent(_: PlayedStep) -> None:
    """For runs without a watcher."""


async def play(script: Script, driver: Driver, watch: Watch = silent) -> list[str]:
    """Run a scenario. Return the replicas after each step, as text. ``watch`` is called after each step.

    Raises ScriptError for unknown names, before any node starts; ScenarioFailed naming the step.
    """
    check(script)
    stage = Stage(script, driver)
    shown = []
    try:
        await driver.start(CONTROLLER)
        for number, step in enumerate(script.steps, 1):
            place = f"{script.id} ({script.variant}), step {number}: {step.title}"
            try:
                await _play_step(stage, step)
            except (ScenarioFailed, ScriptError, TableError, LabCommandError, OSError) as error:
                watch(played := _played(stage, place, step, str(error)))
                raise ScenarioFailed(f"{place}\n{error}\n\n{played.replicas()}") from error
            watch(played := _played(stage, place, step))
            shown.append(f"{place}\n{played.replicas()}")
    finally:
        stage.close()
    return shown


async def _play_step(stage: Stage, step: Step) -> None:
    stage.expected = {}
    if step.before:
        await _expect(stage, step.before)
        stage.expected = {}
    for name, arguments in step.actions:
        await carry_out(stage, name, arguments)
    if step.expect:
        await _expect(stage, step.expect)
    for name, exchanges in step.exchanges.items():
        await _compare_exchanges(stage, name, await stage.resolve(list(exchanges)))


async def _expect(stage: Stage, expect: Fields) -> None:
    stage.expected = expected = await stage.resolve(dict(expect))
    await stage.until("expected", lambda: _missing(stage, expected))


async def _missing(stage: Stage, expected: Fields) -> str | None:
    await stage.observe()
    wrong = []
    for name, fields in expected.items():
        kind, _, partition = name.partition("/")
        if kind in IN_TIER:
            place = stage.place(partition_of(partition) if partition else THE_PARTITION)
            compared = await IN_TIER[kind](stage, place, fields)
            wrong += compared.wrong
            stage.tier_found[name] = compared.found
        elif kind not in OTHERS:
            found = replace(stage.shown(name), stopped=kind not in stage.up)
            wrong += [f"{name}: {one}" for one in Table.parse(fields).differences(found)]
    first, *others = expected.get("same") or [""]
    for other in others:
        if at := _difference(stage, first, other):
            wrong.append(f"the logs of {first} and {other} differ at {at}")
    if differ := expected.get("differ"):
        at = _difference(stage, *differ["between"])
        begin, end = differ["at"]
        if at != list(range(begin, end + 1)):
            wrong.append(f"the logs differ at {at}, expected {begin} to {end}")
    if "lost" in expected and (lost := await _lost(stage)) != expected["lost"]:
        wrong.append(f"acknowledged and lost are {lost}, expected {expected['lost']}")
    if "partition" in expected and (reason := mismatch(expected["partition"], await stage.partition())):
        wrong.append(f"partition{reason}")
    for broker, fields in expected.get("describe", {}).items():
        if reason := mismatch(fields, await stage.replica(broker)):
            wrong.append(f"{broker}{reason}")
    return "\n".join(wrong) or None


def _difference(stage: Stage, one: str, other: str) -> list[int]:
    """Return the offsets at which two logs do not have the same record of the same epoch."""
    left, right = (stage.tables.get(replica, Table()).log or {} for replica in (one, other))
    return sorted(offset for offset in {*left, *right} if left.get(offset) != right.get(offset))


async def _lost(stage: Stage) -> list[str]:
    """Return the values that were acknowledged with acks=all and are missing in the leader's log."""
    leader = (await stage.partition())["leader"]
    broker = next((one for one in stage.script.replicas if node_id(one) == leader), None)
    log = {} if broker is None else stage.tables[broker].log or {}
    held = {(offset, value) for offset, (value, _) in log.items()}
    return [value for value, offset in stage.acknowledged.items() if (offset, value) not in held]


async def _compare_exchanges(stage: Stage, name: str, expected: Sequence[object]) -> None:
    node, number = stage.rule(name)
    numbers = None if stage.numbering is None else stage.numbering.numbers

    async def missing() -> str | None:
        found = [renumbered(one, numbers) for one in await stage.command(node, "traced", rule=number)]
        return "\n".join(differences(expected, found)) or None

    await stage.until(f"exchanges {name}", missing)


def _played(stage: Stage, place: str, step: Step, wrong: str | None = None) -> PlayedStep:
    tables, in_tier, also = {}, {}, []
    for name, fields in stage.expected.items():
        kind, _, _ = name.partition("/")
        if kind in OTHERS:
            also.append(f"{name}: {fields}")
            continue
        with suppress(ValueError):  # an unreadable table has already failed the step
            if kind in IN_TIER:
                in_tier[name] = tier_lines(kind, fields)
            else:
                tables[name] = Table.parse(fields)
    return PlayedStep(
        place,
        tables,
        {name: replace(stage.shown(name), stopped=replica_of(name)[0] not in stage.up) for name in stage.tables},
        in_tier,
        stage.tier_found,
        [*also, *(f"exchanges {name}: {len(exchanges)}" for name, exchanges in step.exchanges.items())],
        wrong,
    )
