"""Tier and local tail of a running cluster are read as one range of offsets, also if segments move after planning."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from milena.pipeline.errors import DataLoss, PipelineError
from milena.testing.local_cluster import LocalCluster
from tests.pipeline.in_process import offsets, reader_of, rows, rows_of, tasks
from tests.wire.admin import alter_topic, create_topic
from tests.wire.tiers import logs, settings
from tests.wire.waiting import wait_until

TIERED = {
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "1",
}
COUNT = 500


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.size": 3000})
    for number in range(first, first + count):
        producer.produce(topic, b"%-200d" % number, b"k%d" % number, partition=0, timestamp=1000 + number)
    producer.flush(30)


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker with a topic ``t``, of which only the active segment is not in the tier."""
    folder = tmp_path_factory.mktemp("tiered")
    with LocalCluster.start(folder / "cluster", brokers=1, overrides=settings(folder / "tier")) as running:
        filled(running, "t")
        yield running


def filled(running: LocalCluster, topic: str) -> None:
    create_topic(running.bootstrap, topic, partitions=1, config=TIERED)
    produce(running.bootstrap, topic, 0, COUNT)
    data = Path(running.brokers[0].log_dirs[0])
    wait_until(lambda: len(logs(data, f"{topic}-0")) == 1, "closed segments are in the tier")


def tier_of(running: LocalCluster) -> Path:
    return Path(running.directory).parent / "tier"


def test_records_are_read_from_the_tier_and_from_the_broker(tiered: LocalCluster) -> None:
    options = {"tier": tier_of(tiered), "kafka.bootstrap.servers": tiered.bootstrap, "subscribe": "t"}
    found = rows(**options)
    assert [(row["offset"], row["value"].rstrip()) for row in found] == [(n, b"%d" % n) for n in range(COUNT)]
    sources = [row["segmentId"] for row in found]
    assert sources[0] is not None and sources[-1] is None and len(set(sources)) >= 5
    of_wire = rows(subscribe="t", kafka__bootstrap__servers=tiered.bootstrap)
    assert [{name: row[name] for name in of_wire[0]} for row in found] == of_wire
    assert [*of_wire[0]] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    columns = ",".join(found[0])
    of_wire = rows(subscribe="t", kafka__bootstrap__servers=tiered.bootstrap, columns=columns)
    assert [row | {"segmentId": None} for row in found] == of_wire
    bounds = {"startingTimestamp": 1005, "endingOffsets": json.dumps({"t": {"0": 490}})}
    assert offsets(**options, **bounds) == list(range(5, 490))


def test_the_segments_in_the_tier_are_known_from_a_brokers_directory(tiered: LocalCluster) -> None:
    data = tiered.brokers[0].log_dirs[0]
    by_log = offsets(tier=tier_of(tiered), subscribe="t", metadata=data)
    by_files = offsets(tier=tier_of(tiered), subscribe="t")
    assert by_log == by_files == list(range(len(by_log))) and 300 < len(by_log) < COUNT
    assert offsets(tier=tier_of(tiered), subscribe="t", metadata=Path(data).parent) == by_log


def test_a_topic_that_retention_has_emptied_has_no_rows_and_does_not_affect_others(tiered: LocalCluster) -> None:
    filled(tiered, "emptied")
    create_topic(tiered.bootstrap, "new", partitions=1, config=TIERED)
    remote = tier_of(tiered) / "kafka-tiered-storage"
    alter_topic(tiered.bootstrap, "emptied", {"retention.ms": "1"})
    wait_until(lambda: not logs(remote, "emptied-0-*"), "retention has deleted the segments")
    options = {"tier": tier_of(tiered), "metadata": tiered.brokers[0].log_dirs[0]}
    assert rows(**options, subscribe="emptied,new") == []
    assert {row["topic"] for row in rows(**options, subscribe="t,emptied,new")} == {"t"}
    admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
    admin.delete_topics(["emptied"])["emptied"].result(20)
    data = Path(tiered.brokers[0].log_dirs[0])
    wait_until(lambda: not (data / "emptied-0").exists(), "the topic is deleted")
    with pytest.raises(PipelineError, match="there is no topic emptied; there are"):
        rows(**options, subscribe="t,emptied,new")


def test_records_that_enter_or_leave_the_tier_after_planning_are_still_read(tiered: LocalCluster) -> None:
    filled(tiered, "moved")
    remote = tier_of(tiered) / "kafka-tiered-storage"
    reader = reader_of(tier=tier_of(tiered), kafka__bootstrap__servers=tiered.bootstrap, subscribe="moved")
    planned = tasks(reader)
    before = len(logs(remote, "moved-0-*"))
    produce(tiered.bootstrap, "moved", COUNT, COUNT)
    wait_until(lambda: len(logs(remote, "moved-0-*")) > before + 3, "the tail has moved into the tier")
    # A copy of the tier lacks the first segment: only the brokers can serve its records.
    hidden = tier_of(tiered).parent / "elsewhere"
    shutil.copytree(tier_of(tiered), hidden)
    first = logs(hidden / "kafka-tiered-storage", "moved-0-*")[0]
    first.unlink()
    other = reader_of(tier=hidden, kafka__bootstrap__servers=tiered.bootstrap, subscribe="moved")
    for one in (reader, other):
        found = [row for task in planned for batch in one.read(task) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == list(range(COUNT))
    assert found[0]["segmentId"] is None
    assert [row["offset"] for row in rows_of(reader)] == list(range(2 * COUNT))


def test_offsets_that_the_brokers_do_not_have_are_a_loss(tiered: LocalCluster) -> None:
    options = {"kafka.bootstrap.servers": tiered.bootstrap, "subscribe": "t"}
    with pytest.raises(DataLoss, match="t-0: offsets 0 to 998 are asked for, and 0 to 499 are there"):
        rows(**options, endingOffsets=json.dumps({"t": {"0": 999}}))
    with pytest.raises(PipelineError, match="option subscribe: there is no topic other; there are"):
        rows(**(options | {"subscribe": "other"}))


def test_a_cluster_that_does_not_answer_is_an_error_with_the_option() -> None:
    with pytest.raises(PipelineError, match=r"option kafka\.bootstrap\.servers: .*127\.0\.0\.1:1"):
        rows(kafka__bootstrap__servers="127.0.0.1:1", subscribe="t")
