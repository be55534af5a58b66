"""Prepares followers whose next record the leader has only in the tier, like Kafka's TierStateMachine: finds the
leader's local log start, and builds the auxiliary state (leader epochs, producers) before it.

Each follower has its own task, and the tasks of a fetcher share a second connection, so that a slow tier does not delay
fetches. (KIP-405, KIP-1023; docs/kafka-semantics.md: Followers that begin in the tier.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milena.broker.follower.fetch_states import Event, FetchState
from milena.broker.follower.follower_state import FollowerState, lookup_error_event
from milena.broker.follower.leader_link import EpochEnd, LeaderLink, ListedOffset
from milena.broker.follower.transition_log import SourceSegment
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import LeaderEpoch, Offset
from milena.protocol.uuids import to_text
from milena.runtime.tasks import TaskHandle, Tasks

if TYPE_CHECKING:
    from milena.tiered.aux_state.aux_state import EndOfEpoch, LocalStart
    from milena.tiered.shared.tier import Tier

EARLIEST: Final = -2
EARLIEST_LOCAL: Final = -4
EARLIEST_PENDING_UPLOAD: Final = -6
FROM_LAST_TIERED: Final = "follower.fetch.last.tiered.offset.enable"
MAX_CONCURRENT_BUILDS: Final = 32
"""The maximum number of concurrent attempts of a fetcher; others wait."""
READY_WAIT: Final = 1.0
"""Seconds that an attempt waits for the metadata of remote segments."""
MISSING: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The error code for a partition that the response lacks."""
_STATES: Final = frozenset({FetchState.LOCATING_LOCAL, FetchState.BUILDING})


