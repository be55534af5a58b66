"""A topic whose segments retention has deleted still exists, and so does a new one of which nothing is in the tier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from milena.pipeline.catalogue import copied_end
from milena.pipeline.errors import PipelineError
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import source_options
from milena.pipeline.planning import Stretch
from milena.pipeline.plans import NoSuchTopic, Ranges, TierPlan, ranges_of, tasks_of
from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import TopicIdPartition
from tests.pipeline.made_tiers import MadeTier, run


@pytest.fixture
def made(tmp_path: Path) -> MadeTier:
    found = MadeTier(tmp_path / "tier")
    found.folder.mkdir()
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The log directory of broker 1."""
    return tmp_path / "data"


def planned(made: MadeTier, data: Path | None, **options: str) -> tuple[Ranges, list[tuple[Stretch, ...]]]:
    """Return the offsets that a batch reads of each partition, and its tasks."""
    place = {"tier": str(made.folder)} | ({} if data is None else {"metadata": str(made.metadata(data))})
    with LoopThread() as loop:
        plan = TierPlan(loop, source_options({**place, "subscribe": "orders", **options}))
        every = plan.partitions()
        ranges = ranges_of(plan, every, every)
        return ranges, tasks_of(plan, {one: ranges[one.topic, one.partition] for one in every}, None)


def test_an_emptied_topic_begins_and_ends_where_the_deleted_segments_ended(made: MadeTier, data: Path) -> None:
    for one in (made.add(run(0, 60)), made.add(run(60, 100))):
        made.deleted(one)
    made.replica(data, run(100, 130), log_start=100)
    assert planned(made, data) == ({("orders", 0): (100, 100)}, [])


def test_healthy_topics_are_read_beside_an_emptied_one(made: MadeTier, data: Path) -> None:
    made.add(run(0, 40), topic="clicks")
    made.deleted(made.add(run(0, 100)))
    made.replica(data, [], log_start=100)
    for chosen in ({"subscribe": "clicks,orders"}, {"subscribe": "", "subscribePattern": "clicks|orders"}):
        ranges, tasks = planned(made, data, **chosen)
        assert ranges == {("clicks", 0): (0, 40), ("orders", 0): (100, 100)}
        assert [(one.partition.topic, one.first, one.last) for task in tasks for one in task] == [("clicks", 0, 39)]


def test_an_emptied_partition_of_a_topic_with_segments_exists(made: MadeTier, data: Path) -> None:
    made.add(run(0, 40), number=1)
    made.deleted(made.add(run(0, 100)))
    made.replica(data, [], log_start=100)
    assert planned(made, data)[0] == {("orders", 0): (100, 100), ("orders", 1): (0, 40)}
    assert planned(made, data, subscribe="", assign='{"orders":[0]}')[0] == {("orders", 0): (100, 100)}


def test_records_deleted_beyond_the_last_copy_move_the_first_offset(made: MadeTier, data: Path) -> None:
    made.add(run(0, 100))
    made.replica(data, run(100, 200), log_start=150)  # DeleteRecords; the segment is still in the tier
    assert planned(made, data)[0] == {("orders", 0): (150, 150)}


def test_a_topic_that_was_deleted_does_not_exist_any_more(made: MadeTier, data: Path) -> None:
    made.deleted(made.add(run(0, 100)))
    data.mkdir()
    with pytest.raises(NoSuchTopic, match=r"there is no topic orders; .*; if it exists, nothing of it is in the tier"):
        planned(made, data)


def test_an_emptied_topic_whose_leader_is_on_another_machine_counts_as_existing(made: MadeTier, data: Path) -> None:
    segment = made.add(run(0, 100))
    made.events = [replace(one, leader_epoch=LeaderEpoch(0), broker_id=NodeId(2)) for one in made.events]
    made.deleted(segment)
    assert planned(made, data)[0] == {("orders", 0): (100, 100)}
    made.events = [replace(one, leader_epoch=LeaderEpoch(1), broker_id=NodeId(1)) for one in made.events]
    with pytest.raises(NoSuchTopic):  # broker 1 has led it, and has no replica
        planned(made, data)


class OtherIds(MadeTier):
    def partition(self, topic: str = "orders", number: int = 0) -> TopicIdPartition:
        return replace(super().partition(topic, number), topic_id=UUID(int=99))


def test_the_topic_with_a_replica_is_read_and_not_its_deleted_predecessor(made: MadeTier, data: Path) -> None:
    made.add(run(0, 100))
    other = OtherIds(made.folder, made.events, made.made)
    other.replica(data, run(0, 30))
    assert planned(other, data)[0] == {("orders", 0): (0, 0)}
    other.add(run(0, 20))
    assert planned(other, data)[0] == {("orders", 0): (0, 20)}


def test_a_new_topic_has_no_rows_and_one_warning_says_why(made: MadeTier, data: Path) -> None:
    made.add(run(0, 40), topic="clicks")
    made.replica(data, run(0, 30))
    with capture_logs() as logs:
        for _ in range(2):
            ranges, tasks = planned(made, data, subscribe="clicks,orders")
    assert ranges == {("clicks", 0): (0, 40), ("orders", 0): (0, 0)} and len(tasks) == 1
    assert [(one["event"], one["topic"]) for one in logs] == [("nothing of it is in the tier yet", "orders")]


def test_a_pattern_does_not_choose_topics_of_which_the_tier_never_had_anything(made: MadeTier, data: Path) -> None:
    made.add(run(0, 40), topic="clicks")
    made.replica(data, run(0, 30))
    assert planned(made, data, subscribe="", subscribePattern=".*")[0] == {("clicks", 0): (0, 40)}


def test_without_metadata_an_absent_topic_is_an_error_that_names_both_causes(made: MadeTier) -> None:
    made.add(run(0, 40), topic="clicks")
    sentence = "there is no topic orders; there are clicks; if it exists, nothing of it is in the tier yet"
    with pytest.raises(PipelineError, match=sentence):
        planned(made, None)


@pytest.mark.parametrize(
    ("highest", "epochs", "expected"),
    [
        ({}, None, 0),
        ({}, {0: 0}, 0),
        ({0: 99}, None, 100),
        ({0: 99, 2: 59}, None, 60),
        ({0: 99, 2: 59}, {0: 0, 2: 50}, 60),
        ({0: 99}, {0: 0, 2: 50}, 50),
        ({0: 99, 1: 120}, {0: 0, 2: 110}, 100),
        ({0: 199}, {0: 0}, 115),
    ],
)
def test_the_end_of_what_was_copied_is_that_of_the_epoch_chain(
    highest: dict[int, int], epochs: dict[int, int] | None, expected: int
) -> None:
    cache = RemoteLogMetadataCache.restored((), {LeaderEpoch(one): Offset(last) for one, last in highest.items()})
    entries = [EpochEntry(LeaderEpoch(epoch), Offset(start)) for epoch, start in (epochs or {}).items()]
    lineage = None if epochs is None else Lineage(tuple(entries), Offset(115), "a test")
    assert copied_end(cache, lineage) == expected
