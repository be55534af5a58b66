"""One fetcher, like Kafka's ReplicaFetcherThread: fetches a share of the partitions that this broker follows from one
leader.

Each round sends up to three requests, in this order and only if needed: for the ends of epochs, the bounds of logs, and
records. If there is nothing to send, the fetcher waits. Each partition of a response is applied only if it still
matches the follower's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from milena.broker.follower.aux_builder import AuxBuilder
from milena.broker.follower.fetch_states import Event, FetchState
from milena.broker.follower.follower_state import FollowerState, lookup_error_event
from milena.broker.follower.leader_link import EpochEnd, LeaderLink, LinkSettings, ListedOffset
from milena.broker.follower.session import FollowerSession, SessionFetch
from milena.broker.replica.replication_quotas import ReplicaQuota
from milena.node.links.outgoing import ChannelError
from milena.node.metrics import Counter
from milena.node.rate import Rate
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.fetch_response import FetchedPartition, FetchResponse
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.clock import Clock
from milena.runtime.containment import Containment
from milena.runtime.logging import get_logger
from milena.runtime.tasks import TaskHandle, Tasks

LATEST: Final = -1
EARLIEST: Final = -2
MAX_PARTITIONS: Final = 500
"""The maximum number of partitions per OffsetForLeaderEpoch or ListOffsets request."""
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
MISSING: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The error code for a partition that the response lacks."""


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    settings: LinkSettings
    clock: Clock
    contained: Containment
    bytes_in: Counter
    """Counts the bytes that leaders sent and that were appended."""
    quota: ReplicaQuota
    topic_id_of: Callable[[str], UUID | None]
    """Returns a topic's id by its name in the current metadata, None if it is unknown."""


