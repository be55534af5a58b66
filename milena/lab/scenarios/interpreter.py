"""Runs a scenario on a driver, and compares the state after each step with the expected one.

An expectation is waited for, because followers lag behind their leaders. That something does *not* happen is
compared again after later events (``settling``). The report of a failure shows the replicas as the documents draw them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from milena.lab.scenarios.actions import action_line, carry_out
from milena.lab.scenarios.driver import CONTROLLER, Driver
from milena.lab.scenarios.exchanges import differences, mismatch, renumbered
from milena.lab.scenarios.played import REPLICA, Check, NamedSegment, PlayedStep, ReplicaState, Watch
from milena.lab.scenarios.reading import IN_TIER
from milena.lab.scenarios.remote import expected_rows, segments_in
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
from milena.lab.scenarios.settling import HEARTBEATS, expects_no_change, expects_no_request, settle
from milena.lab.scenarios.stage import ScenarioFailed, Stage
from milena.lab.scenarios.tables import DrawnTable, Mark, Row, Table, TableError
from milena.lab.scenarios.transactions import actions as transaction_actions
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
        await stage.start(CONTROLLER)
        for number, step in enumerate(script.steps, 1):
            wrong: Exception | None = None
            try:
                await _play_step(stage, step)
            except (ScenarioFailed, ScriptError, TableError, LabCommandError, OSError) as error:
                wrong = error
            watch(played := await _played(stage, number, step, None if wrong is None else str(wrong)))
            if wrong is not None:
                raise ScenarioFailed(f"{played.place}\n{wrong}\n\n{played.drawn_replicas()}") from wrong
            shown.append(f"{played.place}\n{played.drawn_replicas()}")
        await stage.recorder.end()
    finally:
        stage.close()
    return shown


async def _play_step(stage: Stage, step: Step) -> None:
    stage.expected, stage.tier_rows, stage.traces, stage.longest_write = {}, {}, {}, 0.0
    if step.before:
        await _expect(stage, step.before)
        stage.expected = {}
    unchanged = await expects_no_change(stage, step.expect, _different)
    for name, arguments in step.actions:
        await carry_out(stage, name, arguments)
    if step.expect:
        await _expect(stage, step.expect)
    for name, exchanges in step.exchanges.items():
        await _compare_exchanges(stage, name, await stage.resolve(list(exchanges)))
    if unchanged or expects_no_request(step):
        await settle(stage)
        await _expect_still(stage, step)


async def _expect(stage: Stage, expect: Fields) -> None:
    stage.expected = expected = await stage.resolve(dict(expect))
    await stage.until("expected", lambda: _missing(stage, expected))


async def _expect_still(stage: Stage, step: Step) -> None:
    wrong = await _missing(stage, stage.expected)
    for name, exchanges in step.exchanges.items():
        wrong = wrong or await _different_exchanges(stage, name, await stage.resolve(list(exchanges)))
    if wrong is not None:
        raise ScenarioFailed(f"as expected at first, and no longer after {HEARTBEATS} heartbeats: {wrong}")


async def _missing(stage: Stage, expected: Fields) -> str | None:
    await stage.observe()
    return await _different(stage, expected)


async def _different(stage: Stage, expected: Fields) -> str | None:
    """Compare with the replicas as they were last observed."""
    wrong = []
    for name, fields in expected.items():
        kind, _, partition = name.partition("/")
        if kind in IN_TIER:
            place = stage.place(partition_of(partition) if partition else THE_PARTITION)
            compared = await IN_TIER[kind](stage, place, fields)
            wrong += compared.wrong
            stage.tier_rows[name] = compared.rows
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
    wrong += await transaction_actions.differences(stage, expected.get("transactions", {}))
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
    log = {} if broker is None else stage.tables.get(broker, Table()).log or {}
    held = {(offset, value) for offset, (value, _) in log.items()}
    return [value for value, offset in stage.acknowledged.items() if (offset, value) not in held]


async def _compare_exchanges(stage: Stage, name: str, expected: Sequence[object]) -> None:
    await stage.until(f"exchanges {name}", lambda: _different_exchanges(stage, name, expected))


async def _different_exchanges(stage: Stage, name: str, expected: Sequence[object]) -> str | None:
    node, number = stage.rule(name)
    numbers = None if stage.numbering is None else stage.numbering.numbers
    found = stage.traces[name] = [renumbered(one, numbers) for one in await stage.command(node, "traced", rule=number)]
    return "\n".join(differences(expected, found)) or None


async def _played(stage: Stage, number: int, step: Step, wrong: str | None) -> PlayedStep:
    script, recorder = stage.script, stage.recorder
    for node in (CONTROLLER, *sorted(stage.up)):
        await recorder.collect(node)
    replicas = {name: _replica_state(stage, name) for name in stage.tables}
    return PlayedStep(
        place=f"{script.id} ({script.variant}), step {number}: {step.title}",
        number=number,
        title=step.title,
        quote=step.quote,
        seconds=recorder.seconds,
        events=recorder.take(stage.epoch_name, stage.segment_name),
        tables=_drawn_tables(stage, replicas),
        replicas=replicas,
        segments=await _segments(stage),
        checks=_checks(stage, step),
        lost=await _lost_so_far(stage),
        traces=stage.traces,
        longest_write=stage.longest_write,
        epochs={} if stage.numbering is None else {document: run for run, document in stage.numbering.numbers.items()},
        wrong=wrong,
    )


async def _lost_so_far(stage: Stage) -> list[str]:
    with suppress(LabCommandError):  # the controller has ended, or there is no topic
        return await _lost(stage)
    return []


def _replica_state(stage: Stage, name: str) -> ReplicaState:
    table = replace(stage.shown(name), stopped=replica_of(name)[0] not in stage.up)
    return ReplicaState(table, stage.described.get(name, {}))


def _drawn_tables(stage: Stage, replicas: Mapping[str, ReplicaState]) -> list[DrawnTable]:
    """Return all replicas, and then what was expected of the tier."""
    drawn = []
    for name, replica in replicas.items():
        rows = [Row(None, line, Mark.UNCHECKED) for line in replica.table.lines()]
        with suppress(ValueError):  # an unreadable table has already failed the step
            if name in stage.expected:
                rows = Table.parse(stage.expected[name]).compared(replica.table)
        drawn.append(DrawnTable(name, REPLICA, rows))
    for name, fields in stage.expected.items():
        if (kind := name.partition("/")[0]) in IN_TIER:
            with suppress(ValueError):
                drawn.append(DrawnTable(name, kind, stage.tier_rows.get(name) or expected_rows(kind, fields)))
    return drawn


def _checks(stage: Stage, step: Step) -> list[Check]:
    others = [(name, fields) for name, fields in stage.expected.items() if name.partition("/")[0] in OTHERS]
    checks = [Check(action_line(name, fields)) for name, fields in others]
    return [*checks, *(Check(f"the requests traced as {name}") for name in step.exchanges)]


async def _segments(stage: Stage) -> list[NamedSegment]:
    if not stage.script.tier:
        return []
    files, found = await stage.driver.tier(), []
    for partition in stage.replicas:
        for segment in segments_in(files, stage.place(partition)):
            if (numbering := stage.numbering) is not None:
                with suppress(TableError):  # a segment with epochs that the document does not have is shown as it is
                    log, epochs = numbering.log(segment.log), numbering.epochs(segment.epochs)
                    segment = replace(segment, log=log, epochs=epochs)
            found.append(NamedSegment(str(partition), stage.segments.name_of(segment.id), segment))
    return sorted(found, key=lambda one: (one.partition, one.segment.start, one.name))
