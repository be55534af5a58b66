"""The groups of one ``__consumer_offsets`` partition that this broker leads: their writes, timers and loading."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

from milena.broker.groups import offsets, rebalance, store
from milena.broker.groups.group import Group, Persisted
from milena.broker.groups.journal import Changes, Journal
from milena.broker.groups.model import CommittedOffset, GroupSettings, GroupState
from milena.broker.groups.pending import MOST_PENDING
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.coordinator_records import GroupMetadataValue
from milena.protocol.schemas.primitives import MAX_STRING
from milena.protocol.types import TopicPartition
from milena.runtime.clock import Clock, Timer
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from milena.runtime.randomness import Randomness

OFFSETS_PER_YIELD: Final = 1_000
"""Offsets to check for expiration before other tasks run. A batch has no more tombstones than this."""


SESSIONS_PER_YIELD: Final = 250
"""Groups and members whose sessions begin before other tasks run."""


class OffsetsLog(Protocol):
    """The partition of ``__consumer_offsets`` that a shard writes to."""

    @property
    def end(self) -> int:
        """The offset after the last record."""
        ...

    @property
    def high_watermark(self) -> int:
        """Everything before this offset is committed."""
        ...

    def append(self, batch: bytes) -> int:
        """Append one batch as the leader. Returns the offset after it. Raises KafkaError if nothing was appended."""
        ...

    def when_committed(self, end: int, done: Callable[[ErrorCode], None]) -> None:
        """Call ``done`` when everything before ``end`` is committed, or when the wait for that ends."""
        ...


class Shard:
    """All groups that hash to one partition, during one leadership of it.

    The state in memory follows the log at the append, like Kafka's, which replays each record: groups and offsets are
    always what a reader of the whole log would find, and the next write is decided on that. Responses wait until the
    write is committed. A refused append changes nothing. A write that is not committed in time stays in memory, as it
    stays in the log. If a new leader lacks the write, this shard is closed and its state forgotten.
    """

    def __init__(
        self,
        log: OffsetsLog,
        *,
        clock: Clock,
        random: Randomness,
        settings: GroupSettings,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self._log = log
        self._clock = clock
        self._random = random
        self._settings = settings
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._journal = Journal()
        self._pending: dict[str, str] = {}
        """Member ids that were given out and not used yet, with their groups, in order."""
        self._events = LimitedLog(get_logger("groups"), clock.monotonic)
        self.closed = False

    # -- groups

    def get(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.new_group(group_id)
            self.groups[group_id] = group
        return group

    def new_group(self, group_id: str) -> Group:
        return Group(
            group_id, now_ms=self._clock.time_ms(), settings=self._settings, effects=self, pending=self._pending
        )

    def logged_group(self, group_id: str) -> Group:
        """A group that is being loaded: what the log has of it ends at the log's end, or before."""
        group = self.new_group(group_id)
        group.logged_end = self._log.end
        return group

    def take_over(self, groups: Mapping[str, Group]) -> None:
        """Add the groups that were loaded from the log, by name, however many in one step: a request finds all of them
        or none. ``begin_sessions`` has to follow."""
        if both := self.groups.keys() & groups.keys():
            raise BrokenInvariant(f"group {min(both)} was loaded, and is here already")
        self.groups.update(groups)

    def begin_sessions(self) -> Cooperative[None]:
        """Begin the sessions of loaded members, which no request has begun. Yields like ``expire_offsets``."""
        budget = YieldBudget(SESSIONS_PER_YIELD)
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is group:
                group.begin_sessions(self._clock.time_ms())
                self.arm(group)
            if budget.spend(1 + len(group.members)):
                yield

    def committed_offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The offsets that readers may see. Everything that was loaded counts as committed: it contains all that the
        previous leader has acknowledged, even if the high watermark of this leader is still lower."""
        self._journal.advance(self._log.high_watermark)
        group = self.groups.get(group_id)
        return self._journal.committed(group_id, group.offsets if group is not None else {})

    def attempt(self, group: Group, step: Callable[[], object]) -> bool:
        """Run a step of a group, then set its timer. An error ends the generation, so that no member waits for a
        response that never comes. Returns whether the step succeeded."""
        done = self._try(group, step)
        self.after_request(group)
        while len(self._pending) > MOST_PENDING:
            self._lapse(*next(iter(self._pending.items())))
        return done

    def _lapse(self, member_id: str, group_id: str) -> None:
        group = self.groups[group_id]
        self._try(group, lambda: rebalance.forget_pending(group, member_id, self._clock.time_ms()))
        self.after_request(group)

    def _try(self, group: Group, step: Callable[[], object]) -> bool:
        try:
            step()
        except Exception as error:
            self._failed(group, error)
            return False
        return True

    def _failed(self, group: Group, error: Exception) -> None:
        self._events.error("group_step_failed", group=group.group_id, reason=repr(error))
        if self.groups.get(group.group_id) is group:
            try:
                rebalance.end(group, ErrorCode.UNKNOWN_SERVER_ERROR, self._clock.time_ms())
            except Exception as further:
                self._events.error("group_not_written", group=group.group_id, reason=repr(further))

    def after_request(self, group: Group) -> None:
        """After a request: set the group's timer, or drop the group if the request left it without members and
        offsets."""
        if self.groups.get(group.group_id) is not group:
            return
        nobody = not group.members and not group.pending_members
        if nobody and not group.offsets and group.generation == 0 and group.state is GroupState.EMPTY:
            del self.groups[group.group_id]
            self._disarm(group.group_id)
        else:
            self.arm(group)

    def close(self) -> None:
        """Another broker leads now: requests that wait get NOT_COORDINATOR and look for the coordinator again."""
        self.closed = True
        for group in list(self.groups.values()):
            self._disarm(group.group_id)
            group.answer_all(ErrorCode.NOT_COORDINATOR)
        self.groups.clear()

    def _forget(self, group: Group) -> None:
        """Remove a deleted group."""
        group.move_to(GroupState.DEAD, self._clock.time_ms())
        group.pending_members.clear()
        del self.groups[group.group_id]
        self._disarm(group.group_id)
        group.answer_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- effects of a group

    def persist(self, group: Group, assignments: Mapping[str, bytes] | None, done: Persisted) -> ErrorCode:
        return self._write_group(group, store.group_value(group, assignments), done)

    def claim(self, group: Group, instance_id: str, member_id: str, done: Persisted) -> ErrorCode:
        renamed = store.with_static_member(group.logged, instance_id, member_id)
        if renamed is not None:
            return self._write_group(group, renamed, done)
        self._when_committed(group.logged_end, lambda error: self._written(group, done, error))
        return ErrorCode.NONE

    def new_member_id(self, prefix: str) -> str:
        own = f"-{self._random.uuid()}"
        return prefix.encode()[: MAX_STRING - len(own)].decode(errors="ignore") + own

    def time_ms(self) -> int:
        return self._clock.time_ms()

    # -- writes

    def commit(self, group: Group, changes: Mapping[TopicPartition, CommittedOffset], done: Persisted) -> None:
        """Write offsets. ``done`` is called when they are committed; readers see them from then on."""
        try:
            self._write_offsets(group, changes, [], done)
        finally:
            self.after_request(group)

    def remove_offsets(self, group: Group, partitions: Iterable[TopicPartition], done: Persisted) -> None:
        """Write tombstones for offsets. Without any, ``done`` is called when all earlier writes are committed."""
        self._write_offsets(group, dict.fromkeys(partitions), [], done)

    def remove_group(self, group: Group, done: Persisted) -> None:
        """Write tombstones for a group and all its offsets, and remove it."""
        if self._write_offsets(group, dict.fromkeys(group.offsets), [store.group_tombstone(group.group_id)], done):
            self._forget(group)

    def remove_offsets_where(self, chosen: offsets.Chosen) -> Generator[None, None, bool]:
        """Write tombstones for the chosen offsets. Returns whether all were appended. Yields like
        ``expire_offsets``."""
        taken = True
        for group, some in self._slices():
            if some is None:
                yield
                continue
            old = [key for key in some if key in group.offsets and chosen(key, group.offsets[key])]
            if old and not self._write_offsets(group, dict.fromkeys(old), [], _logged(group, "offsets_removed")):
                taken = False
        return taken

    def any_offset(self, chosen: offsets.Chosen) -> Generator[None, None, bool]:
        """Whether an offset is chosen. Yields like ``expire_offsets``."""
        for group, some in self._slices():
            if some is None:
                yield
            elif any(key in group.offsets and chosen(key, group.offsets[key]) for key in some):
                return True
        return False

    def _slices(self) -> Iterator[tuple[Group, list[TopicPartition] | None]]:
        """All groups with their partitions, in slices; None where other tasks may run."""
        looked_at = 0
        for group in list(self.groups.values()):
            looked_at += 1
            left = iter(list(group.offsets))
            while some := list(islice(left, OFFSETS_PER_YIELD)):
                looked_at += len(some)
                if looked_at > OFFSETS_PER_YIELD:
                    looked_at = len(some)
                    yield group, None
                if self.groups.get(group.group_id) is not group:
                    break
                yield group, some

    def expire_offsets(self, retention_ms: int) -> Iterator[None]:
        """Remove expired offsets, and groups of which nothing is left. Yields where other tasks may run."""
        looked_at = 0
        for group in list(self.groups.values()):
            looked_at += 1 + len(group.offsets)
            if looked_at > OFFSETS_PER_YIELD:
                looked_at = 0
                yield
            if self.groups.get(group.group_id) is not group:
                continue
            now_ms = self._clock.time_ms()
            old = offsets.expired_offsets(group, now_ms=now_ms, retention_ms=retention_ms)
            yield from self._remove_old(group, {partition: group.offsets[partition] for partition in old})

    def _remove_old(self, group: Group, old: Mapping[TopicPartition, CommittedOffset]) -> Iterator[None]:
        """Remove offsets, and the group if nothing is left of it. Offsets that were committed again meanwhile stay."""
        left = iter(old.items())
        while some := list(islice(left, OFFSETS_PER_YIELD)):
            gone = [partition for partition, committed in some if group.offsets.get(partition) is committed]
            if len(gone) == len(group.offsets) and offsets.is_vacant(group):
                break
            if gone:
                self.remove_offsets(group, gone, _logged(group, "offsets_expired"))
            if len(old) > OFFSETS_PER_YIELD:
                yield
            if self.groups.get(group.group_id) is not group:
                return
        if (
            len(group.offsets) <= OFFSETS_PER_YIELD
            and group.offsets.items() <= old.items()
            and offsets.is_vacant(group)
        ):
            self.remove_group(group, _logged(group, "group_expired"))

    def when_all_committed(self, done: Persisted) -> None:
        """Call ``done`` when all writes up to now are committed, for responses that depend on them."""
        self._when_committed(self._log.end, done)

    def _write_offsets(self, group: Group, changes: Changes, more: list[store.KeyValue], done: Persisted) -> bool:
        if not changes and not more:
            self.when_all_committed(done)
            return True
        try:
            end = self._append([*store.offset_records(group.group_id, changes), *more])
        except KafkaError as error:
            done(error.code)
            return False
        self._journal.wrote(end, group.group_id, group.offsets, changes)
        for partition, committed in changes.items():
            if committed is None:
                group.offsets.pop(partition, None)
            else:
                group.offsets[partition] = committed
        self._when_committed(end, done)
        return True

    def _write_group(self, group: Group, value: GroupMetadataValue, done: Persisted) -> ErrorCode:
        try:
            end = self._append([store.group_record(group.group_id, value)])
        except KafkaError as error:
            return error.code
        if end <= group.logged_end or (group.logged is not None and value.generation < group.logged.generation):
            known = None if group.logged is None else group.logged.generation
            raise BrokenInvariant(
                f"group {group.group_id} is logged in generation {value.generation} up to {end}, after {known} up to "
                f"{group.logged_end}"
            )
        group.logged, group.logged_end = value, end
        self._when_committed(end, lambda error: self._written(group, done, error))
        return ErrorCode.NONE

    def _written(self, group: Group, done: Persisted, error: ErrorCode) -> None:
        # This may run within a step of the group, after which ``attempt`` does the rest.
        self._try(group, lambda: done(error))
        self.arm(group)

    def _append(self, records: list[store.KeyValue]) -> int:
        """Append records as one batch. Raises KafkaError with an error that a coordinator's client understands."""
        if self.closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        try:
            end = self._log.append(store.batch(records, self._clock.time_ms()))
        except KafkaError as error:
            raise KafkaError(store.client_error(error.code), error.message) from error
        self._journal.advance(self._log.high_watermark)
        return end

    def _when_committed(self, end: int, done: Persisted) -> None:
        if self.closed:
            done(ErrorCode.NOT_COORDINATOR)
        else:
            self._log.when_committed(end, lambda error: done(store.client_error(error)))

    # -- time

    def arm(self, group: Group) -> None:
        """Set the timer for the group's next deadline. Needed after everything that can bring the deadline forward."""
        deadline = rebalance.next_deadline_ms(group)
        armed = self._timers.get(group.group_id)
        if self.closed or deadline is None or self.groups.get(group.group_id) is not group:
            return
        if armed is not None and armed[0] <= deadline:
            return
        self._disarm(group.group_id)
        delay = max(deadline - self._clock.time_ms(), 0) / 1000
        self._timers[group.group_id] = deadline, self._clock.call_later(delay, lambda: self._due(group))

    def _due(self, group: Group) -> None:
        self._timers.pop(group.group_id, None)
        self.attempt(group, lambda: rebalance.expire(group, self._clock.time_ms()))

    def _disarm(self, group_id: str) -> None:
        armed = self._timers.pop(group_id, None)
        if armed is not None:
            armed[1].cancel()


def _logged(group: Group, event: str) -> Persisted:
    def done(error: ErrorCode) -> None:
        get_logger("groups").debug(event, group=group.group_id, error=error.name)

    return done