class Fetcher:
    """Runs as one task, from the first partition added to the last one removed."""

    def __init__(self, name: str, leader: NodeId, link: LeaderLink, aux: AuxBuilder, context: FetcherContext) -> None:
        self.name: Final = name
        self.leader: Final = leader
        self.members: Final[dict[FollowerState, None]] = {}
        self.rate = Rate(context.clock)
        """The rate of answered fetches."""
        self.died = False
        """Whether the task has ended with an error."""
        self._link = link
        self._settings = context.settings
        self._clock = context.clock
        self._contained = context.contained
        self._bytes_in = context.bytes_in
        self._topic_id_of = context.topic_id_of
        self._quota = context.quota
        self._aux = aux
        self._session = FollowerSession()
        self._truncating: dict[FollowerState, None] = {}
        self._locating: dict[FollowerState, None] = {}
        self._syncing: dict[FollowerState, None] = {}
        """Followers whose last records must be synced before the next fetch reports them as replicated."""
        self._paused: dict[FollowerState, float] = {}
        """The time (monotonic, s) at which each pause ends."""
        self._wake = asyncio.Event()
        self._task: TaskHandle | None = None
        self._stopping = False
        self._last_error = ""
        self._log = get_logger("fetcher")

    def __repr__(self) -> str:
        return f"<{self.name} of {len(self.members)} partitions>"

    def start(self, tasks: Tasks) -> None:
        self._task = tasks.keep(self._run, name=self.name)
        self._aux.start(tasks, self._built)

    def stop(self) -> None:
        """End immediately."""
        self._stopping = True
        self._link.close()
        self._aux.stop()
        self._wake.set()
        if self._task is not None:
            self._task.cancel()

    # -- members

    def add(self, follower: FollowerState) -> None:
        """Start following a partition."""
        self.members[follower] = None
        self._enqueue(follower)
        self._wake.set()

    def remove(self, follower: FollowerState) -> None:
        """Stop following a partition. Responses that arrive later are not applied to it."""
        del self.members[follower]
        self._dequeue(follower)

    def log_start_changed(self, follower: FollowerState) -> None:
        """Let the next fetch report the follower's new log start."""
        self._session.position_changed(follower)

    def log_synced(self, follower: FollowerState) -> None:
        """Fetch again for a follower whose log has been synced."""
        if follower in self._syncing:
            self._dequeue(follower)
            self._enqueue(follower)
            self._wake.set()

    def _enqueue(self, follower: FollowerState) -> None:
        """Add a follower to the queue for its state."""
        if follower.paused:
            self._paused[follower] = self._clock.monotonic() + follower.pause(self._settings.backoff)
            return
        match follower.state:
            case FetchState.TRUNCATING:
                self._truncating[follower] = None
            case FetchState.LOCATING:
                self._locating[follower] = None
            case FetchState.FETCHING if _has_unsynced(follower):
                self._syncing[follower] = None
            case FetchState.FETCHING:
                self._session.add(follower)
            case FetchState.LOCATING_LOCAL | FetchState.BUILDING:
                self._aux.start_attempt(follower)
            case FetchState.FAILED:
                pass

    def _dequeue(self, follower: FollowerState) -> None:
        self._truncating.pop(follower, None)
        self._locating.pop(follower, None)
        self._paused.pop(follower, None)
        self._syncing.pop(follower, None)
        self._session.remove(follower)
        self._aux.cancel(follower)

    def _advance(self, follower: FollowerState, event: Event | None) -> None:
        """Apply an event to a member; None is no event."""
        if event is None or follower not in self.members:
            return
        before = follower.state
        follower.advance(event)
        if follower.state is not before or follower.paused or _has_unsynced(follower):
            self._dequeue(follower)
            self._enqueue(follower)

    def _built(self, follower: FollowerState, event: Event) -> None:
        self._advance(follower, event)
        self._wake.set()

    # -- rounds

    async def _run(self) -> None:
        self.died = False
        self._session.reset()
        try:
            while not self._stopping:
                self._wake.clear()
                self._resume_due()
                failed = asked = False
                try:
                    asked = await self._round()
                except (ChannelError, KafkaError) as error:
                    self._failed(error)
                    failed = True
                if failed:
                    await self._wait(self._settings.backoff)
                    continue
                self._last_error = ""
                if not asked:
                    await self._wait(self._until_due())
        finally:
            self.died = not self._stopping

    async def _round(self) -> bool:
        """Send the requests that are needed. Returns False if there are none."""
        asked = False
        if self._truncating:
            await self._request_epoch_ends(list(self._truncating)[:MAX_PARTITIONS])
            asked = True
        if self._locating:
            await self._request_log_bounds(list(self._locating)[:MAX_PARTITIONS])
            asked = True
        if self._session.pending:
            await self._fetch()
            asked = True
        return asked

    def _failed(self, error: Exception) -> None:
        if self._stopping:
            return
        self._session.reset()
        if str(error) != self._last_error:
            self._last_error = str(error)
            self._log.warning("cannot fetch", fetcher=self.name, leader=self.leader, reason=self._last_error)

    def _resume_due(self) -> None:
        now = self._clock.monotonic()
        for follower in [follower for follower, due in self._paused.items() if due <= now]:
            del self._paused[follower]
            follower.paused = False
            self._enqueue(follower)

    def _until_due(self) -> float | None:
        due = min(self._paused.values(), default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())

    async def _wait(self, seconds: float | None) -> None:
        """Wait for new work, at most ``seconds``."""
        timer = None if seconds is None else self._clock.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # -- records

    async def _fetch(self) -> None:
        await self._link.fetch(self._next_fetch, self._handle_response)

    def _next_fetch(self) -> SessionFetch | None:
        if self._quota.exceeded:
            self._pause_throttled()
        self._link.short_wait = self._aux.busy or bool(self._syncing)
        return self._session.next_fetch() if self._session.pending else None

    def _pause_throttled(self) -> None:
        """Pause throttled replicas that are out of sync, as after an error (KIP-73)."""
        for follower in self._session.ready():
            if not follower.caught_up and self._quota.throttles(follower.partition):
                follower.paused = True
                self._dequeue(follower)
                self._enqueue(follower)

    def _handle_response(self, response: FetchResponse, may_continue: bool) -> SessionFetch | None:
        """Apply a Fetch response while its records are in the receive buffer. Returns the next fetch, or None if
        another request must be sent first or the link does not allow it (``may_continue``).

        Raises KafkaError for an error of the whole request that is not a session error.
        """
        self.rate.count += 1
        if not self._session.response_received(response.session_id, response.error_code):
            if response.error_code not in SESSION_ERRORS:
                raise KafkaError(ErrorCode(response.error_code))
            self._log.info("fetch session ended", fetcher=self.name, error=ErrorCode(response.error_code).name)
            return None
        for name, topic_id, partitions in response.topics:
            known_id = topic_id if topic_id is not None else self._topic_id_of(name or "")
            for fetched in partitions:
                follower = None if known_id is None else self._session.find((known_id, fetched.partition))
                if follower is not None:
                    self._handle_partition(follower, fetched)
        if not may_continue or self._stopping or self._truncating or self._locating or self._until_due() == 0:
            return None
        return self._next_fetch()

    def _handle_partition(self, follower: FollowerState, fetched: FetchedPartition) -> None:
        event = self._apply_safely(follower, lambda: follower.apply_fetch(fetched, self._bytes_in))
        if (
            event is Event.RECORDS
            and isinstance(fetched.records, memoryview)
            and self._quota.throttles(follower.partition)
        ):
            self._quota.record(len(fetched.records))
        self._advance(follower, event)
        if event is Event.DIVERGED or (event is Event.RECORDS and fetched.records):
            self._session.move_to_end(follower)

    def _apply_safely(self, follower: FollowerState, apply: Callable[[], Event | None]) -> Event | None:
        """Call ``apply``, which applies a response to one partition. An unexpected error fails only that partition, as
        in Kafka's ``AbstractFetcherThread``."""
        try:
            return apply()
        except KafkaError:
            return Event.BROKEN
        except Exception as error:
            partition = follower.partition
            self._contained.note("leader's response", error, topic=partition.topic, partition=partition.index)
            return Event.BROKEN

    # -- truncation and log bounds

    async def _request_epoch_ends(self, followers: Sequence[FollowerState]) -> None:
        """Send one OffsetForLeaderEpoch request (KIP-279) and apply the response."""
        asked: dict[FollowerState, LeaderEpoch] = {}
        for follower in followers:
            latest = follower.log.epochs.latest
            if latest is None:
                self._advance(follower, Event.EPOCHS_AGREE)
            else:
                asked[follower] = latest
        if not asked:
            return
        ends = await self._link.epoch_ends(asked)
        for follower, epoch in asked.items():
            if follower in self.members:
                end = ends.get((follower.partition.topic, follower.partition.index), EpochEnd(MISSING, -1, -1))
                self._advance(follower, self._apply_safely(follower, partial(follower.apply_epoch_end, epoch, *end)))

    async def _request_log_bounds(self, followers: Sequence[FollowerState]) -> None:
        """Send ListOffsets requests for the leader's log end and, if this log is not longer, log start, and apply them:
        the fetch offset was out of range (docs/kafka-semantics.md: Offset out of range)."""
        ends = await self._link.offsets(followers, LATEST)
        shorter_logs = [
            follower for follower in followers if self._apply_bound(follower, ends, self._truncate_to_leader_end)
        ]
        if shorter_logs:
            starts = await self._link.offsets(shorter_logs, EARLIEST)
            for follower in shorter_logs:
                self._apply_bound(follower, starts, _start_at_leader_start)

    def _apply_bound(
        self,
        follower: FollowerState,
        offsets: dict[tuple[str, int], ListedOffset],
        apply: Callable[[FollowerState, Offset], Event | None],
    ) -> bool:
        """Apply one bound of the leader's log. Returns whether the other one is needed too."""
        if follower not in self.members or follower.state is not FetchState.LOCATING or not follower.is_current:
            return False
        error, offset, _ = offsets.get((follower.partition.topic, follower.partition.index), ListedOffset(MISSING, -1))
        if error or offset < 0:
            self._advance(follower, lookup_error_event(error))
            return False
        event = self._apply_safely(follower, lambda: apply(follower, Offset(offset)))
        self._advance(follower, event)
        return event is None

    def _truncate_to_leader_end(self, follower: FollowerState, leader_end: Offset) -> Event | None:
        if follower.truncate_to_leader_end(leader_end):
            return Event.LOCATED
        return follower.remove_local_log() if leader_end > 0 and self._aux.starts_at_tier_end(follower) else None


def _has_unsynced(follower: FollowerState) -> bool:
    """Whether the next fetch would report records as replicated that are not synced yet. A sync has been started."""
    return follower.state is FetchState.FETCHING and follower.log.reportable_end < follower.log.log_end_offset


def _start_at_leader_start(follower: FollowerState, leader_start: Offset) -> Event | None:
    follower.start_at_leader_start(leader_start)
    return Event.LOCATED
