"""Deleted groups and closed shards: responses, writes, and no remaining timers."""

from __future__ import annotations

import pytest

from milena.broker.groups.joining import join
from milena.broker.groups.membership import heartbeat, leave
from milena.broker.groups.model import CommittedOffset, GroupState, JoinAnswer, JoinRequest
from milena.protocol.errors import ErrorCode
from milena.protocol.records.consumer_protocol import Subscription, encode_consumer_message
from tests.unit.broker.groups.shards import ANSWER_ONE, World

SESSION = 10.0


def nothing(error: ErrorCode) -> None:
    pass


def joining(world: World, *, known_id_needed: bool = False, session_ms: int = 10_000) -> list[JoinAnswer]:
    group = world.shard.get_or_create("g")
    answers: list[JoinAnswer] = []
    read = encode_consumer_message(Subscription(topics=("read",)))
    request = JoinRequest(
        "", None, "c", "/h", session_ms, 60_000, "consumer", (("range", read),), known_id_needed, True
    )
    world.shard.attempt(group, lambda: join(group, request, answers.append, world.clock.time_ms()))
    return answers


def test_attempt_returns_whether_the_step_succeeded() -> None:
    world = World()
    group = world.shard.get_or_create("g")

    def fail() -> None:
        raise ZeroDivisionError

    assert (world.shard.attempt(group, lambda: None), world.shard.attempt(group, fail)) == (True, False)


class TestClosing:
    def test_waiting_requests_are_answered_and_groups_and_timers_removed(self) -> None:
        world = World()
        world.join("g")
        waiting = joining(world)
        assert waiting == [] and world.clock.armed() == 1
        world.shard.close()
        assert [answer.error for answer in waiting] == [ErrorCode.NOT_COORDINATOR]
        assert (world.shard.groups, world.clock.armed()) == ({}, 0)

    def test_later_requests_are_refused(self) -> None:
        world = World()
        world.shard.close()
        results: list[ErrorCode] = []
        world.shard.when_all_committed(results.append)
        assert results == [ErrorCode.NOT_COORDINATOR]


class TestForgetting:
    def test_a_deleted_group_with_only_a_generation_does_not_exist_after_a_restart(self) -> None:
        world = World()
        world.join("g")
        world.clock.advance(SESSION)
        group = world.shard.groups["g"]
        assert (group.state, group.offsets) == (GroupState.EMPTY, {})
        world.shard.remove_group(group, nothing)
        assert group.state is GroupState.DEAD
        assert (world.shard.groups, world.reload().groups) == ({}, {})

    def test_pending_ids_are_removed_and_waiting_requests_answered(self) -> None:
        world = World()
        world.shard.commit(world.shard.get_or_create("g"), {("t", 1): ANSWER_ONE}, nothing)
        joining(world, known_id_needed=True)
        waiting = joining(world)
        group = world.shard.groups["g"]
        assert (len(group.pending_members), waiting) == (1, []) and world.clock.armed() == 1
        world.shard.remove_group(group, nothing)
        assert (len(group.pending_members), world.clock.armed()) == (0, 0)
        assert [answer.error for answer in waiting] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]

    def test_a_removed_group_gets_no_timer(self) -> None:
        world = World()
        world.join("g")
        group = world.shard.groups["g"]
        world.shard.remove_group(group, nothing)
        group.empty_write_retry_ms = world.clock.time_ms()
        world.shard.arm(group)
        assert world.clock.armed() == 0

    def test_a_commit_that_is_refused_leaves_no_group_behind(self) -> None:
        world = World()
        world.log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        world.shard.commit(world.shard.get_or_create("g"), {("t", 1): ANSWER_ONE}, nothing)
        assert world.shard.groups == {}

    def test_a_group_whose_last_pending_id_expires_leaves_no_timer(self) -> None:
        world = World()
        joining(world, known_id_needed=True)
        assert world.clock.armed() == 1
        world.clock.advance(SESSION)
        assert (world.shard.groups, world.clock.armed()) == ({}, 0)

    def test_a_group_whose_last_pending_id_is_removed_leaves_no_timer(self) -> None:
        world = World()
        (given,) = joining(world, known_id_needed=True)
        group = world.shard.groups["g"]
        give_back = {"member_id": given.member_id, "instance_id": None, "now_ms": world.clock.time_ms()}
        world.shard.attempt(group, lambda: leave(group, **give_back))  # type: ignore[arg-type]
        assert (world.shard.groups, world.clock.armed()) == ({}, 0)

    def test_removing_no_offset_writes_nothing(self) -> None:
        world = World()
        results: list[ErrorCode] = []
        world.shard.remove_offsets(world.shard.get_or_create("g"), [], results.append)
        assert (results, world.log.batches) == ([ErrorCode.NONE], [])


