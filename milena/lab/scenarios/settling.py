"""Waits for later events, so that a scenario can expect that something does not happen.

A step expects that if a list of exchanges is empty, or if what it expects held already before its actions. The scenario
then waits until the controller has had more heartbeats of each broker, and compares again: what the actions have caused
has arrived by then. In the simulation as on processes a heartbeat follows its predecessor after the interval, which is
hundreds of times as long as a request takes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.reading import IN_TIER
from milena.lab.scenarios.script import Fields, Step, node_id
from milena.lab.scenarios.stage import ScenarioFailed, Stage
from milena.lab.scenarios.tables import TableError
from milena.node.serving.lab_commands import LabCommandError
from milena.protocol.api_keys import ApiKey

HEARTBEATS: Final = 3
"""The third follows two whole intervals (``broker.heartbeat.interval.ms``). Within each of them a follower fetches, and
a broker asks for metadata, even if there is nothing new."""
REGISTERED: Final = frozenset({"partition", "describe"})
STOPPING: Final = frozenset({"hold", "drop", "fail", "disconnect"})
"""The rules that keep requests from the controller."""

Compare = Callable[[Stage, Fields], Awaitable[str | None]]
"""Returns what differs from expectations, or None."""


async def expects_no_change(stage: Stage, expect: Fields, different: Compare) -> bool:
    """Return whether the step, whose actions follow, expects that something does not happen: what it expects of the
    partition or of a broker's own description holds now, or all that it expects. The tier's part is not looked at: what
    is done there ends with the action that requests it."""
    names = [name for name in expect if name.partition("/")[0] not in IN_TIER]
    held = [name for name in names if await _holds(stage, {name: expect[name]}, different)]
    return bool(held) and (held == names or not REGISTERED.isdisjoint(held))


async def _holds(stage: Stage, expect: Fields, different: Compare) -> bool:
    try:
        return await different(stage, await stage.resolve(dict(expect))) is None
    except (ScenarioFailed, LabCommandError, TableError):  # it has a value that comes later, or a node is down
        return False


def expects_no_request(step: Step) -> bool:
    """Return whether the step expects that some requests do not come."""
    return any(not exchanges for exchanges in step.exchanges.values())


async def settle(stage: Stage) -> None:
    """Wait for later heartbeats of all brokers that the controller can hear. Raises ScenarioFailed if there are none,
    or if they do not come."""
    brokers = await _heard(stage)
    if not brokers:
        raise ScenarioFailed("nothing that comes later can be waited for: the controller hears no broker")
    rules = {}
    for broker in brokers:
        traced = {"api": ApiKey.BROKER_HEARTBEAT.name, "peer": str(node_id(broker)), "count": HEARTBEATS}
        rules[broker] = (await stage.command(CONTROLLER, "trace", **traced))["rule"]

    async def unheard() -> str | None:
        hits = {rule["rule"]: rule["hits"] for rule in await stage.command(CONTROLLER, "rules")}
        return ", ".join(broker for broker, rule in rules.items() if hits[rule] < HEARTBEATS) or None

    await stage.until(f"{HEARTBEATS} later heartbeats", unheard)
    for rule in rules.values():
        await stage.command(CONTROLLER, "release", rule=rule)


async def _heard(stage: Stage) -> Sequence[str]:
    """Return the running brokers whose heartbeats reach the controller."""
    rules: Sequence[Mapping[str, object]] = await stage.command(CONTROLLER, "rules")
    kept = {
        rule.get("peer")
        for rule in rules
        if rule["command"] in STOPPING and rule.get("api") in (None, ApiKey.BROKER_HEARTBEAT.name)
    }
    return [
        broker
        for broker in stage.script.brokers
        if broker in stage.up
        and {None, str(node_id(broker))}.isdisjoint(kept)
        and frozenset({broker, CONTROLLER}) not in stage.cuts
    ]
