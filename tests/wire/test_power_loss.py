"""`power_off` of one, two and all brokers: synced records and records in the tier survive it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import Places, create_topic
from tests.wire.loads import final_logs
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.slow

RECORDS = 60
OVERRIDES = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
}
SYNCED = {"min.insync.replicas": "2", "flush.messages": "1", "internal.segment.bytes": "10000"}
TIERED = {
    "min.insync.replicas": "2",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "10000",
    "local.retention.bytes": "1",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers. Each test leaves all of them running and in sync."""
    with LocalCluster.start(tmp_path_factory.mktemp("lab"), brokers=3, overrides=OVERRIDES, lab=True) as running:
        yield running


def write(lab: LocalCluster, topic: str, first: int) -> None:
    """Write records of 1,000 bytes with acks=all, each after the acknowledgement of the previous one."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": lab.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(first, first + RECORDS):
        note = lambda error, _: failures.append(error) if error else None  # noqa: E731
        producer.produce(topic, b"%-1000d" % number, partition=0, on_delivery=note)
        assert producer.flush(60) == 0
    assert not failures, failures


def numbers(lab: LocalCluster, topic: str) -> list[int]:
    """Read all records; the log start offset must be 0."""
    (log,) = final_logs(lab.bootstrap, topic, 1)
    assert log.start == 0
    return [int(value) for _, value, _ in log.records]


def first_local(lab: LocalCluster, broker: int, topic: str) -> int:
    """Return the base offset of the oldest segment on a broker's disk."""
    (data,) = lab.nodes[broker].log_dirs
    return min((int(path.stem) for path in Path(data, f"{topic}-0").glob("*.log")), default=0)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_synced_records_and_records_in_the_tier_survive_a_power_loss(lab: LocalCluster, topic: str, count: int) -> None:
    tiered = f"{topic}-tiered"
    create_topic(lab.bootstrap, topic, partitions=1, replicas=3, config=SYNCED)
    create_topic(lab.bootstrap, tiered, partitions=1, replicas=3, config=TIERED)
    brokers = [broker.id for broker in lab.brokers]
    write(lab, topic, 0)
    write(lab, tiered, 0)
    wait_until(lambda: min(first_local(lab, broker, tiered) for broker in brokers) >= 20, "segments in the tier alone")
    in_tier = max(first_local(lab, broker, tiered) for broker in brokers)
    for broker in brokers[:count]:
        lab.power_off(broker)
    for broker in brokers[:count]:
        lab.start_node(broker, wait=False)
    for name in (topic, tiered):
        places = Places(lab.bootstrap, name)
        wait_until(lambda places=places: all(map(places.all_have, brokers)), "all to be in sync")  # type: ignore[misc]
    assert numbers(lab, topic) == list(range(RECORDS))
    kept = numbers(lab, tiered)
    assert kept == list(range(len(kept)))
    assert len(kept) >= (RECORDS if count == 1 else in_tier)
    write(lab, tiered, RECORDS)
    assert numbers(lab, tiered) == [*kept, *range(RECORDS, 2 * RECORDS)]