class TestExpiry:
    def expire(self, world: World, retention_ms: int) -> None:
        for _ in world.shard.expire_offsets(retention_ms):
            pass

    def committed(self, world: World, *ages_ms: int) -> None:
        """Commit an offset of each age, for topics ``t0``, ``t1``, ..."""
        world.clock.advance(1)
        now = world.clock.time_ms()
        offsets = {(f"t{at}", 0): CommittedOffset(1, -1, "", now - age) for at, age in enumerate(ages_ms)}
        world.shard.commit(world.shard.get_or_create("g"), offsets, nothing)

    @pytest.mark.parametrize(("ages", "left"), [((100, 50), [("t1", 0)]), ((50, 50), [("t0", 0), ("t1", 0)])])
    def test_only_old_offsets_are_removed(self, ages: tuple[int, ...], left: list[tuple[str, int]]) -> None:
        world = World()
        self.committed(world, *ages)
        self.expire(world, 100)
        assert list(world.shard.groups["g"].offsets) == list(world.reload().groups["g"].offsets) == left

    def test_a_group_is_removed_with_its_last_offset(self) -> None:
        world = World()
        self.committed(world, 100, 100)
        self.expire(world, 100)
        assert (world.shard.groups, world.reload().groups) == ({}, {})

    def test_a_group_with_members_loses_offsets_and_stays(self) -> None:
        world = World()
        self.committed(world, 100)
        (member,) = joining(world)
        group = world.shard.groups["g"]
        group.move_to(GroupState.STABLE, world.clock.time_ms())
        self.expire(world, 100)
        assert (group.offsets, list(group.members), group.state) == ({}, [member.member_id], GroupState.STABLE)


class TestTime:
    def test_a_session_extended_after_a_write_expires_in_time(self) -> None:
        world = World()
        world.log.hold = True
        world.join("g")
        world.clock.advance(SESSION)
        group = world.shard.groups["g"]
        assert len(group.members) == 1, "it waits for its share"
        world.log.commit()
        assert group.state is GroupState.STABLE
        world.clock.advance(SESSION)
        assert group.members == {}

    def test_an_earlier_deadline_replaces_the_timer(self) -> None:
        world = World()
        joining(world, known_id_needed=True)
        joining(world, known_id_needed=True, session_ms=5_000)
        assert world.clock.armed() == 1
        world.clock.advance(5)
        assert len(world.shard.groups["g"].pending_members) == 1

    def test_an_extended_deadline_is_met_later(self) -> None:
        world = World()
        member = world.join("g")
        group = world.shard.groups["g"]
        world.shard.after_request(group)
        world.clock.advance(SESSION / 2)
        beat = {"member_id": member.member_id, "generation": member.generation}
        assert heartbeat(group, instance_id=None, now_ms=world.clock.time_ms(), **beat) is ErrorCode.NONE  # type: ignore[arg-type]
        world.clock.advance(SESSION - 0.1)
        assert list(group.members) == [member.member_id]
        world.clock.advance(0.1)
        assert group.members == {}
