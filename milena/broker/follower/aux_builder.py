"""Prepares followers whose next record the leader has only in the tier: finds the leader's local log start, and builds
the auxiliary state of what precedes it.

Each follower has a task of its own, and all of them a separate connection: if the tier is slow or hangs, it holds up no
fetches. (KIP-405, KIP-1023; docs/kafka-semantics.md: Followers that begin in the tier.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milena.broker.follower.fetch_states import Event, FetchState
from milena.broker.follower.follower_state import FollowerState, refusal
from milena.broker.follower.leader_link import EpochEnd, LeaderLink, ListedOffset
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.tasks import TaskHandle, Tasks

if TYPE_CHECKING:
    from milena.tiered.aux_state.aux_state import EndOfEpoch, LocalStart
    from milena.tiered.shared.tier import Tier

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6
FROM_LAST_TIERED: Final = "follower.fetch.last.tiered.offset.enable"
MAX_CONCURRENT_BUILDS: Final = 32
"""The number of concurrent attempts; others wait."""
READY_WAIT: Final = 1.0
"""Seconds that an attempt waits for the metadata of remote segments."""
MISSING: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_STATES: Final = frozenset({FetchState.LOCATING_LOCAL, FetchState.BUILDING})


class AuxBuilder:
    """Works for one fetcher. ``done`` is called with the outcome of each attempt, unless it was cancelled or is
    obsolete."""

    def __init__(self, link: LeaderLink, tier: Callable[[], Tier | None]) -> None:
        self._link = link
        self._tier = tier
        self._tasks: Tasks | None = None
        self._done: Callable[[FollowerState, Event], None] = lambda _one, _event: None
        self._running: dict[FollowerState, TaskHandle] = {}
        self._places = asyncio.Semaphore(MAX_CONCURRENT_BUILDS)

    def start(self, tasks: Tasks, done: Callable[[FollowerState, Event], None]) -> None:
        self._tasks = tasks
        self._done = done

    def stop(self) -> None:
        for follower in list(self._running):
            self.cancel(follower)
        self._link.close()

    @property
    def busy(self) -> bool:
        """Whether an attempt is under way."""
        return bool(self._running)

    def begin(self, follower: FollowerState) -> None:
        assert self._tasks is not None
        name = f"remote log aux state of {follower.partition.topic}-{follower.partition.index}"
        self._running[follower] = self._tasks.attempt(self._attempt(follower), name=name)

    def cancel(self, follower: FollowerState) -> None:
        """Does nothing if it is missing."""
        task = self._running.pop(follower, None)
        if task is not None:
            task.cancel()

    def skips_copied(self, follower: FollowerState) -> bool:
        """Whether this follower is empty and is to begin where the tier ends (KIP-1023)."""
        tier = self._tier()
        return tier is not None and follower.log.remote_enabled and _skips(tier, follower)

    # -- one attempt

    async def _attempt(self, follower: FollowerState) -> None:
        from milena.tiered.shared.tier import FAILURES

        tier = self._tier()
        assert tier is not None
        meters = tier.meters.of(follower.partition.topic)
        meters.aux_state_requests.value += 1
        event: Event | None
        try:
            async with self._places:
                event = await self._build(tier, follower)
        except (*FAILURES, DecodeError) as error:
            if not self._fits(follower):
                return
            meters.aux_state_errors.value += 1
            event = refusal(error.code) if isinstance(error, KafkaError) else Event.RETRIABLE
            if follower.trouble != str(error):
                follower.trouble = str(error)
                tier.report("remote log auxiliary state not built", follower.partition, error)
        # The attempt is over: a later cancel would hit the callers of ``done``. If the log's directory has failed in
        # the last step, it was cancelled there.
        if event is not None and self._running.pop(follower, None) is not None:
            self._done(follower, event)

    def _fits(self, follower: FollowerState) -> bool:
        """Whether the results are still of use: same leader epoch, same log, not cancelled."""
        return follower in self._running and follower.is_current and follower.state in _STATES

    async def _build(self, tier: Tier, follower: FollowerState) -> Event | None:
        """None if the leader epoch or the log has changed meanwhile."""
        from milena.tiered.aux_state.aux_state import build_aux_state
        from milena.tiered.metadata.metadata_manager import MetadataNotReady
        from milena.tiered.segments.segment_metadata import TopicIdPartition

        start = await self._local_start(tier, follower)
        if not self._fits(follower):
            return None
        follower.advance(Event.LOCATED)
        if start.offset <= start.log_start:
            return follower.begin_at(start.offset)
        partition = TopicIdPartition(follower.partition.topic_id, follower.partition.topic, follower.partition.index)
        if not await tier.metadata.wait_ready(partition, READY_WAIT):
            raise MetadataNotReady("the remote log metadata is not read yet")
        aux = await build_aux_state(tier, partition, start, lambda epoch: self._end_of_epoch(follower, epoch))
        if not self._fits(follower):
            return None
        return follower.start_in_tier(
            start.offset, log_start=start.log_start, epochs=aux.epochs, producers=aux.producers
        )

    # -- offsets of the leader

    async def _local_start(self, tier: Tier, follower: FollowerState) -> LocalStart:
        from milena.tiered.aux_state.aux_state import LocalStart

        skips = _skips(tier, follower)
        first = await self._offset(follower, EARLIEST_PENDING_UPLOAD if skips else EARLIEST_LOCAL)
        untold = skips and first.offset < 0
        if untold:
            first = await self._offset(follower, EARLIEST_LOCAL)
        log_start = await self._offset(follower, EARLIEST)
        # A leader that does not know yet what is copied may still know that nothing is.
        if first.offset < 0 or log_start.offset < 0 or (untold and first.offset != log_start.offset):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        epoch = LeaderEpoch(first.epoch) if first.epoch >= 0 else None
        return LocalStart(Offset(first.offset), epoch, Offset(log_start.offset))

    async def _offset(self, follower: FollowerState, timestamp: int) -> ListedOffset:
        """Raises KafkaError."""
        answers = await self._link.offsets([follower], timestamp)
        found = answers.get((follower.partition.topic, follower.partition.index), ListedOffset(MISSING, -1))
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return found

    async def _end_of_epoch(self, follower: FollowerState, epoch: LeaderEpoch) -> EndOfEpoch:
        """Raises KafkaError."""
        from milena.tiered.aux_state.aux_state import EndOfEpoch

        answers = await self._link.epoch_ends({follower: epoch})
        found = answers.get((follower.partition.topic, follower.partition.index), EpochEnd(MISSING, -1, -1))
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return EndOfEpoch(
            LeaderEpoch(found.epoch) if found.epoch >= 0 else None, Offset(found.end) if found.end >= 0 else None
        )


def _skips(tier: Tier, follower: FollowerState) -> bool:
    return follower.log.log_end_offset == 0 and tier.config().get_bool(FROM_LAST_TIERED)
