"""Groups are loaded cooperatively; the result is complete, or none if the leadership ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.broker.coordinators import loading
from milena.broker.coordinators.loading import RECORDS_PER_YIELD
from milena.broker.coordinators.partition_log import PIECE_BYTES, PartitionLog
from milena.broker.groups import shard, store
from milena.broker.groups.group import Group
from milena.broker.groups.loading import Loader, load
from milena.broker.groups.model import CommittedOffset, GroupState
from milena.broker.groups.shard import Shard
from milena.protocol.cooperative import Cooperative, run_now
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.coordinator_records import GroupMetadataValue, MemberMetadata
from milena.protocol.types import LeaderEpoch
from tests.unit.broker.fixtures import ME, Bench, led_by
from tests.unit.broker.groups.coordinators import Coordinated
from tests.unit.broker.groups.shards import World

MANY = 2_000


def offset(number: int) -> CommittedOffset:
    return CommittedOffset(number, -1, "", 0)


def offset_record(group: str, partition: int, number: int | None) -> store.KeyValue:
    """``number`` None: a tombstone."""
    (record,) = store.offset_records(group, {("t", partition): None if number is None else offset(number)})
    return record


def generation(number: int, *, members: int = 1, session_ms: int = 10_000) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=number,
        protocol="range",
        leader="m0",
        current_state_timestamp=7,
        members=tuple(
            MemberMetadata(
                member_id=f"m{one}",
                group_instance_id=None,
                client_id="c",
                client_host="/h",
                rebalance_timeout=60_000,
                session_timeout=session_ms,
                subscription=b"s",
                assignment=b"share",
            )
            for one in range(members)
        ),
    )


class Counted:
    """Counts the work of each step of a load."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = self.members = 0
        self.most_records = self.most_members = 0
        record, add, touch = Loader._apply_record, Group.add, Group.touch

        def recorded(loader: Loader, *of_record: Any) -> None:
            self.records += 1
            record(loader, *of_record)

        def counted(method: Callable[..., None]) -> Callable[..., None]:
            def one(*args: Any) -> None:
                self.members += 1
                method(*args)

            return one

        monkeypatch.setattr(Loader, "_apply_record", recorded)
        monkeypatch.setattr(Group, "add", counted(add))
        monkeypatch.setattr(Group, "touch", counted(touch))

    def run(self, steps: Cooperative[None]) -> int:
        """Returns the number of steps."""
        count = 0
        for count, _ in enumerate(self._pausing(steps), 1):  # noqa: B007
            self.most_records = max(self.most_records, self.records)
            self.most_members = max(self.most_members, self.members)
            self.records = self.members = 0
        return count

    @staticmethod
    def _pausing(steps: Cooperative[None]) -> Iterator[None]:
        yield from steps
        yield


