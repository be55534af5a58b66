"""Random interleavings of all that touches groups: after every step memory is what a reader of the log finds.

Beside the coordinator stands a simple oracle (``log_oracle``): of the whole log for what the next request is decided
on, of what is below the high watermark for what readers are shown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from milena.broker.groups import rebalance
from milena.broker.groups.group import Group
from milena.broker.groups.loading import Loader
from milena.broker.groups.model import GroupState
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode
from tests.fixtures.properties import examples
from tests.unit.broker.fixtures import Bench, Request
from tests.unit.broker.groups.log_oracle import pending_in, replay, unstable_in
from tests.unit.broker.groups.served import Groups

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Histories are short: shrinking one takes minutes."""
RETENTION_MS = 60_000
PROTOCOLS = st.sampled_from([(("range", b"a"),), (("range", b"b"),), (("range", b"c"), ("sticky", b"d"))])
INSTANCES = st.sampled_from([None, "i1", "i1", "i2"])
PRODUCERS = st.integers(1, 2)
PARTITIONS = st.sampled_from([(0,), (1,), (0, 1)])


def described(group: Group) -> tuple[object, ...]:
    members = {one.member_id: (one.instance_id, one.assignment) for one in group.members.values()}
    return group.state, group.generation, group.protocol_type, group.protocol_name, group.leader_id, members


