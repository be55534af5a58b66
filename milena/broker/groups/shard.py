"""The groups of one ``__consumer_offsets`` partition that this broker leads: their writes and timers, like a shard of
Kafka's ``CoordinatorRuntime``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

from milena.broker.coordinators.errors import client_error, client_errors
from milena.broker.coordinators.partition_log import CoordinatorLog
from milena.broker.groups import offsets, rebalance, store
from milena.broker.groups.ended_transactions import EndedTransaction
from milena.broker.groups.group import Group, Persisted
from milena.broker.groups.journal import Changes, Journal
from milena.broker.groups.model import CommittedOffset, GroupSettings, GroupState
from milena.broker.groups.pending import MAX_PENDING
from milena.broker.groups.transactional_offsets import TransactionalOffsets
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.control_records import EndMarkerRequest
from milena.protocol.records.coordinator_records import GroupMetadataValue
from milena.protocol.schemas.primitives import MAX_STRING
from milena.protocol.types import ProducerId, TopicPartition
from milena.runtime.clock import Clock, Timer
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from milena.runtime.randomness import Randomness
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard

OFFSETS_PER_YIELD: Final = 1_000
"""Offsets to check for expiration before other tasks run, and the most tombstones of a batch."""
SESSIONS_PER_YIELD: Final = 250
"""Groups and members whose sessions begin before other tasks run."""


class OffsetsLog(CoordinatorLog, Protocol):
    """The partition of ``__consumer_offsets`` that a shard writes to."""

    @property
    def high_watermark(self) -> int:
        """Everything before this offset is committed."""
        ...

    def append(self, batch: bytes, guard: VerificationGuard = NO_GUARD, transaction_version: int = 0) -> int:
        """``guard``: the result of the verification that a transaction is open, for its offsets.
        ``transaction_version``: that of a marker's transaction."""
        ...


