"""Cleanings of the tier that a scenario performs itself, on brokers that are the test peer ``cleans``.

::

    clean: {at: A, as: Seg-1, first: 0, last: 2, keep: [1, 2], map: {0: 4, 1: null}, leader_epoch: 0}
                                   copy the readable segments of these offsets as one segment with the records to
                                   keep, which replaces them; without ``map`` it is an ordinary copy. ``to: 100`` in
                                   place of ``map``: with the map of a leader that has cleaned up to there. Without
                                   ``leader_epoch`` the event has none, as from a broker without fences.
                                   ``pending: true``: it is not finished
    finish: {at: A, segment: Seg-1, leader_epoch: 0}     finish a pending one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NotRequired, TypedDict

from milena.lab.scenarios.stage import Action, Stage
from milena.protocol.uuids import from_text
from milena.tiered.segments.segment_metadata import UNFENCED

Clean = TypedDict(
    "Clean",
    {
        "at": str,
        "as": str,
        "first": int,
        "last": int,
        "keep": Sequence[int],
        "map": NotRequired[Mapping[int, int | None]],
        "to": NotRequired[int],
        "leader_epoch": NotRequired[int],
        "pending": NotRequired[bool],
    },
)
"""The arguments of ``clean``."""


class Finish(TypedDict):
    """The arguments of ``finish``."""

    at: str
    segment: str
    leader_epoch: NotRequired[int]


async def _clean(stage: Stage, arguments: Clean) -> None:
    entries = arguments.get("map") or {}
    made = await stage.of_replica(
        arguments["at"],
        "clean",
        first=arguments["first"],
        last=arguments["last"],
        keep=arguments["keep"],
        cleaner_offsets=[[epoch, offset] for epoch, offset in entries.items()],
        **({"to": arguments["to"]} if "to" in arguments else {}),
        leader_epoch=arguments.get("leader_epoch", UNFENCED),
    )
    stage.memory[arguments["as"]] = made["id"]
    stage.segments.take(arguments["as"], from_text(made["id"]))
    if not arguments.get("pending", False):
        await _finish_it(stage, arguments["at"], arguments["as"], arguments.get("leader_epoch", UNFENCED))


async def _finish(stage: Stage, arguments: Finish) -> None:
    await _finish_it(stage, arguments["at"], arguments["segment"], arguments.get("leader_epoch", UNFENCED))


async def _finish_it(stage: Stage, broker: str, segment: str, leader_epoch: int) -> None:
    await stage.of_replica(broker, "finish", id=stage.memory[segment], leader_epoch=leader_epoch)


CLEANING_ACTIONS: Final[Mapping[str, Action]] = {"clean": _clean, "finish": _finish}
