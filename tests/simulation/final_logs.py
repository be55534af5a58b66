"""Read a log as the end of a run does."""

from __future__ import annotations

import asyncio

from milena.client.cluster import Cluster
from milena.lab.chaos.ending import Ending
from milena.lab.chaos.holes import Hole
from milena.lab.chaos.journal import TracedJournal
from milena.lab.chaos.simulated.insight import WatchedCluster
from milena.lab.histories.events import FinalLog
from milena.lab.world.trace import Trace
from milena.protocol.types import TopicPartition

SECONDS = 60


async def final_log(client: Cluster, partition: TopicPartition, insight: WatchedCluster | None = None) -> FinalLog:
    """Return the log from its start to its end. ``insight`` says which records cannot be read; None: all can."""

    async def hole_at(place: TopicPartition, at: int, end: int) -> Hole | None:
        return None if insight is None else insight.hole_at(place, at)

    journal = TracedJournal(client.runtime.clock, Trace())
    async with asyncio.timeout(SECONDS):
        await Ending(client, journal).logs([partition], hole_at)
    (log,) = journal.events
    assert isinstance(log, FinalLog)
    return log
