"""GroupCoordinator: loading of partitions, and deleted topics."""

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


def test_offsets_are_loaded_in_the_next_leader_epoch(coordinated: Coordinated) -> None:
    assert coordinated.commit(5, OLD) is ErrorCode.NONE
    coordinated.elect()
    with pytest.raises(KafkaError):
        coordinated.groups.shard("g")
    coordinated.tasks.run()
    assert coordinated.offsets() == {"t": 5}


@pytest.mark.parametrize("known", [ZERO_UUID, OLD])
def test_offsets_of_a_topic_deleted_during_the_load_are_removed(coordinated: Coordinated, known: UUID) -> None:
    coordinated.commit(5, known)
    coordinated.commit(6, NEW, "u")
    coordinated.elect()
    coordinated.groups.topics_deleted({OLD: "t"})
    coordinated.tasks.run()
    assert coordinated.offsets() == {"u": 6}
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {"u": 6}, "for good"


def test_offsets_of_a_later_topic_of_the_same_name_stay(coordinated: Coordinated) -> None:
    coordinated.commit(9, NEW)
    coordinated.groups.topics_deleted({OLD: "t"})
    assert coordinated.offsets() == {"t": 9}


def test_a_recreated_topic_has_no_offsets_of_the_earlier_one(bench: Bench) -> None:
    """For example, the coordinator was down when the topic was deleted."""
    groups = Groups(bench)
    groups.commit(9, 0)
    bench.image.topics_by_id.pop(groups.topic.id)
    bench.topic("other")
    groups.topic = bench.topic("t", led_by(ME), led_by(ME))
    assert [groups.fetched(version=version) for version in (8, 9, 10)] == [-1, -1, -1]
    groups.commit(9, 0, offset=1)
    assert [groups.fetched(version=version) for version in (8, 9, 10)] == [1, 1, 1]


def test_a_leader_that_continues_in_the_next_epoch_keeps_its_groups(coordinated: Coordinated) -> None:
    coordinated.commit(5)
    group = coordinated.groups.shard("g").groups["g"]
    coordinated.elect(1)
    assert coordinated.groups.shard("g").groups["g"] is group
    assert coordinated.commit(6) is ErrorCode.NONE and coordinated.offsets() == {"t": 6}
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {"t": 6}


def test_a_coordinator_with_an_old_epoch_refuses_writes(coordinated: Coordinated) -> None:
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


def test_offsets_are_removed_with_their_topic(coordinated: Coordinated) -> None:
    coordinated.commit(9, OLD)
    coordinated.commit(6, NEW, "u")
    coordinated.groups.topics_deleted({OLD: "t"})
    assert coordinated.offsets() == {"u": 6}


def test_old_offsets_expire(coordinated: Coordinated) -> None:
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
def test_a_shard_of_an_ended_leadership_is_closed(coordinated: Coordinated, how: str) -> None:
    shard = coordinated.groups.shard("g")
    if how == "resigned":
        coordinated.groups.resigned(0)
    else:
        coordinated.elect()
    results: list[ErrorCode] = []
    shard.when_all_committed(results.append)
    assert (shard.closed, results) == (True, [ErrorCode.NOT_COORDINATOR])
    loading = how == "elected again"
    assert refusal(coordinated) is (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR)
    coordinated.tasks.run()


@pytest.mark.parametrize(("error", "noted"), [(CorruptBatch("damaged"), 0), (ValueError("a mistake"), 1)])
def test_a_partition_that_cannot_be_loaded_is_not_coordinated_and_unexpected_errors_are_logged(
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


def test_groups_are_listed_once_every_partition_is_loaded(coordinated: Coordinated) -> None:
    assert len(list(coordinated.groups.shards())) == 1
    coordinated.groups.elected(1, LeaderEpoch(coordinated.epoch), coordinated.partition)
    with pytest.raises(KafkaError) as refused:
        coordinated.groups.shards()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    coordinated.tasks.run()
    assert len(list(coordinated.groups.shards())) == 2