@pytest.mark.parametrize("batch", [1, 10, MANY])
def test_a_batch_of_any_size_is_read_cooperatively(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world, counted = World(), Counted(monkeypatch)
    for first in range(0, MANY, batch):
        records = [offset_record("g", one, one) for one in range(first, first + batch)]
        world.log.append(store.batch(records, 0))
    assert counted.run(load(world.log, world.shard)) >= MANY / RECORDS_PER_YIELD
    assert RECORDS_PER_YIELD / 4 < counted.most_records <= RECORDS_PER_YIELD
    assert len(world.shard.groups["g"].offsets) == MANY


def test_many_groups_and_their_sessions_are_created_cooperatively(monkeypatch: pytest.MonkeyPatch) -> None:
    world, counted = World(), Counted(monkeypatch)
    world.log.append(store.batch([store.group_record(f"g{one}", generation(1)) for one in range(MANY)], 0))
    counted.run(load(world.log, world.shard))
    counted.run(world.shard.begin())
    assert RECORDS_PER_YIELD / 4 < counted.most_members <= RECORDS_PER_YIELD
    assert (len(world.shard.groups), world.clock.armed()) == (MANY, MANY)


def test_a_record_of_many_members_uses_more_of_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    world, counted = World(), Counted(monkeypatch)
    for number in range(20):
        world.log.append(store.batch([store.group_record(f"g{number}", generation(1, members=RECORDS_PER_YIELD))], 0))
    counted.run(load(world.log, world.shard))
    assert counted.most_records <= 2
    assert counted.most_members <= RECORDS_PER_YIELD, "a group is made at once, and no other in the same step"


def test_the_shard_gets_all_groups_or_none() -> None:
    world = World()
    world.log.append(store.batch([offset_record(f"g{one}", 0, one) for one in range(MANY)], 0))
    seen = {len(world.shard.groups) for _ in load(world.log, world.shard)}
    assert (seen, len(world.shard.groups)) == ({0}, MANY)


class TestSessions:
    def loaded(self) -> World:
        """A load that takes longer than a session."""
        world = World()
        world.log.append(store.batch([store.group_record("g", generation(1, members=2))], 0))
        run_now(load(world.log, world.shard))
        world.clock.advance(60.0)
        return world

    def test_sessions_begin_after_the_load(self) -> None:
        world = self.loaded()
        run_now(world.shard.begin())
        seen = []
        for seconds in (9.0, 2.0):
            world.clock.advance(seconds)
            seen.append(world.shard.groups["g"].state)
        assert seen == [GroupState.STABLE, GroupState.EMPTY]

    def test_a_request_before_that_keeps_the_other_sessions(self) -> None:
        world = self.loaded()
        group = world.shard.groups["g"]
        first, second = group.members.values()
        world.shard.attempt(group, lambda: group.touch(first, world.clock.time_ms()))
        world.clock.advance(5.0)
        run_now(world.shard.begin())
        assert second.deadline_ms - first.deadline_ms == 5_000, "its own has begun with the request"

    def test_a_group_deleted_in_between_has_no_timer(self) -> None:
        world = self.loaded()
        world.shard.remove_group(world.shard.groups["g"], lambda error: None)
        run_now(world.shard.begin())
        assert world.clock.armed() == 0


class TestPieces:
    def test_a_large_log_is_loaded_in_pieces(self, bench: Bench) -> None:
        partition = bench.led("__consumer_offsets")
        log = PartitionLog(partition, LeaderEpoch(0), commit_timeout_ms=1000, load_bytes=1 << 20)
        for first in range(0, MANY, 100):
            log.append(store.batch([offset_record("g", one, one) for one in range(first, first + 100)], 0))
        pieces = list(log.pieces())
        assert len(pieces) > 1 and all(len(piece) <= PIECE_BYTES for piece in pieces)
        ends = [one.next_offset for piece in pieces for one in iter_batches(piece)]
        assert ends == list(range(100, MANY + 1, 100))

    def test_a_failed_log_directory_ends_the_read(self, bench: Bench) -> None:
        partition = bench.led("__consumer_offsets")
        log = PartitionLog(partition, LeaderEpoch(0), commit_timeout_ms=1000, load_bytes=1)
        log.append(store.batch([offset_record("g", one, one) for one in range(MANY)], 0))
        log.append(store.batch([offset_record("g", 0, None)], 0))
        pieces = log.pieces()
        next(pieces)
        partition.take_offline()
        with pytest.raises(KafkaError):
            next(pieces)


class TestLeadershipThatEnds:
    """A load checks the leadership at each step."""

    def begin(self, coordinated: Coordinated, turns: int) -> tuple[Iterator[None], Shard]:
        shard = coordinated.groups.shard("g")
        for first in range(0, 3 * RECORDS_PER_YIELD, RECORDS_PER_YIELD):
            some = {("t", first + one): offset(one) for one in range(RECORDS_PER_YIELD)}
            shard.commit(shard.get_or_create("g"), some, lambda error: None)
        coordinated.elect()
        (task,) = coordinated.tasks.running
        coordinated.tasks.running.clear()
        steps = iter(task.__await__())
        for _ in range(turns):
            next(steps)
        return steps, coordinated.groups._led[0].shard

    def turns(self, coordinated: Coordinated) -> int:
        steps, shard = self.begin(coordinated, 1)
        return 1 + sum(1 for _ in steps if not shard.groups)

    @pytest.mark.parametrize("turn", range(1, 5))
    @pytest.mark.parametrize("how", ["resigned", "elected again", "an unreported epoch"])
    def test_an_ended_leadership_stops_the_load_and_leaves_no_state(
        self, coordinated: Coordinated, turn: int, how: str
    ) -> None:
        steps, shard = self.begin(coordinated, turn)
        if how == "resigned":
            coordinated.groups.resigned(0)
        elif how == "elected again":
            coordinated.elect()
        else:
            coordinated.partition.become(led_by(ME, leader_epoch=coordinated.epoch + 1))
        assert list(steps) == [], "it ends with its next turn"
        assert (shard.groups, shard.closed) == ({}, True)
        assert coordinated.groups.groups() == []
        with pytest.raises(KafkaError) as refused:
            coordinated.groups.shard("g")
        again = how == "elected again"
        expected = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if again else ErrorCode.NOT_COORDINATOR
        assert refused.value.code is expected
        coordinated.tasks.run()
        if again:
            assert len(coordinated.groups.shard("g").groups["g"].offsets) == 3 * RECORDS_PER_YIELD

    def test_the_load_has_as_many_turns_as_are_tested(self, coordinated: Coordinated) -> None:
        assert self.turns(coordinated) == 5


# -- beside an oracle

NAMES = st.sampled_from(["a", "b", "c"])
CHANGES = st.one_of(
    st.tuples(st.just("offset"), NAMES, st.integers(0, 3), st.none() | st.integers(0, 9)),
    st.tuples(st.just("group"), NAMES, st.none() | st.integers(1, 9), st.integers(0, 3)),
)


@given(st.lists(st.lists(CHANGES, max_size=6), max_size=8), st.integers(1, 4))
def test_a_cooperative_load_finds_the_last_record_of_each_key(batches: list[list[Any]], size: int) -> None:
    world = World()
    offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
    generations: dict[str, GroupMetadataValue] = {}
    for batch in batches:
        records = []
        for kind, name, first, second in batch:
            if kind == "offset":
                records.append(offset_record(name, first, second))
                offsets.setdefault(name, {}).pop(("t", first), None)
                if second is not None:
                    offsets[name]["t", first] = offset(second)
            elif first is None:
                records.append(store.group_tombstone(name))
                generations.pop(name, None)
            else:
                records.append(store.group_record(name, generation(first, members=second)))
                generations[name] = generation(first, members=second)
        if records:
            world.log.append(store.batch(records, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "RECORDS_PER_YIELD", size)
        patch.setattr(shard, "SESSIONS_PER_YIELD", size)
        for steps in (load(world.log, world.shard), world.shard.begin()):
            for _ in steps:
                pass
    groups = world.shard.groups
    assert {name: group.offsets for name, group in groups.items() if group.offsets} == {
        name: loaded for name, loaded in offsets.items() if loaded
    }
    assert {name: group.logged for name, group in groups.items() if group.logged} == generations
    assert groups.keys() == generations.keys() | {name for name, loaded in offsets.items() if loaded}
    for name, group in groups.items():
        assert group.group_id == name and group.logged_end == world.log.end
        members = generations[name].members if name in generations else ()
        assert list(group.members) == [one.member_id for one in members]
        now = world.clock.time_ms()
        assert [one.deadline_ms for one in group.members.values()] == [now + one.session_timeout for one in members]
        assert group.state is (GroupState.STABLE if members else GroupState.EMPTY)
