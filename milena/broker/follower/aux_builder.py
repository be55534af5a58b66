"""Followers whose leader has the next record in the tier only: where its local log begins, and what precedes that.

A task for each of them, over a connection of their own: a tier that is slow, or hangs, holds up nobody's fetches.
(KIP-405, KIP-1023; docs/kafka-semantics.md: Followers that begin in the tier.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milena.broker.follower.fetch_states import Event, FetchState
from milena.broker.follower.following import Following, refusal
from milena.broker.follower.leader_link import EpochEnd, LeaderLink, ListedOffset
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.schemas.primitives import DecodeError
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.tasks import TaskHandle, Tasks

if TYPE_CHECKING:
    from milena.tiered.aux_state.aux_state import EndOfEpoch, LocalStart
    from milena.tiered.shared.tier import Tier

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6
FROM_LAST_TIERED: Final = "follower.fetch.last.tiered.offset.enable"
AT_ONCE: Final = 32
"""Attempts; the others wait."""
READY_WAIT: Final = 1.0
"""Seconds that an attempt waits for the metadata of remote segments."""
MISSING: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_STATES: Final = frozenset({FetchState.LOCATING_LOCAL, FetchState.BUILDING})


class AuxBuilder:
    """Works for one fetcher. ``done`` hears of each attempt how it ended, unless nobody wants to know any more."""

    def __init__(self, link: LeaderLink, tier: Callable[[], Tier | None]) -> None:
        self._link = link
        self._tier = tier
        self._tasks: Tasks | None = None
        self._done: Callable[[Following, Event], None] = lambda _one, _event: None
        self._running: dict[Following, TaskHandle] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    def start(self, tasks: Tasks, done: Callable[[Following, Event], None]) -> None:
        self._tasks = tasks
        self._done = done

    def stop(self) -> None:
        for one in list(self._running):
            self.cancel(one)
        self._link.close()

    @property
    def busy(self) -> bool:
        """Whether an attempt is under way."""
        return bool(self._running)

    def begin(self, one: Following) -> None:
        assert self._tasks is not None
        name = f"remote log aux state of {one.partition.topic}-{one.partition.index}"
        self._running[one] = self._tasks.attempt(self._attempt(one), name=name)

    def cancel(self, one: Following) -> None:
        """Missing is no error."""
        task = self._running.pop(one, None)
        if task is not None:
            task.cancel()

    def skips_copied(self, one: Following) -> bool:
        """Whether this one has nothing and is to begin where the tier ends (KIP-1023)."""
        tier = self._tier()
        return tier is not None and one.log.remote_enabled and _skips(tier, one)

    # -- one attempt

    async def _attempt(self, one: Following) -> None:
        from milena.tiered.shared.tier import FAILURES

        tier = self._tier()
        assert tier is not None
        meters = tier.meters.of(one.partition.topic)
        meters.aux_state_requests.value += 1
        event: Event | None
        try:
            async with self._places:
                event = await self._build(tier, one)
        except (*FAILURES, DecodeError) as error:
            if not self._fits(one):
                return
            meters.aux_state_errors.value += 1
            event = refusal(error.code) if isinstance(error, KafkaError) else Event.RETRIABLE
            if one.trouble != str(error):
                one.trouble = str(error)
                tier.report("remote log auxiliary state not built", one.partition, error)
        if event is not None:
            # It is over: to cancel it from now on would cancel those who hear of it.
            del self._running[one]
            self._done(one, event)

    def _fits(self, one: Following) -> bool:
        """Whether what was learned since is still of use: same leader epoch, same log, still wanted."""
        return one in self._running and one.is_current and one.state in _STATES

    async def _build(self, tier: Tier, one: Following) -> Event | None:
        """None where the leader epoch or the log has changed meanwhile."""
        from milena.tiered.aux_state.aux_state import build_aux_state
        from milena.tiered.metadata.metadata_manager import MetadataNotReady
        from milena.tiered.segments.segment_metadata import TopicIdPartition

        start = await self._local_start(tier, one)
        if not self._fits(one):
            return None
        one.advance(Event.LOCATED)
        if start.offset <= start.log_start:
            return one.begin_at(start.offset)
        partition = TopicIdPartition(one.partition.topic_id, one.partition.topic, one.partition.index)
        if not await tier.metadata.wait_ready(partition, READY_WAIT):
            raise MetadataNotReady("the remote log metadata is not read yet")
        aux = await build_aux_state(tier, partition, start, lambda epoch: self._end_of_epoch(one, epoch))
        if not self._fits(one):
            return None
        return one.start_in_tier(start.offset, log_start=start.log_start, epochs=aux.epochs, producers=aux.producers)

    # -- what the leader knows

    async def _local_start(self, tier: Tier, one: Following) -> LocalStart:
        from milena.tiered.aux_state.aux_state import LocalStart

        skips = _skips(tier, one)
        first = await self._offset(one, EARLIEST_PENDING_UPLOAD if skips else EARLIEST_LOCAL)
        untold = skips and first.offset < 0
        if untold:
            first = await self._offset(one, EARLIEST_LOCAL)
        log_start = await self._offset(one, EARLIEST)
        # A leader that does not know yet what is copied may still know that nothing is.
        if first.offset < 0 or log_start.offset < 0 or (untold and first.offset != log_start.offset):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        epoch = LeaderEpoch(first.epoch) if first.epoch >= 0 else None
        return LocalStart(Offset(first.offset), epoch, Offset(log_start.offset))

    async def _offset(self, one: Following, timestamp: int) -> ListedOffset:
        """Raises KafkaError."""
        answers = await self._link.offsets([one], timestamp)
        found = answers.get((one.partition.topic, one.partition.index), ListedOffset(MISSING, -1))
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return found

    async def _end_of_epoch(self, one: Following, epoch: LeaderEpoch) -> EndOfEpoch:
        """Raises KafkaError."""
        from milena.tiered.aux_state.aux_state import EndOfEpoch

        answers = await self._link.epoch_ends({one: epoch})
        found = answers.get((one.partition.topic, one.partition.index), EpochEnd(MISSING, -1, -1))
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return EndOfEpoch(
            LeaderEpoch(found.epoch) if found.epoch >= 0 else None, Offset(found.end) if found.end >= 0 else None
        )


def _skips(tier: Tier, one: Following) -> bool:
    return one.log.log_end_offset == 0 and bool(tier.get(FROM_LAST_TIERED))
