"""The final state after all faults: logs, topics and committed offsets, read by Milena's own client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from milena.client import admin
from milena.client.admin import TOPIC_CONFIG, TOPIC_RESOURCE
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.client.producer import MAX_SEQUENCE
from milena.client.raw_reads import read_raw
from milena.lab.chaos.holes import Hole
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.work.writers import name_of
from milena.lab.histories.copies import Copies
from milena.lab.histories.events import AllTopics, FinalLog, FinalTopic, RequestOutcome
from milena.lab.histories.group_events import NO_OFFSET, OffsetFetch
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError, retriable
from milena.protocol.records.batch import iter_batches
from milena.protocol.types import TopicPartition

T = TypeVar("T")

POLL: Final = 1.0
AGAIN: Final = 0.5
"""Seconds before a request without an answer is repeated."""


FindHole: TypeAlias = Callable[[TopicPartition, int, int], Awaitable[Hole | None]]
"""Return the hole of a partition that begins at an offset, below the end of the log; None if there is none, or nothing
explains it."""


async def _no_hole(place: TopicPartition, at: int, end: int) -> None:
    return None


class Ends(NamedTuple):
    """The ends of the logs that have records, and the offsets below them that cannot be read."""

    ends: Mapping[TopicPartition, int]
    holes: Mapping[TopicPartition, Sequence[Hole]]


class Ending:
    """Methods raise KafkaError for errors that are not retriable: all faults have ended, so these are failures of the
    cluster. Requests without an answer and retriable errors are repeated without a limit, which the caller sets."""

    def __init__(self, client: Cluster, journal: Journal) -> None:
        self._client = client
        self._journal = journal

    async def answer(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``ask`` until it returns."""
        while True:
            try:
                return await ask()
            except (ChannelError, KafkaError) as error:
                if isinstance(error, KafkaError) and not retriable(error.code):
                    raise
                self._journal.say(f"asked again at the end: {error}")
            await self._client.runtime.clock.sleep(AGAIN)

    async def logs(self, places: Sequence[TopicPartition], hole_at: FindHole) -> Ends:
        """Note the records of each log from its start to its end. ``hole_at`` finds the holes that lost objects
        explain."""
        ends: dict[TopicPartition, int] = {}
        holes: dict[TopicPartition, Sequence[Hole]] = {}
        for place in places:
            log, end = await self._log(place, hole_at)
            self._journal.note(log)
            await self._note_copies(log)
            if log.holes:
                holes[place] = log.holes
                self._journal.say(f"{place[0]}-{place[1]}: lost for good: {log.holes}")
            if end > log.start:
                ends[place] = end
        return Ends(ends, holes)

    async def copies(self, places: Sequence[TopicPartition]) -> None:
        """Note the values that compacted logs have several times. They have no holes."""
        for place in places:
            log, _ = await self._log(place, _no_hole)
            await self._note_copies(log)

    async def _note_copies(self, log: FinalLog) -> None:
        for value, offsets in repeated((offset, value) for offset, value, _ in log.records).items():
            read = partial(copies_of, self._client, log.partition, value, offsets)
            self._journal.note(await self.answer(read))

    async def _log(self, place: TopicPartition, hole_at: FindHole) -> tuple[FinalLog, int]:
        start = (await self.answer(lambda: find_offset(self._client, *place, EARLIEST))).offset
        end = (await self.answer(lambda: find_offset(self._client, *place, LATEST))).offset
        consumer = Consumer(self._client, reset=None)
        consumer.assign({place: start})
        found: list[tuple[int, str, int]] = []
        holes: list[Hole] = []
        at = start
        while at < end:
            try:
                records = await consumer.poll(POLL)
            except KafkaError:
                hole = await hole_at(place, at, end)
                if hole is None:
                    raise
                holes.append(hole)
                at = hole[1] + 1
                consumer.seek(*place, at)
                continue
            for record in records:
                found.append((record.offset, name_of((record.value or b"").decode()), record.leader_epoch))
            at = consumer.position(*place) or 0
        await consumer.close()
        return FinalLog(place, tuple(found), start, dense=True, holes=tuple(holes)), end

    async def topics(self, prefixes: tuple[str, ...]) -> None:
        """Note the topics that the run has created and not deleted, with their configurations. ``prefixes``: how their
        names begin."""
        count = 0
        for name in sorted((await self.answer(self._client.metadata)).topics):
            if not name.startswith(prefixes):
                continue
            config = await self.answer(partial(self._config, name))
            if config is not None:
                self._journal.note(FinalTopic(name, config))
                count += 1
        self._journal.note(AllTopics(count))

    async def _config(self, topic: str) -> Mapping[str, str] | None:
        """Return the configuration of a topic; None if it is being deleted."""
        try:
            entries = await admin.describe_configs(self._client, TOPIC_RESOURCE, topic)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None
        return {entry.name: entry.value or "" for entry in entries if entry.source == TOPIC_CONFIG}

    async def commits(self, groups: Sequence[str], places: Sequence[TopicPartition]) -> None:
        for group in groups:
            begun = self._journal.now()
            offsets = await self.answer(partial(admin.group_offsets, self._client, group))
            head = (group, "", begun, self._journal.now(), RequestOutcome.OK)
            for place in places:
                self._journal.note(OffsetFetch(*head, place, offsets.get(place, NO_OFFSET)))


COPY_BYTES: Final = 1 << 16
"""Maximum bytes of one read of a batch."""


def repeated(records: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """Return the values that ``records`` (offset, value) have at several offsets, with the offsets. "" is the value of
    tombstones."""
    offsets: dict[str, list[int]] = {}
    for offset, value in records:
        offsets.setdefault(value, []).append(offset)
    return {value: places for value, places in offsets.items() if value and len(places) > 1}


async def copies_of(client: Cluster, place: TopicPartition, value: str, offsets: Sequence[int]) -> Copies:
    """Return the copies of a value. Left out are copies that the cleaner has removed since the log was read, and those
    in a batch without a producer id. Raises KafkaError, ChannelError."""
    found: list[tuple[int, int, int, int]] = []
    for offset in offsets:
        raw = await read_raw(client, *place, offset, committed=False, max_bytes=COPY_BYTES)
        batch = next(iter_batches(memoryview(raw.data)), None)
        if batch is None or not batch.has_producer_id or not batch.base_offset <= offset <= batch.last_offset:
            continue
        sequence = (batch.base_sequence + offset - batch.base_offset) % MAX_SEQUENCE
        found.append((offset, batch.producer_id, batch.producer_epoch, sequence))
    return Copies(place, value, tuple(found))
