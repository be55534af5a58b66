"""The final state of partitions with transactions: what read_committed returns, and the offsets of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.membership import Membership
from milena.client.offsets import EARLIEST, LATEST, READ_COMMITTED, find_offset
from milena.lab.chaos.ending import Ending
from milena.lab.chaos.journal import Journal
from milena.lab.histories.transactions.events import FinalCommitted, FinalOffset
from milena.protocol.types import TopicPartition

POLL: Final = 1.0
ENDED: Final = 30.0
"""Seconds in which the markers of all transactions must have been written."""
AGAIN: Final = 0.5
"""Seconds before the last stable offset is asked for again."""


class TransactionEnding:
    """All transactions have ended. Methods raise KafkaError as those of ``Ending`` do."""

    def __init__(self, client: Cluster, ending: Ending, journal: Journal) -> None:
        self._client = client
        self._ending = ending
        self._journal = journal
        self._clock = client.runtime.clock

    async def note(self, places: Sequence[TopicPartition], groups: Sequence[str], source: str) -> None:
        """Note the visible records of each partition, and the offsets of each group in the topic ``source``."""
        until = self._clock.monotonic() + ENDED
        for place in places:
            self._journal.note(await self._committed(place, until))
        for group in groups:
            await self._offsets(group, [place for place in places if place[0] == source])

    async def _committed(self, place: TopicPartition, until: float) -> FinalCommitted:
        answer = self._ending.answer
        while True:
            end = (await answer(lambda: find_offset(self._client, *place, LATEST))).offset
            stable = (await answer(lambda: find_offset(self._client, *place, LATEST, isolation=READ_COMMITTED))).offset
            if stable == end or self._clock.monotonic() >= until:
                break
            await self._clock.sleep(AGAIN)
        start = (await answer(lambda: find_offset(self._client, *place, EARLIEST))).offset
        consumer = Consumer(self._client, reset=None, committed=True)
        consumer.assign({place: start})
        found: list[tuple[int, str]] = []
        while (consumer.position(*place) or 0) < stable:
            records = await consumer.poll(POLL)
            found += [(record.offset, (record.value or b"").decode()) for record in records]
        await consumer.close()
        return FinalCommitted(place, tuple(found), stable, end, start)

    async def _offsets(self, group: str, places: Sequence[TopicPartition]) -> None:
        """Offsets of pending transactions are waited for."""
        member = Membership(self._client, group, [])
        for place in places:
            try:
                async with asyncio.timeout(ENDED):
                    offsets = await self._ending.answer(partial(member.committed, [place]))
            except TimeoutError:
                self._journal.note(FinalOffset(group, place, -1, stable=False))
            else:
                self._journal.note(FinalOffset(group, place, offsets.get(place, -1)))
