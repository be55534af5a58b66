"""One fetcher: all partitions (or its share of them) that this broker follows one leader for.

Each round asks, in this order and only where something is to be asked, for the ends of epochs, the bounds of logs, and
records. A round without anything waits. What the leader answers is taken partition by partition, where it still fits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from milena.broker.follower.aux_builder import AuxBuilder
from milena.broker.follower.fetch_states import Event, FetchState
from milena.broker.follower.following import Following, refusal
from milena.broker.follower.leader_link import EpochEnd, LeaderLink, LinkSettings, ListedOffset
from milena.broker.follower.rate import Rate
from milena.broker.follower.session import FollowerSession, SessionFetch
from milena.broker.replica.replication_quotas import ReplicaQuota
from milena.node.links.outgoing import ChannelError
from milena.node.metrics import Counter
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.fetch_response import FetchedPartition, FetchResponse
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.clock import Clock
from milena.runtime.containment import Containment
from milena.runtime.logging import get_logger
from milena.runtime.tasks import TaskHandle, Tasks

LATEST: Final = -1
EARLIEST: Final = -2
MAX_ASKED: Final = 500
"""Partitions in one of the rare requests."""
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
MISSING: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""Stands for a partition that the answer lacks."""


class Fetcher:
    """Runs as one task from the first partition to the last."""

    def __init__(
        self,
        name: str,
        leader: NodeId,
        link: LeaderLink,
        settings: LinkSettings,
        clock: Clock,
        contained: Containment,
        bytes_in: Counter,
        topic_id_of: Callable[[str], UUID | None],
        quota: ReplicaQuota,
        aux: AuxBuilder,
    ) -> None:
        self.name: Final = name
        self.leader: Final = leader
        self.members: Final[dict[Following, None]] = {}
        self.rate = Rate(clock)
        """Of requests for records that were answered."""
        self.died = False
        self._link = link
        self._settings = settings
        self._clock = clock
        self._contained = contained
        self._bytes_in = bytes_in
        self._topic_id_of = topic_id_of
        self._quota = quota
        self._aux = aux
        self._session = FollowerSession()
        self._truncating: dict[Following, None] = {}
        self._locating: dict[Following, None] = {}
        self._syncing: dict[Following, None] = {}
        """Those that may not tell yet that they have what came last: the next fetch would."""
        self._paused: dict[Following, float] = {}
        """When each goes on."""
        self._wake = asyncio.Event()
        self._task: TaskHandle | None = None
        self._stopping = False
        self._trouble = ""
        self._log = get_logger("fetcher")

    def __repr__(self) -> str:
        return f"<{self.name} of {len(self.members)} partitions>"

    def start(self, tasks: Tasks) -> None:
        self._task = tasks.keep(self._run, name=self.name)
        self._aux.start(tasks, self._built)

    def stop(self) -> None:
        """End at once."""
        self._stopping = True
        self._link.close()
        self._aux.stop()
        self._wake.set()
        if self._task is not None:
            self._task.cancel()

    # -- members

    def add(self, one: Following) -> None:
        self.members[one] = None
        self._place(one)
        self._wake.set()

    def remove(self, one: Following) -> None:
        """Nothing that is still on its way changes it from now on."""
        del self.members[one]
        self._displace(one)

    def note_changed(self, one: Following) -> None:
        """Its log start has moved: the leader is to hear of it with the next fetch."""
        self._session.note_changed(one)

    def note_synced(self, one: Following) -> None:
        """What its log had is synced."""
        if one in self._syncing:
            self._displace(one)
            self._place(one)
            self._wake.set()

    def _place(self, one: Following) -> None:
        """Where the state says."""
        if one.paused:
            self._paused[one] = self._clock.monotonic() + one.pause(self._settings.backoff)
            return
        match one.state:
            case FetchState.TRUNCATING:
                self._truncating[one] = None
            case FetchState.LOCATING:
                self._locating[one] = None
            case FetchState.FETCHING if _may_not_tell(one):
                self._syncing[one] = None
            case FetchState.FETCHING:
                self._session.add(one)
            case FetchState.LOCATING_LOCAL | FetchState.BUILDING:
                self._aux.begin(one)
            case FetchState.FAILED:
                pass

    def _displace(self, one: Following) -> None:
        self._truncating.pop(one, None)
        self._locating.pop(one, None)
        self._paused.pop(one, None)
        self._syncing.pop(one, None)
        self._session.remove(one)
        self._aux.cancel(one)

    def _advance(self, one: Following, event: Event | None) -> None:
        """The table's step for a member; None is no event."""
        if event is None or one not in self.members:
            return
        before = one.state
        one.advance(event)
        if one.state is FetchState.FAILED:
            partition = one.partition
            # Who is fenced hears of its new leader next: that is an election's ordinary course.
            (self._log.info if event is Event.FENCED else self._log.error)(
                "partition failed",
                topic=partition.topic,
                partition=partition.index,
                leader_epoch=one.leader_epoch,
                reason=event.name,
            )
        if one.state is not before or one.paused or _may_not_tell(one):
            self._displace(one)
            self._place(one)

    def _built(self, one: Following, event: Event) -> None:
        self._advance(one, event)
        self._wake.set()

    # -- rounds

    async def _run(self) -> None:
        self.died = False
        self._session.broke()
        try:
            while not self._stopping:
                self._wake.clear()
                self._resume_due()
                try:
                    asked = await self._round()
                except (ChannelError, KafkaError) as error:
                    self._failed(error)
                    await self._wait(self._settings.backoff)
                else:
                    self._trouble = ""
                    if not asked:
                        await self._wait(self._until_due())
        finally:
            self.died = not self._stopping

    async def _round(self) -> bool:
        """Ask what is to be asked; False where that is nothing."""
        asked = False
        if self._truncating:
            await self._find_ends(list(self._truncating)[:MAX_ASKED])
            asked = True
        if self._locating:
            await self._find_bounds(list(self._locating)[:MAX_ASKED])
            asked = True
        if self._session.pending:
            await self._fetch()
            asked = True
        return asked

    def _failed(self, error: Exception) -> None:
        if self._stopping:
            return
        self._session.broke()
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._log.warning("cannot fetch", fetcher=self.name, leader=self.leader, reason=self._trouble)

    def _resume_due(self) -> None:
        now = self._clock.monotonic()
        for one in [one for one, due in self._paused.items() if due <= now]:
            del self._paused[one]
            one.paused = False
            self._place(one)

    def _until_due(self) -> float | None:
        due = min(self._paused.values(), default=None)
        return None if due is None else max(0.0, due - self._clock.monotonic())

    async def _wait(self, seconds: float | None) -> None:
        """For something new, or the time."""
        timer = None if seconds is None else self._clock.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # -- records

    async def _fetch(self) -> None:
        await self._link.fetch(self._next_fetch, self._take)

    def _next_fetch(self) -> SessionFetch | None:
        if self._quota.exceeded:
            self._hold_back()
        self._link.hurried = self._aux.busy or bool(self._syncing)
        return self._session.next_fetch() if self._session.pending else None

    def _hold_back(self) -> None:
        """Throttled replicas that are out of sync wait as after an error (KIP-73)."""
        for one in self._session.ready():
            if not one.caught_up and self._quota.throttles(one.partition):
                one.paused = True
                self._displace(one)
                self._place(one)

    def _take(self, response: FetchResponse, may_go_on: bool) -> SessionFetch | None:
        """Called while the records lie in the receive buffer. What to fetch next, where nothing else comes first.

        Raises KafkaError for an error of the whole request that is not about the session.
        """
        self.rate.count += 1
        if not self._session.answered(response.session_id, response.error_code):
            if response.error_code not in SESSION_ERRORS:
                raise KafkaError(ErrorCode(response.error_code))
            self._log.info("fetch session ended", fetcher=self.name, error=ErrorCode(response.error_code).name)
            return None
        for name, topic_id, partitions in response.topics:
            known_id = topic_id if topic_id is not None else self._topic_id_of(name or "")
            for fetched in partitions:
                one = None if known_id is None else self._session.find((known_id, fetched.partition))
                if one is not None:
                    self._take_one(one, fetched)
        if not may_go_on or self._stopping or self._truncating or self._locating or self._until_due() == 0:
            return None
        return self._next_fetch()

    def _take_one(self, one: Following, fetched: FetchedPartition) -> None:
        event = self._contain(one, lambda: one.take(fetched, self._bytes_in))
        if event is Event.RECORDS and isinstance(fetched.records, memoryview) and self._quota.throttles(one.partition):
            self._quota.record(len(fetched.records))
        self._advance(one, event)
        if event is Event.DIVERGED or (event is Event.RECORDS and fetched.records):
            self._session.served(one)

    def _contain(self, one: Following, do: Callable[[], Event | None]) -> Event | None:
        """What an answer does to one partition. What nobody foresaw fails that one alone, as in Kafka's
        ``AbstractFetcherThread``."""
        try:
            return do()
        except KafkaError:
            return Event.BROKEN
        except Exception as error:
            partition = one.partition
            self._contained.note("answer of a leader", error, topic=partition.topic, partition=partition.index)
            return Event.BROKEN

    # -- where the logs part

    async def _find_ends(self, some: Sequence[Following]) -> None:
        """One round of OffsetForLeaderEpoch (KIP-279)."""
        asked: dict[Following, LeaderEpoch] = {}
        for one in some:
            newest = one.log.epochs.latest
            if newest is None:
                self._advance(one, Event.EPOCHS_AGREE)
            else:
                asked[one] = newest
        if not asked:
            return
        ends = await self._link.epoch_ends(asked)
        for one, epoch in asked.items():
            if one in self.members:
                end = ends.get((one.partition.topic, one.partition.index), EpochEnd(MISSING, -1, -1))
                self._advance(one, self._contain(one, partial(one.take_epoch_end, epoch, *end)))

    async def _find_bounds(self, some: Sequence[Following]) -> None:
        """The leader said that the next offset is not in its log: where is that log? (docs/kafka-semantics.md:
        Offset out of range)"""
        ends = await self._link.offsets(some, LATEST)
        longer = [one for one in some if self._meets(one, ends, self._shorten)]
        if longer:
            starts = await self._link.offsets(longer, EARLIEST)
            for one in longer:
                self._meets(one, starts, _move_up)

    def _meets(
        self,
        one: Following,
        offsets: dict[tuple[str, int], ListedOffset],
        do: Callable[[Following, Offset], Event | None],
    ) -> bool:
        """Apply one bound; True where the other one is wanted too."""
        if one not in self.members or one.state is not FetchState.LOCATING or not one.is_current:
            return False
        error, offset, _ = offsets.get((one.partition.topic, one.partition.index), ListedOffset(MISSING, -1))
        if error or offset < 0:
            self._advance(one, refusal(error))
            return False
        event = self._contain(one, lambda: do(one, Offset(offset)))
        self._advance(one, event)
        return event is None

    def _shorten(self, one: Following, leader_end: Offset) -> Event | None:
        if one.shorten(leader_end):
            return Event.LOCATED
        return one.leave_to_tier() if leader_end > 0 and self._aux.skips_copied(one) else None


def _may_not_tell(one: Following) -> bool:
    """Its next fetch would tell of records that have to be synced first, and soon are."""
    return one.state is FetchState.FETCHING and one.log.vouched_end < one.log.log_end_offset


def _move_up(one: Following, leader_start: Offset) -> Event | None:
    one.move_up(leader_start)
    return Event.LOCATED
