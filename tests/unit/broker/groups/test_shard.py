"""A shard writes what its groups decide, and a shard that loads the log has the same groups again."""

from __future__ import annotations

from milena.broker.groups import store
from milena.broker.groups.joining import join
from milena.broker.groups.membership import sync
from milena.broker.groups.model import CommittedOffset, GroupSettings, GroupState, JoinAnswer, JoinRequest
from milena.broker.groups.shard import Shard
from milena.protocol.errors import ErrorCode
from milena.runtime.randomness import Randomness
from tests.unit.broker.groups.hand_log import HandLog
from tests.unit.broker.hand_clock import HandClock

ANSWER_ONE = CommittedOffset(41, 3, "note", 1_000)


class World:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.log = HandLog()
        self.shard = self.new_shard()

    def new_shard(self) -> Shard:
        settings = GroupSettings(initial_delay_ms=0)
        return Shard(self.log, clock=self.clock, random=Randomness(1), settings=settings)

    def join(self, group_id: str) -> JoinAnswer:
        group = self.shard.get_or_create(group_id)
        request = JoinRequest("", None, "c", "/h", 10_000, 60_000, "consumer", (("range", b"m"),), False, True)
        answers: list[JoinAnswer] = []
        join(group, request, answers.append, self.clock.time_ms())
        self.shard.after_request(group)
        sync(
            group,
            member_id=answers[0].member_id,
            instance_id=None,
            generation=answers[0].generation,
            protocol_type=None,
            protocol_name=None,
            assignments={answers[0].member_id: b"share"},
            reply=lambda answer: None,
            now_ms=self.clock.time_ms(),
        )
        return answers[0]

    def reload(self) -> Shard:
        shard = self.new_shard()
        loader = store.Loader(shard.new_group)
        for batch in self.log.batches:
            loader.apply(memoryview(batch))
        shard.take_over(loader.finish(self.clock.time_ms()))
        return shard


def test_a_group_survives_a_restart_with_members_assignment_and_generation() -> None:
    world = World()
    member = world.join("g")
    group = world.reload().groups["g"]
    assert (group.state, group.generation, group.leader_id) == (GroupState.STABLE, 1, member.member_id)
    assert group.members[member.member_id].assignment == b"share"


def test_a_member_that_does_not_come_back_after_a_restart_loses_its_session() -> None:
    world = World()
    world.join("g")
    shard = world.reload()
    world.clock.advance(10.0)
    assert shard.groups["g"].state is GroupState.EMPTY


def test_offsets_are_shown_once_they_are_written_and_survive_a_restart() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    errors: list[ErrorCode] = []
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, errors.append)
    assert errors == [ErrorCode.NOT_COORDINATOR] and not group.offsets
    world.log.error = ErrorCode.NONE
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, errors.append)
    assert group.offsets == world.reload().groups["g"].offsets == {("t", 1): ANSWER_ONE}


def test_a_deleted_group_is_gone_after_a_restart_too() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, lambda error: None)
    world.shard.remove_group(group, lambda error: None)
    assert not world.shard.groups and not world.reload().groups


def test_a_removed_offset_is_gone_after_a_restart_too() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.shard.commit(group, {("t", 1): ANSWER_ONE, ("t", 2): ANSWER_ONE}, lambda error: None)
    world.shard.remove_offsets(group, [("t", 1)], lambda error: None)
    assert list(world.reload().groups["g"].offsets) == [("t", 2)]


def test_a_shard_that_lost_its_partition_writes_nothing_more() -> None:
    world = World()
    group = world.shard.get_or_create("g")
    world.shard.close()
    errors: list[ErrorCode] = []
    world.shard.commit(group, {("t", 1): ANSWER_ONE}, errors.append)
    assert errors == [ErrorCode.NOT_COORDINATOR] and not world.log.batches


def test_a_group_that_nothing_came_of_is_not_kept() -> None:
    world = World()
    world.shard.after_request(world.shard.get_or_create("g"))
    assert not world.shard.groups
