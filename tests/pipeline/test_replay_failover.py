"""The job ``replay`` into a cluster whose leaders are killed during it: each record once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from milena.pipeline.jobs.replay.job import replay
from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import rows
from tests.pipeline.made_tiers import MadeTier, run
from tests.wire.admin import place_topic
from tests.wire.lab import SESSION

COUNT = 600
KEPT = ("key", "value", "partition", "timestamp")
FIRST, SECOND = 1, 2
"""The leaders of the partitions."""


def read_values(**place: object) -> list[list[str]]:
    return [[str(row[name]) for name in KEPT] for row in rows(**place)]


@pytest.mark.timeout(400)
def test_a_replay_continues_with_new_leaders(spark: SparkSession, made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, COUNT, by=50))
    made.add(run(0, COUNT, by=50), number=1)
    place, chosen, folder = {"tier": str(made.folder)}, {"subscribe": "orders"}, str(tmp_path / "replay")
    with LocalCluster.start(tmp_path / "to", brokers=3, overrides=SESSION) as to:
        layout = [[FIRST, SECOND, 3], [SECOND, FIRST, 3]]
        place_topic(to.bootstrap, "orders", layout, {"min.insync.replicas": "2"})
        killed: list[int] = []

        def kill(_: int) -> None:
            """Kill a leader after each of the first two units: the next unit is written to the other broker."""
            if len(killed) < 2:
                if killed:
                    to.restart(killed[-1])
                killed.append(SECOND if killed else FIRST)
                to.kill(killed[-1])

        found = replay(spark, place, chosen, to.bootstrap, folder, rate=COUNT // 10, pace=kill)
        assert (found.offsets, found.records, killed) == (2 * COUNT, 2 * COUNT, [FIRST, SECOND])
        assert read_values(kafka__bootstrap__servers=to.bootstrap) == read_values(tier=made.folder)
