"""The job ``replay`` writes each record with all its fields once to the other cluster, also after an interruption."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from milena.commands.pipeline.running import Pace
from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.replay import job
from milena.pipeline.jobs.replay.job import Replayed, ordered, replay, split_unit, without_written
from milena.pipeline.jobs.units import Unit
from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import Row, rows
from tests.pipeline.made_tiers import MadeTier, run
from tests.wire.admin import create_topic

HEADERS = (("h", b"1"), ("n", None))
KEPT = ("key", "value", "partition", "timestamp", "headers")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("replay"), brokers=1) as found:
        yield found


def kept_columns(found: list[Row]) -> list[tuple[object, ...]]:
    return [tuple(str(row[name]) for name in KEPT) for row in found]


def test_a_replay_that_was_killed_in_the_middle_of_a_unit_writes_each_record_once(
    spark: SparkSession, made: MadeTier, running: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(running.bootstrap, "orders", partitions=2)
    made.add(run(0, 100, headers=HEADERS))
    made.add(run(0, 60, headers=HEADERS), number=1)
    place, chosen, folder = {"tier": str(made.folder)}, {"subscribe": "orders"}, str(tmp_path / "replay")

    def half(*arguments: object) -> object:
        return ordered(without_written(*arguments).where("partition = 1 or offset < 37"))  # type: ignore[arg-type]

    def killed(self: object, unit: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(job, "without_written", half)
        patch.setattr("milena.pipeline.jobs.results.Results.done", killed)
        replay(spark, place, chosen, running.bootstrap, folder)
    assert len(rows(kafka__bootstrap__servers=running.bootstrap)) == 97
    waits: list[int] = []
    result = replay(spark, place, chosen, running.bootstrap, folder, pace=waits.append)
    assert (result, waits) == (Replayed(160, 63), [63])
    there = rows(kafka__bootstrap__servers=running.bootstrap, includeHeaders=True)
    assert kept_columns(there) == kept_columns(rows(tier=made.folder, includeHeaders=True))
    made.add(run(100, 120))
    assert replay(spark, place, chosen, running.bootstrap, folder) == Replayed(20, 20)
    with pytest.raises(PipelineError, match=r"contains a job that was started with tier=.*to=127"):
        replay(spark, place, chosen, "127.0.0.1:1", folder)


def test_the_error_names_topics_and_partitions_that_the_other_cluster_lacks(
    spark: SparkSession, made: MadeTier, running: LocalCluster, tmp_path: Path
) -> None:
    made.add(run(0, 10), topic="clicks", number=3)
    place, chosen = {"tier": str(made.folder)}, {"subscribe": "clicks"}
    with pytest.raises(PipelineError, match=r"there is no topic clicks at .*: create it"):
        replay(spark, place, chosen, running.bootstrap, str(tmp_path / "one"))
    create_topic(running.bootstrap, "clicks", partitions=2)
    with pytest.raises(PipelineError, match="has 2 partitions, but there are records of partition 3"):
        replay(spark, place, chosen, running.bootstrap, str(tmp_path / "one"))


def test_units_are_split_for_a_limited_rate() -> None:
    unit = Unit({("a", 0): (0, 100), ("b", 0): (5, 15)}, 1100)
    parts = list(split_unit(unit, 60))
    assert [part.ranges for part in parts] == [
        {("a", 0): (0, 30), ("b", 0): (5, 15)},
        {("a", 0): (30, 60)},
        {("a", 0): (60, 90)},
        {("a", 0): (90, 100)},
    ]
    assert sum(part.size for part in parts) == 1100


def test_the_rate_limit_delays_units(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    waited: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", waited.append)
    pace = Pace(50)
    pace(100)
    now[0] = 103.0
    pace(100)
    Pace(0)(10_000)
    assert waited == [2.0, 1.0]
