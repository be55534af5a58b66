"""Periodic tasks of brokers, run when a scenario requests them.

::

    roll: A                  the replica rolls its active segment; A/u-1 is that of another partition
    flush: A                 flush the replica's log, and write the checkpoints of its broker
    tier: A                  a leader copies to the tier and expires there, a follower reads what is copied
    retention: A             the broker applies local retention
    close_tier, open_tier    hide the content of the tier; show it again
    break_tier: {operation: write, error: EIO}    in the simulation: operations on its files fail until ``open_tier``

Each also takes a list, and processes it in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from uuid import UUID

from milena.lab.scenarios.remote import segments_in
from milena.lab.scenarios.script import Fields, Partition, replica_of
from milena.lab.scenarios.stage import Action, Stage
from milena.protocol.uuids import to_text


def _of_replicas(command: str) -> Callable[[Stage, str | list[str]], Awaitable[None]]:
    async def act(stage: Stage, names: str | list[str]) -> None:
        for name in _all(names):
            await stage.of_replica(name, command)

    return act


async def _tier(stage: Stage, names: str | list[str]) -> None:
    for name in _all(names):
        broker, partition = replica_of(name)
        before = await _segments(stage, partition)
        await stage.of_replica(name, "tiering")
        after = await _segments(stage, partition)
        for action, here, there in (("copy", after, before), ("delete", before, after)):
            for segment in here:
                if segment not in there:
                    stage.recorder.note_segment(broker, action, here[segment])


async def _segments(stage: Stage, partition: Partition) -> dict[UUID, Fields]:
    """Return the segments of a partition in the tier: their ids as Kafka writes them, and their offsets."""
    found = segments_in(await stage.driver.tier(), stage.place(partition))
    return {one.id: {"id": to_text(one.id), "start_offset": one.start, "end_offset": one.end} for one in found}


async def _retention(stage: Stage, brokers: str | list[str]) -> None:
    for broker in _all(brokers):
        await stage.command(broker, "retain")


async def _close(stage: Stage, _arguments: None) -> None:
    await stage.driver.close_tier()


async def _break(stage: Stage, arguments: Mapping[str, str]) -> None:
    await stage.driver.break_tier(arguments.get("operation", ""), arguments["error"])


async def _open(stage: Stage, _arguments: None) -> None:
    await stage.driver.open_tier()


def _all(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names


UPKEEP_ACTIONS: Final[Mapping[str, Action]] = {
    "roll": _of_replicas("roll"),
    "flush": _of_replicas("flush"),
    "tier": _tier,
    "retention": _retention,
    "close_tier": _close,
    "break_tier": _break,
    "open_tier": _open,
}