class AuxBuilder:
    """The attempts of one fetcher. ``done`` is called with the resulting event of each, unless the attempt was
    cancelled, or the leader epoch or the log has changed."""

    def __init__(self, link: LeaderLink, tier: Callable[[], Tier | None]) -> None:
        self._link = link
        self._tier = tier
        self._tasks: Tasks | None = None
        self._done: Callable[[FollowerState, Event], None] = lambda _one, _event: None
        self._running: dict[FollowerState, TaskHandle] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_BUILDS)

    def start(self, tasks: Tasks, done: Callable[[FollowerState, Event], None]) -> None:
        self._tasks = tasks
        self._done = done

    def stop(self) -> None:
        for follower in list(self._running):
            self.cancel(follower)
        self._link.close()

    @property
    def busy(self) -> bool:
        """Whether an attempt is running."""
        return bool(self._running)

    def start_attempt(self, follower: FollowerState) -> None:
        assert self._tasks is not None
        name = f"remote log aux state of {follower.partition.topic}-{follower.partition.index}"
        self._running[follower] = self._tasks.attempt(self._attempt(follower), name=name)

    def cancel(self, follower: FollowerState) -> None:
        """Cancel the attempt of a follower, if there is one."""
        task = self._running.pop(follower, None)
        if task is not None:
            task.cancel()

    def starts_at_tier_end(self, follower: FollowerState) -> bool:
        """Whether this follower is empty and starts at the first offset that is not in the tier (KIP-1023)."""
        tier = self._tier()
        return tier is not None and follower.log.remote_enabled and _starts_at_tier_end(tier, follower)

    # -- one attempt

    async def _attempt(self, follower: FollowerState) -> None:
        from milena.tiered.shared.tier import FAILURES

        tier = self._tier()
        assert tier is not None
        meters = tier.meters.of(follower.partition.topic)
        meters.aux_state_requests.value += 1
        event: Event | None
        try:
            async with self._slots:
                event = await self._build(tier, follower)
        except (*FAILURES, DecodeError) as error:
            if not self._is_valid(follower):
                return
            meters.aux_state_errors.value += 1
            event = lookup_error_event(error.code) if isinstance(error, KafkaError) else Event.RETRIABLE
            if follower.last_error != str(error):
                follower.last_error = str(error)
                tier.report("remote log auxiliary state not built", follower.partition, error)
        # Remove the task first: ``done`` may call ``cancel``, which would cancel this task. The task is missing if it
        # was cancelled because the log directory failed in the last step.
        if event is not None and self._running.pop(follower, None) is not None:
            self._done(follower, event)

    def _is_valid(self, follower: FollowerState) -> bool:
        """Whether the attempt was not cancelled, and leader epoch and log are still the same."""
        return follower in self._running and follower.is_current and follower.state in _STATES

    async def _build(self, tier: Tier, follower: FollowerState) -> Event | None:
        """Run one attempt. Returns None if the leader epoch or the log has changed."""
        from milena.tiered.aux_state.aux_state import build_aux_state
        from milena.tiered.metadata.metadata_manager import MetadataNotReady
        from milena.tiered.segments.segment_metadata import TopicIdPartition

        start = await self._local_start(tier, follower)
        if not self._is_valid(follower):
            return None
        follower.advance(Event.LOCATED)
        if start.offset <= start.log_start:
            return follower.start_at(start.offset)
        partition = TopicIdPartition(follower.partition.topic_id, follower.partition.topic, follower.partition.index)
        if not await tier.metadata.wait_ready(partition, READY_WAIT):
            raise MetadataNotReady("the remote log metadata has not been read yet")
        aux = await build_aux_state(tier, partition, start, lambda epoch: self._end_of_epoch(follower, epoch))
        if not self._is_valid(follower):
            return None
        source = SourceSegment(to_text(aux.source.id), aux.source.start_offset, aux.source.end_offset)
        return follower.start_in_tier(
            start.offset, log_start=start.log_start, epochs=aux.epochs, producers=aux.producers, source=source
        )

    # -- offsets of the leader

    async def _local_start(self, tier: Tier, follower: FollowerState) -> LocalStart:
        """Return the offset at which the follower starts, its epoch, and the leader's log start. Raises KafkaError."""
        from milena.tiered.aux_state.aux_state import LocalStart

        at_tier_end = _starts_at_tier_end(tier, follower)
        first = await self._offset(follower, EARLIEST_PENDING_UPLOAD if at_tier_end else EARLIEST_LOCAL)
        copied_unknown = at_tier_end and first.offset < 0
        if copied_unknown:
            first = await self._offset(follower, EARLIEST_LOCAL)
        log_start = await self._offset(follower, EARLIEST)
        # A leader that has not read its remote log metadata does not know the last copied offset. The local start is
        # used then only if it is also the log start, so that nothing is in the tier.
        if first.offset < 0 or log_start.offset < 0 or (copied_unknown and first.offset != log_start.offset):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        epoch = LeaderEpoch(first.epoch) if first.epoch >= 0 else None
        return LocalStart(Offset(first.offset), epoch, Offset(log_start.offset))

    async def _offset(self, follower: FollowerState, timestamp: int) -> ListedOffset:
        """Return the leader's offset for a special timestamp. Raises KafkaError."""
        results = await self._link.offsets([follower], timestamp)
        result = results.get((follower.partition.topic, follower.partition.index), ListedOffset(MISSING, -1))
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code))
        return result

    async def _end_of_epoch(self, follower: FollowerState, epoch: LeaderEpoch) -> EndOfEpoch:
        """Return the end of a leader epoch in the leader's log. Raises KafkaError."""
        from milena.tiered.aux_state.aux_state import EndOfEpoch

        results = await self._link.epoch_ends({follower: epoch})
        result = results.get((follower.partition.topic, follower.partition.index), EpochEnd(MISSING, -1, -1))
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code))
        return EndOfEpoch(
            LeaderEpoch(result.epoch) if result.epoch >= 0 else None, Offset(result.end) if result.end >= 0 else None
        )


def _starts_at_tier_end(tier: Tier, follower: FollowerState) -> bool:
    return follower.log.log_end_offset == 0 and tier.config().get_bool(FROM_LAST_TIERED)
