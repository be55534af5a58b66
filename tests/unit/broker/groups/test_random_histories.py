"""Invariants of a group under random requests and times."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from milena.broker.groups.model import GroupState, JoinAnswer, SyncAnswer
from milena.broker.groups.rebalance import SESSION_CHECK_MS, next_deadline_ms
from milena.protocol.errors import ErrorCode
from tests.fixtures.properties import examples
from tests.unit.broker.groups.world import REBALANCE_MS, SESSION_MS, GroupWorld

PROTOCOLS = st.sampled_from([(("range", b"a"),), (("range", b"b"), ("sticky", b"c")), (("sticky", b"d"),)])


class RandomGroup(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = GroupWorld()
        self.joins: list[list[JoinAnswer]] = []
        self.syncs: list[list[SyncAnswer]] = []
        self.answered: list[JoinAnswer] = []
        self.generation = 0

    def _answers(self) -> list[JoinAnswer]:
        return [answers[0] for answers in self.joins if answers]

    @rule(protocols=PROTOCOLS, instance=st.sampled_from([None, None, "i1", "i2"]), known=st.booleans())
    def a_new_member_joins(self, protocols: tuple[tuple[str, bytes], ...], instance: str | None, known: bool) -> None:
        self.joins.append(self.world.join(instance=instance, protocols=protocols, known_id_needed=known))

    @rule(pick=st.integers(0, 50), protocols=PROTOCOLS)
    def a_member_joins_again(self, pick: int, protocols: tuple[tuple[str, bytes], ...]) -> None:
        answers = self._answers()
        if answers:
            self.joins.append(self.world.join(answers[pick % len(answers)].member_id, protocols=protocols))

    @rule(pick=st.integers(0, 50))
    def a_member_syncs(self, pick: int) -> None:
        answers = self._answers()
        if answers:
            self.syncs.append(self.world.sync(answers[pick % len(answers)]))

    @rule(pick=st.integers(0, 50))
    def a_member_leaves(self, pick: int) -> None:
        answers = self._answers()
        if answers:
            self.world.leave(answers[pick % len(answers)].member_id)

    @rule(ms=st.sampled_from([1, 1_000, 3_000, 10_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(hold=st.booleans(), error=st.sampled_from([ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def writes_are_held_or_committed(self, hold: bool, error: ErrorCode) -> None:
        self.world.hold_writes = hold
        self.world.commit(error)

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def writes_are_refused_or_not(self, error: ErrorCode) -> None:
        self.world.refused = error

    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert max(map(len, self.joins), default=0) <= 1
        assert max(map(len, self.syncs), default=0) <= 1

    @invariant()
    def the_leader_is_a_member_and_all_share_the_protocol(self) -> None:
        group = self.world.group
        assert group.leader_id is None or group.leader_id in group.members
        if group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert group.members and group.leader_id is not None
            assert group.protocol_name in group.common_protocols()
        if group.state is GroupState.EMPTY:
            assert not group.members

    @invariant()
    def generations_never_go_back(self) -> None:
        assert self.world.group.generation >= self.generation
        self.generation = self.world.group.generation

    @invariant()
    def no_session_expires_before_the_next_deadline(self) -> None:
        members = self.world.group.members.values()
        first = min((member.deadline_ms for member in members if not member.waits), default=None)
        wake = next_deadline_ms(self.world.group)
        assert first is None or (wake is not None and wake <= first)

    @invariant()
    def waiting_members_are_checked_soon(self) -> None:
        """A response that does not extend the session may be sent at any time."""
        wake = next_deadline_ms(self.world.group)
        if any(member.waits for member in self.world.group.members.values()):
            assert wake is not None and wake <= self.world.now_ms + max(SESSION_MS, SESSION_CHECK_MS)

    @invariant()
    def static_members_are_members(self) -> None:
        group = self.world.group
        for instance, member_id in group.static_members.items():
            assert group.members[member_id].instance_id == instance

    def teardown(self) -> None:
        """Without further requests the group becomes empty, and all waiting requests are answered."""
        self.world.refused = ErrorCode.NONE
        self.world.hold_writes = False
        self.world.commit()
        self.world.advance(20 * REBALANCE_MS)
        assert self.world.group.state is GroupState.EMPTY
        assert all(self.joins) and all(self.syncs)


TestRandomGroup = RandomGroup.TestCase
TestRandomGroup.settings = settings(max_examples=examples(60), stateful_step_count=30)
