"""The groups of one ``__consumer_offsets`` partition that this broker leads: their writes, timers and loading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from broker.groups import store
from broker.groups.group import Group, Persisted
from broker.groups.model import CommittedOffset, GroupSettings, GroupState, JoinAnswer, SyncAnswer
from broker.groups.rebalance import expire, next_deadline_ms
from protocol.errors import ErrorCode
from runtime.clock import Clock, Timer
from runtime.randomness import Randomness

TopicPartition = tuple[str, int]


class OffsetsLog(Protocol):
    """The partition of ``__consumer_offsets`` behind a shard."""

    def append(self, batch: bytes, done: Callable[[ErrorCode], None]) -> None:
        """Append one batch as leader and call ``done`` when it is committed, or when it will not be. Never raises."""
        ...


class Shard:
    """All groups that hash to one partition, for one leadership of it."""

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
        return Group(group_id, now_ms=self._clock.time_ms(), settings=self._settings, effects=self)

    def forget(self, group: Group) -> None:
        """The group is gone for good."""
        group.move_to(GroupState.DEAD, self._clock.time_ms())
        self.groups.pop(group.group_id, None)
        self._disarm(group.group_id)

    def settle(self, group: Group) -> None:
        """After a request: meet the group's deadlines, and keep no group that nothing came of."""
        nobody = not group.members and not group.pending_members
        if nobody and not group.offsets and group.generation == 0 and group.state is GroupState.EMPTY:
            self.groups.pop(group.group_id, None)
            self._disarm(group.group_id)
        else:
            self.arm(group)

    def close(self) -> None:
        """Another broker leads now: whoever waits here is sent to look for it."""
        self.closed = True
        for group in list(self.groups.values()):
            self._disarm(group.group_id)
            for member in list(group.members.values()):
                member.answer_join(JoinAnswer(ErrorCode.NOT_COORDINATOR, member.member_id))
                member.answer_sync(SyncAnswer(ErrorCode.NOT_COORDINATOR))
        self.groups.clear()

    # -- effects of a group

    def persist(self, group: Group, assignments: Mapping[str, bytes] | None, done: Persisted) -> None:
        def committed(error: ErrorCode) -> None:
            done(error)
            self.arm(group)

        self.append([store.group_record(group, assignments)], committed)

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._random.uuid()}"

    # -- writes

    def append(self, records: list[store.KeyValue], done: Persisted) -> None:
        """Append records as one batch; ``done`` gets the error in the terms of a coordinator's client."""
        if self.closed:
            done(ErrorCode.NOT_COORDINATOR)
            return
        batch = store.batch(records, self._clock.time_ms())
        self._log.append(batch, lambda error: done(store.client_error(error)))

    def commit(self, group: Group, offsets: Mapping[TopicPartition, CommittedOffset], done: Persisted) -> None:
        """Write offsets; they are shown once they are committed."""

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                group.offsets.update(offsets)
            self.settle(group)
            done(error)

        self.append(store.offset_records(group.group_id, offsets), committed)

    def remove_offsets(self, group: Group, partitions: Iterable[TopicPartition], done: Persisted) -> None:
        """Write tombstones for offsets and forget them."""
        doomed = list(partitions)

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for partition in doomed:
                    group.offsets.pop(partition, None)
            done(error)

        if doomed:
            self.append(store.offset_records(group.group_id, dict.fromkeys(doomed)), committed)
        else:
            done(ErrorCode.NONE)

    def remove_group(self, group: Group, done: Persisted) -> None:
        """Write tombstones for a group and all its offsets, and forget it."""

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and self.groups.get(group.group_id) is group:
                self.forget(group)
            done(error)

        tombstones = store.offset_records(group.group_id, dict.fromkeys(group.offsets))
        self.append([*tombstones, store.group_tombstone(group.group_id)], committed)

    # -- time

    def arm(self, group: Group) -> None:
        """See to it that the group's next deadline is met. Needed after all that can bring it nearer."""
        deadline = next_deadline_ms(group)
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
        expire(group, self._clock.time_ms())
        self.arm(group)

    def _disarm(self, group_id: str) -> None:
        armed = self._timers.pop(group_id, None)
        if armed is not None:
            armed[1].cancel()
