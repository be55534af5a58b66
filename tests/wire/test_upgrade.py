"""Rolling upgrade under load from a former version to the current code, and downgrade, with data folders and tier."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin._config import AlterConfigOpType

from milena.lab.histories.checker import check
from milena.lab.histories.events import RequestOutcome, Send
from tests.wire.admin import Places, alter_broker, create_topic
from tests.wire.command import milena
from tests.wire.former import CONTROLLER, TODAYS, WITH_WORK_ORDERS, Rolled, former, rolled
from tests.wire.loads import Journal, Reader, Writer, final_logs
from tests.wire.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
OVERRIDES = {
    "offsets.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
}
TIERED = {
    "min.insync.replicas": "2",
    "remote.storage.enable": "true",
    "retention.ms": "-1",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "500",
}
TOPICS = {"plain": {"min.insync.replicas": "2"}, "tiered": TIERED}
PARTITIONS = 3


@contextmanager
def load(cluster: Rolled, journal: Journal) -> Iterator[None]:
    """Load by producers with acks=all and consumers of each topic. At the end all acknowledged records are readable."""
    writers = [Writer(cluster.bootstrap, journal, topic, PARTITIONS) for topic in TOPICS]
    readers = [Reader(cluster.bootstrap, journal, topic, PARTITIONS, again=topic == "tiered") for topic in TOPICS]
    try:
        yield
    finally:
        working: list[Writer | Reader] = [*writers, *readers]
        for one in working:
            one.stop()
    for topic in TOPICS:
        for log in final_logs(cluster.bootstrap, topic, PARTITIONS):
            journal.note(log)
    assert not (found := check(journal.events)), "\n".join(map(str, found[:30]))
    assert any(isinstance(event, Send) and event.outcome is RequestOutcome.OK for event in journal.events)


def roll(cluster: Rolled, order: Sequence[int], code: Sequence[str]) -> None:
    """Restart one node after the other; the next one when the broker before is in the ISR again."""
    for number in order:
        cluster.stop(number)
        cluster.start(number, code)
        if number != CONTROLLER:
            in_sync(cluster, number)


def in_sync(cluster: Rolled, number: int) -> None:
    for topic in TOPICS:
        places = Places(cluster.bootstrap, topic)
        wait_until(lambda places=places: places.all_have(number), f"{number} is not in sync", 90)  # type: ignore[misc]


def tiered(cluster: Rolled) -> int:
    return sum(1 for _ in (cluster.folder / "tier").rglob("*.log"))


def more_in_the_tier(cluster: Rolled) -> None:
    before = tiered(cluster)
    wait_until(lambda: tiered(cluster) >= before + 3, "no more segments are copied", 60)


def make_topics(cluster: Rolled) -> None:
    for topic, config in TOPICS.items():
        create_topic(cluster.bootstrap, topic, PARTITIONS, replicas=3, config=config)


def test_a_cluster_is_upgraded_and_downgraded_by_rolling_restarts_under_load(tmp_path: Path) -> None:
    before = former(tmp_path)
    with rolled(tmp_path / "cluster", before, OVERRIDES) as cluster:
        make_topics(cluster)
        with load(cluster, Journal()):
            more_in_the_tier(cluster)
            roll(cluster, (CONTROLLER, 1, 2, 3), TODAYS)
            more_in_the_tier(cluster)
            roll(cluster, (3, 2, 1, CONTROLLER), before)
            more_in_the_tier(cluster)
            roll(cluster, (1, 2, 3, CONTROLLER), TODAYS)
            more_in_the_tier(cluster)
        verified(cluster)


def verified(cluster: Rolled) -> None:
    tier, broker = cluster.folder / "tier", cluster.folder / "1" / "data"
    milena("tier", "verify", "--dir", str(broker), "--tier", str(tier))


COMPACTING = {"remote.log.compaction.enable": "true"}
COMPACTED = TIERED | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
KEYS = 50


def write_keyed(cluster: Rolled, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, key=b"%d" % (number % KEYS), value=b"%060d" % number, partition=0)
        if number % 100 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def last_values(cluster: Rolled, topic: str) -> tuple[int, dict[str, str]]:
    """Return the number of records, and the last value of each key."""
    said = milena("consume", topic, "--from-beginning", "--exit", "--json", "-b", cluster.bootstrap).out.splitlines()
    read = [json.loads(line) for line in said]
    return len(read), {record["key"]: record["value"] for record in read}


def values_after(count: int) -> dict[str, str]:
    return {str(number % KEYS): f"{number:060d}" for number in range(count)}


def test_a_former_broker_that_hosts_a_compacted_topic_of_the_tier_is_refused(tmp_path: Path) -> None:
    """As leader it would not apply the cleanings. It is accepted again when the topic is not compacted any more."""
    before = former(tmp_path)
    with rolled(tmp_path / "cluster", before, OVERRIDES) as cluster:
        for number in (CONTROLLER, *cluster.brokers):
            cluster.stop(number)
            cluster.start(number, TODAYS, COMPACTING)
        create_topic(cluster.bootstrap, "both", 1, replicas=3, config=COMPACTED)
        write_keyed(cluster, "both", 3000)
        logs = cluster.brokers
        wait_until(lambda: any("log cleaned in the tier" in cluster.log(one) for one in logs), "no cleaning", 60)
        cluster.stop(1)
        assert "UNSUPPORTED_VERSION" in cluster.refused(1, before)
        assert "Broker 1 hosts both-0, a compacted topic with remote storage" in cluster.log(CONTROLLER)
        assert "remote.log.compaction.enable" in cluster.refused(1, before, COMPACTING)
        milena("topic", "alter", "both", "--config", "cleanup.policy=delete", "-b", cluster.bootstrap)
        cluster.start(1, before)
        wait_until(lambda: Places(cluster.bootstrap, "both").all_have(1), "1 is not in sync", 90)
        assert last_values(cluster, "both")[1] == values_after(3000)


def test_a_former_version_reads_a_log_that_the_current_code_has_compacted(tmp_path: Path) -> None:
    before = former(tmp_path)
    cleaning = {"log.cleaner.backoff.ms": "500"}
    keyed = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "20000"}
    with rolled(tmp_path / "cluster", before, OVERRIDES) as cluster:
        create_topic(cluster.bootstrap, "keyed", 1, replicas=3, config=keyed)
        write_keyed(cluster, "keyed", 3000)
        for number in (CONTROLLER, *cluster.brokers):
            cluster.stop(number)
            cluster.start(number, TODAYS, cleaning if number != CONTROLLER else None)
        wait_until(lambda: last_values(cluster, "keyed")[0] < 1000, "nothing is cleaned", 60)
        assert last_values(cluster, "keyed")[1] == values_after(3000)
        for number in (*cluster.brokers, CONTROLLER):
            cluster.stop(number)
            cluster.start(number, before)
        for number in cluster.brokers:  # all are down before the first starts, so that none copies from another
            cluster.kill(number)
        for number in cluster.brokers:
            cluster.start(number, before)
        assert last_values(cluster, "keyed")[1] == values_after(3000)


WORK_ORDERS = "remote.log.compaction.work.orders"


def warnings(cluster: Rolled, number: int, key: str) -> list[str]:
    return [line for line in cluster.log(number).splitlines() if key in line and "removed" in line]


def test_a_cluster_with_open_work_orders_starts_and_its_leaders_compact(tmp_path: Path) -> None:
    before = former(tmp_path, WITH_WORK_ORDERS)
    ordering = {**OVERRIDES, **COMPACTING, f"{WORK_ORDERS}.enable": "true"}
    work = tmp_path / "cluster" / "tier" / "milena-work"
    with rolled(tmp_path / "cluster", before, ordering) as cluster:
        assert alter_broker(cluster.bootstrap, 1, AlterConfigOpType.SET, f"{WORK_ORDERS}.timeout.ms", "3000000") is None
        create_topic(cluster.bootstrap, "both", 1, replicas=3, config=COMPACTED)
        write_keyed(cluster, "both", 3000)
        wait_until(lambda: bool(list(work.rglob("order.json"))), "no work order", 60)
        for number in (CONTROLLER, *cluster.brokers):
            cluster.stop(number)
        for number in (CONTROLLER, *cluster.brokers):
            cluster.start(number, TODAYS)
        write_keyed(cluster, "both", 3000)
        logs = cluster.brokers
        wait_until(lambda: any("log cleaned in the tier" in cluster.log(one) for one in logs), "no cleaning", 60)
        assert not work.exists()
        assert last_values(cluster, "both")[1] == values_after(3000)
        for number in cluster.brokers:
            assert len(warnings(cluster, number, f"{WORK_ORDERS}.enable")) == 1  # for the key in its server.properties
        assert len(warnings(cluster, 1, f"{WORK_ORDERS}.timeout.ms")) == 1  # for the key in the dynamic configuration
        refused = alter_broker(cluster.bootstrap, 1, AlterConfigOpType.SET, f"{WORK_ORDERS}.timeout.ms", "1000")
        assert refused is not None and refused.code() == KafkaError.INVALID_CONFIG
        assert alter_broker(cluster.bootstrap, 1, AlterConfigOpType.DELETE, f"{WORK_ORDERS}.timeout.ms", None) is None