class Interleavings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(Path("unused"))
        self.groups = Groups(self.bench)
        self.sent: list[Request] = []
        self.joins: list[tuple[str | None, Request]] = []
        self.sent_ids: dict[str, list[str]] = {}
        self.offset = 0
        self.broken: list[object] = []
        self._end = rebalance.end_generation
        rebalance.end_generation = lambda *found: self.broken.append(found)

    def _keep(self, request: Request) -> Request:
        self.sent.append(request)
        return request

    # -- requests

    @initialize()
    def the_group_has_a_member(self) -> None:
        self.a_member_joins("i1", (("range", b"a"),))
        self.a_member_syncs(0, b"s")

    @rule(partitions=PARTITIONS)
    def a_simple_consumer_commits(self, partitions: tuple[int, ...]) -> None:
        self.offset += 1
        self._keep(self.groups.committing(9, *partitions, offset=self.offset))

    @rule(pick=st.integers(0, 9), partitions=PARTITIONS)
    def a_member_commits(self, pick: int, partitions: tuple[int, ...]) -> None:
        for instance, member, generation in self._pick(pick):
            self.offset += 1
            fields: dict[str, Any] = {"member": member, "generation": generation, "offset": self.offset}
            if instance is None:
                self._keep(self.groups.committing(9, *partitions, **fields))

    @rule(producer=PRODUCERS, partitions=PARTITIONS)
    def a_transaction_sends_offsets(self, producer: int, partitions: tuple[int, ...]) -> None:
        self.offset += 1
        self._keep(self.groups.sending(5, *partitions, producer=producer, offset=self.offset))

    @rule(producer=PRODUCERS, commit=st.sampled_from([True, True, False]))
    def a_transaction_ends(self, producer: int, commit: bool) -> None:
        self.groups.end(producer, commit=commit)

    @rule()
    def the_group_is_deleted(self) -> None:
        self._keep(self.groups.deleting())

    @rule(index=st.integers(0, 1))
    def an_offset_is_deleted(self, index: int) -> None:
        self._keep(self.groups.deleting_offset(index))

    @rule(instance=INSTANCES, protocols=PROTOCOLS)
    def a_member_joins(self, instance: str | None, protocols: Any) -> None:
        version = 9 if instance else 3
        request = self._keep(self.groups.joining(instance=instance, protocols=protocols, version=version))
        self.joins.append((instance, request))

    @rule(pick=st.integers(0, 9), protocols=PROTOCOLS)
    def a_member_joins_again(self, pick: int, protocols: Any) -> None:
        for instance, member, _ in self._pick(pick):
            request = self.groups.joining(member, instance=instance, protocols=protocols, version=9 if instance else 3)
            self.joins.append((instance, self._keep(request)))

    @rule(pick=st.integers(0, 9), share=st.binary(min_size=1, max_size=2))
    def a_member_syncs(self, pick: int, share: bytes) -> None:
        for instance, member, generation in self._pick(pick):
            group = self.groups.shard.groups.get("g")
            shares = dict.fromkeys(group.members if group is not None else (), share)
            self._keep(self.groups.syncing(member, generation, shares, instance=instance))

    @rule(pick=st.integers(0, 1), share=st.binary(min_size=1, max_size=2))
    def the_last_members_sync(self, pick: int, share: bytes) -> None:
        self.a_member_syncs(pick, share)

    @rule(instance=INSTANCES, protocols=PROTOCOLS, share=st.binary(min_size=1, max_size=1))
    def a_member_joins_and_syncs(self, instance: str | None, protocols: Any, share: bytes) -> None:
        self.a_member_joins(instance, protocols)
        self.a_member_syncs(0, share)

    @rule(pick=st.integers(0, 9))
    def a_member_leaves(self, pick: int) -> None:
        for _, member, _ in self._pick(pick):
            self.groups.leave(member)

    # -- the world

    @rule(ms=st.sampled_from([0, 1_000, 1_000, 10_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.groups.clock.advance(ms / 1000)

    @rule(retention_ms=st.sampled_from([0, RETENTION_MS]))
    def offsets_expire(self, retention_ms: int) -> None:
        list(self.groups.shard.expire_offsets(retention_ms))

    @rule(hold=st.booleans())
    def followers_lag_or_not(self, hold: bool) -> None:
        self.groups.log.hold = hold
        if not hold:
            self.groups.log.commit()

    @rule(count=st.integers(1, 2))
    def followers_fetch(self, count: int) -> None:
        self.groups.log.commit(count)

    @rule()
    def writes_time_out(self) -> None:
        self.groups.log.give_up()

    @rule(refused=st.sampled_from([False, False, True]))
    def writes_are_refused_or_not(self, refused: bool) -> None:
        self.groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS if refused else ErrorCode.NONE

    @rule()
    def another_leader_loads_the_committed_records(self) -> None:
        self.groups.log.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.groups.reload()

    def _pick(self, pick: int) -> list[tuple[str | None, str, int]]:
        """A member that got its id in a response, if there is one."""
        joined = [
            (instance, str(request.response.member_id), int(request.response.generation_id))
            for instance, request in self.joins
            if request.answered and request.response.error_code == ErrorCode.NONE
        ]
        return [joined[-1 - pick % len(joined)]] if joined else []

    # -- what holds

    @invariant()
    def offsets_in_memory_are_those_of_the_log(self) -> None:
        written = replay(self.groups.log.batches)
        shard = self.groups.shard
        in_memory = {
            (name, key[1]): committed.offset
            for name, group in shard.groups.items()
            for key, committed in group.offsets.items()
        }
        assert in_memory == written.offsets
        assert {name: group.logged for name, group in shard.groups.items() if group.logged} == written.generations
        assert pending_in(shard._transactional) == written.pending
        assert {group for group, _, _ in written.pending} <= shard.groups.keys()

    @invariant()
    def offset_fetch_returns_committed_offsets(self) -> None:
        committed = replay(self.groups.log.batches[: self.groups.log.high_watermark])
        seen = {("g", index): self.groups.fetched(index=index) for index in (0, 1)}
        assert {key: offset for key, offset in seen.items() if offset >= 0} == committed.offsets

    @invariant()
    def offsets_are_unstable_until_the_marker_is_committed(self) -> None:
        log = self.groups.log
        expected = unstable_in(log.batches, log.high_watermark)
        unstable = self.groups.shard.unstable("g")
        assert {index for index in (0, 1) if unstable is not None and unstable(("t", index))} == expected
        if log.high_watermark == log.end:
            answers = {index: self.groups.fetching(index=index, stable=True).response for index in (0, 1)}
            codes = {index: answer.groups[0].topics[0].partitions[0].error_code for index, answer in answers.items()}
            assert {index for index, code in codes.items() if code == ErrorCode.UNSTABLE_OFFSET_COMMIT} == expected

    @invariant()
    def a_reload_finds_the_same_groups(self) -> None:
        """Except during a rebalance, when the log has the previous generation."""
        loader = Loader(self.groups.shard.new_group)
        for piece in self.groups.log.pieces():
            run_now(loader.apply(piece))
        found = run_now(loader.finish(self.groups.clock.time_ms()))
        assert pending_in(loader.transactional) == pending_in(self.groups.shard._transactional)
        for name, group in self.groups.shard.groups.items():
            settled = group.state is GroupState.STABLE or (group.state is GroupState.EMPTY and group.generation)
            if settled and group.empty_write_retry_ms is None:
                assert described(group) == described(found[name])

    @invariant()
    def no_old_static_id_is_in_the_log_after_a_newer_one_was_sent(self) -> None:
        for instance, request in self.joins:
            if instance is None or not request.answered or request.response.error_code != ErrorCode.NONE:
                continue
            sent_ids = self.sent_ids.setdefault(instance, [])
            if request.response.member_id not in sent_ids:
                sent_ids.append(request.response.member_id)
        committed = replay(self.groups.log.batches[: self.groups.log.high_watermark])
        for value in committed.generations.values():
            for member in value.members:
                if member.group_instance_id is not None:
                    assert member.member_id not in self.sent_ids.get(member.group_instance_id, [])[:-1]

    @invariant()
    def no_group_fails(self) -> None:
        assert not self.broken

    def teardown(self) -> None:
        """At the end all requests have been answered."""
        try:
            self.groups.log.error = ErrorCode.NONE
            self.groups.log.hold = False
            self.groups.log.commit()
            for _ in range(20):
                self.groups.clock.advance(60.0)
            assert all(request.answered for request in self.sent)
        finally:
            rebalance.end_generation = self._end
            self.bench.close()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=examples(60), stateful_step_count=30, phases=PHASES)
