"""Partitions of ``__consumer_offsets`` under their coordinator: loading them, and topics that go meanwhile."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.broker.groups.loading import Loader
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.types import ZERO_UUID, LeaderEpoch
from tests.unit.broker.fixtures import ME, Bench, led_by
from tests.unit.broker.groups.coordinators import NEW, OLD, Coordinated
from tests.unit.broker.groups.served import Groups


def test_offsets_come_back_with_the_next_leader_epoch(coordinated: Coordinated) -> None:
    assert coordinated.commit(5, OLD) is ErrorCode.NONE
    coordinated.elect()
    with pytest.raises(KafkaError):
        coordinated.groups.shard("g")
    coordinated.tasks.run()
    assert coordinated.offsets() == {"t": 5}


@pytest.mark.parametrize("known", [ZERO_UUID, OLD])
def test_a_topic_deleted_while_its_offsets_are_loaded_leaves_none(coordinated: Coordinated, known: UUID) -> None:
    coordinated.commit(5, known)
    coordinated.commit(6, NEW, "u")
    coordinated.elect()
    coordinated.groups.topics_deleted({OLD: "t"})
    coordinated.tasks.run()
    assert coordinated.offsets() == {"u": 6}
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {"u": 6}, "for good"


def test_the_offsets_of_a_later_topic_of_the_name_stay(coordinated: Coordinated) -> None:
    coordinated.commit(9, NEW)
    coordinated.groups.topics_deleted({OLD: "t"})
    assert coordinated.offsets() == {"t": 9}


def test_a_topic_made_again_shows_no_offset_of_the_one_before(bench: Bench) -> None:
    """The one who should have removed it was down, say, when the topic was deleted."""
    groups = Groups(bench)
    groups.commit(9, 0)
    bench.image.topics_by_id.pop(groups.topic.id)
    bench.topic("other")
    groups.topic = bench.topic("t", led_by(ME), led_by(ME))
    assert [groups.fetched(version=version) for version in (8, 9, 10)] == [-1, -1, -1]
    groups.commit(9, 0, offset=1)
    assert [groups.fetched(version=version) for version in (8, 9, 10)] == [1, 1, 1]


def test_a_leader_that_goes_on_in_the_next_epoch_keeps_its_groups(coordinated: Coordinated) -> None:
    coordinated.commit(5)
    group = coordinated.groups.shard("g").groups["g"]
    coordinated.elect(1)
    assert coordinated.groups.shard("g").groups["g"] is group
    assert coordinated.commit(6) is ErrorCode.NONE and coordinated.offsets() == {"t": 6}
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {"t": 6}


def test_a_coordinator_that_lost_its_epoch_writes_and_promises_nothing(coordinated: Coordinated) -> None:
    shard = coordinated.groups.shard("g")
    coordinated.partition.become(led_by(ME, leader_epoch=9))
    assert coordinated.commit(5) is ErrorCode.NOT_COORDINATOR
    errors: list[ErrorCode] = []
    shard.when_all_committed(errors.append)
    assert errors == [ErrorCode.NOT_COORDINATOR]


def refusal(coordinated: Coordinated) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        coordinated.groups.shard("g")
    return refused.value.code


def test_the_offsets_of_a_topic_go_with_it(coordinated: Coordinated) -> None:
    coordinated.commit(9, OLD)
    coordinated.commit(6, NEW, "u")
    coordinated.groups.topics_deleted({OLD: "t"})
    assert coordinated.offsets() == {"u": 6}


def test_offsets_that_nobody_has_needed_for_long_expire_by_themselves(coordinated: Coordinated) -> None:
    coordinated.commit(9)
    coordinated.groups.start()
    (expire,) = coordinated.tasks.kept
    turns = expire().__await__()
    next(turns)
    assert coordinated.offsets() == {"t": 9}
    next(turns)
    assert coordinated.offsets() == {}
    turns.close()


@pytest.mark.parametrize("how", ["resigned", "elected again"])
def test_the_groups_of_a_leadership_that_is_over_answer_nobody_any_more(coordinated: Coordinated, how: str) -> None:
    shard = coordinated.groups.shard("g")
    if how == "resigned":
        coordinated.groups.resigned(0)
    else:
        coordinated.elect()
    told: list[ErrorCode] = []
    shard.when_all_committed(told.append)
    assert (shard.closed, told) == (True, [ErrorCode.NOT_COORDINATOR])
    loading = how == "elected again"
    assert refusal(coordinated) is (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)
    coordinated.tasks.run()


@pytest.mark.parametrize(("error", "noted"), [(CorruptBatch("damaged"), 0), (ValueError("a mistake"), 1)])
def test_a_partition_that_cannot_be_read_is_not_coordinated_and_a_mistake_is_noted(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch, error: Exception, noted: int
) -> None:
    def fail(self: Loader, data: memoryview) -> None:
        raise error

    coordinated.commit(5)
    monkeypatch.setattr(Loader, "apply", fail)
    coordinated.elect()
    coordinated.tasks.run()
    assert refusal(coordinated) is ErrorCode.NOT_COORDINATOR
    assert len(coordinated.noted) == noted


def test_all_groups_are_told_of_once_every_partition_is_loaded(coordinated: Coordinated) -> None:
    assert len(list(coordinated.groups.shards())) == 1
    coordinated.groups.elected(1, LeaderEpoch(coordinated.epoch), coordinated.partition)
    with pytest.raises(KafkaError) as refused:
        coordinated.groups.shards()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinated.tasks.run()
    assert len(list(coordinated.groups.shards())) == 2