class Shard:
    """All groups that hash to one partition, during one leadership of it.

    The state in memory changes at the append, as in Kafka, which replays each record: it is always what a reader of the
    whole log would build, and the next request is decided on it. Responses wait until the write is committed. A refused
    append changes nothing. A write that is not committed in time stays in the log and so in memory. If a new leader
    lacks the write, this shard is closed, and its state dropped.
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
        self._transactional = TransactionalOffsets()
        self._ended: list[EndedTransaction] = []
        """Transactions with many offsets, which are being applied in steps."""
        self._pending: dict[str, str] = {}
        """Pending member ids with their group ids, oldest first."""
        self._events = LimitedLog(get_logger("groups"), clock.monotonic)
        self.closed = False

    # -- groups

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.groups)

    def get(self, group_id: str) -> Group | None:
        return self.groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            group = self.new_group(group_id)
            self.groups[group_id] = group
        return group

    def new_group(self, group_id: str) -> Group:
        return Group(group_id, now_ms=self._clock.time_ms(), settings=self._settings, shard=self, pending=self._pending)

    def loading_group(self, group_id: str) -> Group:
        """A new group that is being loaded. Its records count as committed up to the log end offset, see
        ``committed_offsets``."""
        group = self.new_group(group_id)
        group.logged_end = self._log.end
        return group

    def add_loaded(self, groups: Mapping[str, Group], transactional: TransactionalOffsets) -> None:
        """Add the groups that were loaded from the log, by name, and the offsets of open transactions, all in one step:
        a request finds all of them or none. ``begin`` has to follow. Raises BrokenInvariant if a group exists
        already."""
        if existing := self.groups.keys() & groups.keys():
            raise BrokenInvariant(f"group {min(existing)} was loaded, but exists already")
        self.groups.update(groups)
        self._transactional = transactional

    def begin(self) -> Cooperative[None]:
        """Begin the sessions of loaded members that have sent no request yet."""
        budget = YieldBudget(SESSIONS_PER_YIELD)
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is group:
                group.begin_sessions(self._clock.time_ms())
                self.arm(group)
            if budget.spend(1 + len(group.members)):
                yield

    def committed_offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """The offsets that OffsetFetch may return. All loaded offsets count as committed, even if the high watermark of
        this leader is still lower: they contain everything that the previous leader has acknowledged."""
        self._apply_ended(group_id)
        self._journal.advance(self._log.high_watermark)
        group = self.groups.get(group_id)
        return self._journal.committed(group_id, group.offsets if group is not None else {})

    def unstable(self, group_id: str) -> Callable[[TopicPartition], bool] | None:
        """Whether OffsetFetch with RequireStable must not return the offset of a partition yet: a transaction that has
        written one is open, or its commit marker is not committed. None if there are no such partitions."""
        self._journal.advance(self._log.high_watermark)
        pending = self._transactional.partitions(group_id)
        ending = self._journal.ending(group_id)
        if not pending and not ending:
            return None
        return lambda partition: partition in pending or partition in ending

    def pending_partitions(self, group_id: str) -> Collection[TopicPartition]:
        """The partitions of a group for which open transactions have written offsets."""
        self._apply_ended(group_id)
        return self._transactional.partitions(group_id)

    def attempt(self, group: Group, step: Callable[[], object]) -> bool:
        """Run ``step``, which may change ``group``, then set the group's timer. An unexpected error ends the
        generation, so that no member waits forever for a response. Returns whether the step succeeded."""
        succeeded = self._try(group, step)
        self.after_request(group)
        while len(self._pending) > MAX_PENDING:
            self._remove_oldest_pending(*next(iter(self._pending.items())))
        return succeeded

    def _remove_oldest_pending(self, member_id: str, group_id: str) -> None:
        group = self.groups[group_id]
        self._try(group, lambda: rebalance.remove_pending(group, member_id, self._clock.time_ms()))
        self.after_request(group)

    def _try(self, group: Group, step: Callable[[], object]) -> bool:
        try:
            step()
        except Exception as error:
            self._failed(group, error)
            return False
        return True

    def _failed(self, group: Group, error: Exception) -> None:
        self._events.error("group failed, generation ended", group=group.group_id, reason=repr(error))
        if self.groups.get(group.group_id) is group:
            try:
                rebalance.end_generation(group, ErrorCode.UNKNOWN_SERVER_ERROR, self._clock.time_ms())
            except Exception as write_error:
                self._events.error("empty generation not written", group=group.group_id, reason=repr(write_error))

    def after_request(self, group: Group) -> None:
        """Set the group's timer after a request. A group that never had a generation and has no members or offsets
        (also none of an open transaction), as after a refused request, is removed."""
        if self.groups.get(group.group_id) is not group:
            return
        without_members = not group.members and not group.pending_members
        if (
            without_members
            and not group.offsets
            and group.generation == 0
            and group.state is GroupState.EMPTY
            and not self._transactional.partitions(group.group_id)
        ):
            del self.groups[group.group_id]
            self._disarm(group.group_id)
        else:
            self.arm(group)

    def close(self) -> None:
        """End this leadership: waiting requests get NOT_COORDINATOR, and later writes are refused."""
        self.closed = True
        for group in list(self.groups.values()):
            self._disarm(group.group_id)
            group.answer_all(ErrorCode.NOT_COORDINATOR)
        self.groups.clear()
        self._ended.clear()

    def _delete(self, group: Group) -> None:
        """Remove a group after its tombstone was appended."""
        group.move_to(GroupState.DEAD, self._clock.time_ms())
        group.pending_members.clear()
        del self.groups[group.group_id]
        self._disarm(group.group_id)
        group.answer_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # -- GroupShard

    def persist(self, group: Group, assignments: Mapping[str, bytes] | None, done: Persisted) -> ErrorCode:
        return self._write_group(group, store.group_value(group, assignments), done)

    def persist_static_id(self, group: Group, instance_id: str, member_id: str, done: Persisted) -> ErrorCode:
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

    def commit(
        self,
        group: Group,
        changes: Mapping[TopicPartition, CommittedOffset],
        done: Persisted,
        batch: bytes | None = None,
    ) -> None:
        """Write offsets. ``done`` is called when they, or with no offsets all earlier writes, are committed, or with an
        error. ``batch``: their ``store.offset_batch``, if it was built already."""
        try:
            if batch:
                self._write_batch(group, changes, batch, done)
            else:
                self._write_offsets(group, changes, [], done)
        finally:
            self.after_request(group)

    def commit_in_transaction(
        self,
        group: Group,
        producer_id: ProducerId,
        changes: Mapping[TopicPartition, CommittedOffset],
        batch: bytes,
        guard: VerificationGuard,
        done: Persisted,
    ) -> None:
        """Write offsets that take effect when the transaction of ``producer_id`` is committed. ``batch``: their
        ``store.offset_batch``; ``guard``: see ``OffsetsLog.append``. ``done`` as in ``commit``."""
        self._apply_ended(group.group_id)
        try:
            end = self._append(batch, guard) if changes else self._log.end
        except KafkaError as error:
            done(error.code)
        else:
            self._transactional.add(producer_id, group.group_id, changes)
            self._when_committed(end, done)
        finally:
            self.after_request(group)

    def end_transaction(self, marker: EndMarkerRequest, done: Persisted) -> None:
        """Append a marker, and apply or drop the offsets that its transaction has written, very many in steps. If the
        append is refused, nothing changes. A group without any offset stays until offsets expire the next time, as in
        Kafka. ``done`` is called when the marker is committed and the offsets are applied, or with the error code of
        the partition: NOT_LEADER_OR_FOLLOWER if this leadership ends before."""
        if self.closed:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            batch = marker.batch(self._clock.time_ms())
            self._log.append(batch, transaction_version=marker.transaction_version)
        except KafkaError as error:
            done(error.code)
            return
        ended = EndedTransaction(marker.producer_id, commit=marker.commit, transactional=self._transactional)
        self._ended.append(ended)
        self._apply_step(ended, done)

    def _apply_step(self, ended: EndedTransaction, done: Persisted) -> None:
        if self.closed:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._journal.advance(self._log.high_watermark)
        ended.step(self._transactional, self._apply)
        if not ended.is_applied:
            self._clock.call_later(0, lambda: self._apply_step(ended, done))
            return
        self._ended.remove(ended)
        self._log.when_committed(self._log.end, done)

    def _apply_ended(self, group_id: str) -> None:
        """Apply the offsets of ended transactions that a group does not have yet: a request may not see or change them
        in part."""
        for ended in self._ended:
            ended.apply_all(self._transactional, group_id, self._apply)

    def _apply(self, group_id: str, changes: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Change the offsets of a group as a marker says. With several steps the log may have grown since the marker;
        then they count as committed with what was written until now."""
        if changes:
            group = self.groups[group_id]
            self._journal.appended(self._log.end, group_id, group.offsets, changes, ends_transaction=True)
            group.offsets.update(changes)

    def remove_offsets(self, group: Group, partitions: Iterable[TopicPartition], done: Persisted) -> None:
        """Write tombstones for the offsets of ``partitions``. ``done`` is called when they, or with no partitions all
        earlier writes, are committed, or with an error."""
        self._write_offsets(group, dict.fromkeys(partitions), [], done)

    def remove_group(self, group: Group, done: Persisted) -> None:
        """Write tombstones for a group and all its offsets, also those of open transactions, and remove the group. If
        the write is refused, the group stays. ``done`` is called when the tombstones are committed, or with an
        error."""
        changes = dict.fromkeys(self._partitions(group))
        if self._write_offsets(group, changes, [store.group_tombstone(group.group_id)], done):
            self._delete(group)

    def remove_offsets_where(self, matches: offsets.OffsetPredicate) -> Generator[None, None, bool]:
        """Write tombstones for the offsets that match. Returns whether all were appended. Yields where other tasks may
        run."""
        appended = True
        for group, chunk in self._chunks():
            if chunk is None:
                yield
                continue
            old = [key for key in chunk if self._matches(group, key, matches)]
            if old and not self._write_offsets(
                group, dict.fromkeys(old), [], _logged(group, "offsets of deleted topics removed")
            ):
                appended = False
        return appended

    def any_offset(self, matches: offsets.OffsetPredicate) -> Generator[None, None, bool]:
        """Whether any offset matches. Yields where other tasks may run."""
        for group, chunk in self._chunks():
            if chunk is None:
                yield
            elif any(self._matches(group, key, matches) for key in chunk):
                return True
        return False

    def _matches(self, group: Group, partition: TopicPartition, matches: offsets.OffsetPredicate) -> bool:
        """Whether the group's offset, or one that an open transaction has written, matches."""
        committed = group.offsets.get(partition)
        if committed is not None and matches(partition, committed):
            return True
        return bool(self._transactional) and any(
            matches(partition, offset) for offset in self._transactional.offsets(group.group_id, partition)
        )

    def _partitions(self, group: Group) -> list[TopicPartition]:
        """The partitions that a group has offsets for, also those of open transactions."""
        self._apply_ended(group.group_id)
        pending = self._transactional.partitions(group.group_id)
        return [*group.offsets, *(partition for partition in pending if partition not in group.offsets)]

    def _chunks(self) -> Iterator[tuple[Group, list[TopicPartition] | None]]:
        """Yield each group with at most ``OFFSETS_PER_YIELD`` of its partitions at a time; with None where the caller
        must let other tasks run."""
        checked = 0
        for group in list(self.groups.values()):
            checked += 1
            remaining = iter(self._partitions(group))
            while chunk := list(islice(remaining, OFFSETS_PER_YIELD)):
                checked += len(chunk)
                if checked > OFFSETS_PER_YIELD:
                    checked = len(chunk)
                    yield group, None
                # The group may have been deleted while other tasks ran.
                if self.groups.get(group.group_id) is not group:
                    break
                self._apply_ended(group.group_id)
                yield group, chunk

    def expire_offsets(self, retention_ms: int) -> Iterator[None]:
        """Remove expired offsets, and groups without members whose last offset expires. Yields where other tasks may
        run."""
        checked = 0
        for group in list(self.groups.values()):
            checked += 1 + len(group.offsets)
            if checked > OFFSETS_PER_YIELD:
                checked = 0
                yield
            if self.groups.get(group.group_id) is not group:
                continue
            now_ms = self._clock.time_ms()
            old = offsets.expired_offsets(group, now_ms=now_ms, retention_ms=retention_ms)
            yield from self._remove_old(group, {partition: group.offsets[partition] for partition in old})

    def _remove_old(self, group: Group, old: Mapping[TopicPartition, CommittedOffset]) -> Iterator[None]:
        """Remove the offsets ``old`` that have not been committed again and for which no transaction is open, and the
        group if it then has no offsets and members. Yields where other tasks may run."""
        remaining = iter(old.items())
        while chunk := list(islice(remaining, OFFSETS_PER_YIELD)):
            pending = self._transactional.partitions(group.group_id)
            unchanged = [
                partition
                for partition, committed in chunk
                if group.offsets.get(partition) is committed and partition not in pending
            ]
            # The last offsets of an empty group are removed together with the group, in one batch.
            if len(unchanged) == len(group.offsets) and not pending and offsets.is_vacant(group):
                break
            if unchanged:
                self.remove_offsets(group, unchanged, _logged(group, "offsets expired"))
            if len(old) > OFFSETS_PER_YIELD:
                yield
            if self.groups.get(group.group_id) is not group:
                return
        if (
            len(group.offsets) <= OFFSETS_PER_YIELD
            and group.offsets.items() <= old.items()
            and not self._transactional.partitions(group.group_id)
            and offsets.is_vacant(group)
        ):
            self.remove_group(group, _logged(group, "group expired"))

    def when_all_committed(self, done: Persisted) -> None:
        """Call ``done`` when all writes so far are committed, for responses that depend on them, or with an error."""
        self._when_committed(self._log.end, done)

    def _write_offsets(
        self, group: Group, changes: Changes, group_records: list[store.KeyValue], done: Persisted
    ) -> bool:
        """Append ``changes`` and ``group_records`` as one batch and apply the changes in memory. ``done`` is called
        when the batch is committed, or with an error. Returns whether it was appended."""
        if not changes and not group_records:
            self.when_all_committed(done)
            return True
        records = [*store.offset_records(group.group_id, changes), *group_records]
        return self._write_batch(group, changes, store.batch(records, self._clock.time_ms()), done)

    def _write_batch(self, group: Group, changes: Changes, batch: bytes, done: Persisted) -> bool:
        """Append the batch with ``changes`` and apply these in memory. Returns whether it was appended."""
        self._apply_ended(group.group_id)
        try:
            end = self._append(batch)
        except KafkaError as error:
            done(error.code)
            return False
        self._journal.appended(end, group.group_id, group.offsets, changes)
        for partition, committed in changes.items():
            if committed is None:
                group.offsets.pop(partition, None)
            else:
                group.offsets[partition] = committed
        if self._transactional:
            self._transactional.wrote(group.group_id, changes)
        self._when_committed(end, done)
        return True

    def _write_group(self, group: Group, value: GroupMetadataValue, done: Persisted) -> ErrorCode:
        try:
            batch = store.batch([store.group_record(group.group_id, value)], self._clock.time_ms())
            end = self._append(batch)
        except KafkaError as error:
            return error.code
        if end <= group.logged_end or (group.logged is not None and value.generation < group.logged.generation):
            known = None if group.logged is None else group.logged.generation
            raise BrokenInvariant(
                f"group {group.group_id} was written in generation {value.generation} up to offset {end}, after "
                f"generation {known} up to {group.logged_end}"
            )
        group.logged, group.logged_end = value, end
        self._when_committed(end, lambda error: self._written(group, done, error))
        return ErrorCode.NONE

    def _written(self, group: Group, done: Persisted, error: ErrorCode) -> None:
        # Not ``attempt``: the write may be committed within a step of the group, which ``attempt`` runs already.
        self._try(group, lambda: done(error))
        self.arm(group)

    def _append(self, batch: bytes, guard: VerificationGuard = NO_GUARD) -> int:
        """Append a batch. Returns the offset after it. Raises KafkaError with a code for the
        coordinator's client, see ``client_error``."""
        if self.closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        with client_errors():
            end = self._log.append(batch, guard)
        self._journal.advance(self._log.high_watermark)
        return end

    def _when_committed(self, end: int, done: Persisted) -> None:
        if self.closed:
            done(ErrorCode.NOT_COORDINATOR)
        else:
            self._log.when_committed(end, lambda error: done(client_error(error)))

    # -- time

    def arm(self, group: Group) -> None:
        """Set the timer for the group's next deadline. To be called after each change that may bring it forward."""
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
