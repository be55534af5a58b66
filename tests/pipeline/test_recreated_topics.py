"""A topic that is deleted and created again has other records at the same offsets: none is read as an old record."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from milena.pipeline.errors import DataLoss, PipelineError, TopicGone
from milena.pipeline.jobs.export.commits import STAGING, Export
from milena.pipeline.jobs.export.job import export
from milena.pipeline.jobs.replay import job
from milena.pipeline.jobs.results import Results
from milena.pipeline.jobs.units import Unit, planned
from milena.pipeline.options import source_options
from milena.pipeline.position import Position
from milena.pipeline.reading import Task
from milena.pipeline.source import MilenaReader
from milena.protocol.uuids import to_text
from milena.testing.local_cluster import LocalCluster
from milena.tiered.segments.segment_metadata import TopicIdPartition
from tests.pipeline.in_process import offsets, reader_of, tasks
from tests.pipeline.made_tiers import MadeTier, run
from tests.wire.admin import create_topic
from tests.wire.waiting import wait_until


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path_factory.mktemp("recreated"), brokers=1) as found:
        yield found


def filled(running: LocalCluster, topic: str, value: bytes) -> None:
    create_topic(running.bootstrap, topic, partitions=1)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for _ in range(100):
        producer.produce(topic, value, partition=0)
    producer.flush(30)


def deleted(running: LocalCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.delete_topics([topic], operation_timeout=10)[topic].result(20)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")


def values(reader: MilenaReader, every: list[Task]) -> list[bytes]:
    return [row["value"] for task in every for made in reader.read(task) for row in made.to_pylist()]


def test_a_topic_that_is_recreated_between_planning_and_reading_is_a_loss(running: LocalCluster) -> None:
    filled(running, "orders", b"old")
    options = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": "orders"}
    strict, lenient = reader_of(**options), reader_of(**options, failOnDataLoss="false")
    first, other = tasks(strict), tasks(lenient)
    assert values(strict, first) == [b"old"] * 100
    deleted(running, "orders")
    filled(running, "orders", b"new")
    with pytest.raises(DataLoss, match=r"topic orders was deleted and created again: it had the id .*, and has .* now"):
        values(strict, first)
    assert values(lenient, other) == []


class OtherIds(MadeTier):
    def partition(self, topic: str = "orders", number: int = 0) -> TopicIdPartition:
        return replace(super().partition(topic, number), topic_id=UUID(int=99))


def recreate_topic(made: MadeTier, end: int) -> None:
    """Delete the topic and create it again with the offsets up to ``end``."""
    shutil.rmtree(made.folder)
    OtherIds(made.folder).add(run(0, end))


def units_of(made: MadeTier) -> list[Unit]:
    return planned(source_options({"tier": str(made.folder), "subscribe": "orders"}), Position(), 1 << 20)


def test_a_unit_is_only_read_from_the_topic_id_for_which_it_was_planned(made: MadeTier) -> None:
    made.add(run(0, 100))
    kept = json.loads(json.dumps(units_of(made)[0].plain()))
    options = {"tier": made.folder, **{f"{side}Offsets": json.dumps(kept[side]) for side in ("starting", "ending")}}
    assert offsets(**options) == list(range(100))
    recreate_topic(made, 150)
    with pytest.raises(DataLoss, match="topic orders was deleted and created again"):
        offsets(**options)
    assert offsets(**options, failOnDataLoss="false") == list(range(100))
    old = {side: {"orders": one["orders"]} for side, one in kept.items() if side != "size"}
    assert Unit.of({**old, "size": 1}).ranges == Unit.of(kept).ranges, "what an earlier version has kept is read"


def test_an_export_does_not_continue_in_a_recreated_topic(made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, 100))
    folder, place, chosen = str(tmp_path / "table"), {"tier": str(made.folder)}, {"subscribe": "orders"}
    table = Export.opened(folder, {"key": "bytes:", "value": "bytes:", "format": "parquet"})
    os.makedirs(table.path(STAGING))
    table.commit(units_of(made)[0])
    nothing: Any = None  # there are no units to read
    assert export(nothing, place, chosen, folder).offsets == 0
    recreate_topic(made, 150)
    with pytest.raises(TopicGone, match=r"topic orders was deleted and created again: .* now: name another folder"):
        export(nothing, place, chosen, folder)


@pytest.mark.parametrize(
    ("end", "topic_id", "number", "sentence"),
    [
        (40, 1, 0, "orders-0 ended at 60, and now ends at 40: it has lost records"),
        (80, 2, 0, "topic orders was deleted and created again"),
        (80, 2, 1, "topic orders was deleted and created again"),
        (80, 1, 0, ""),
        (80, 1, 1, ""),
    ],
)
def test_a_replay_does_not_continue_into_a_recreated_topic_or_one_that_lost_records(
    tmp_path: Path, end: int, topic_id: int, number: int, sentence: str
) -> None:
    def there(at: int, topic: int) -> Position:
        return Position({("orders", 0): at}, {"orders": to_text(UUID(int=topic))})

    with Results.begun(str(tmp_path), "replay", {}, []) as results:
        job._before(results, 0, there(60, 1), "h:1")
        if sentence:
            with pytest.raises(PipelineError, match=f"at h:1, {sentence}"):
                job._before(results, number, there(end, topic_id), "h:1")
        else:
            assert job._before(results, number, there(end, topic_id), "h:1") == there((60, end)[number], 1)
