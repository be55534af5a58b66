"""The job ``compact``: leaders of a compacted topic in the tier let Spark clean it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition
from pyspark.sql import SparkSession

from milena.pipeline.jobs.compact import job, winners
from milena.pipeline.jobs.compact.job import Compacted, compact
from milena.testing.local_cluster import LocalCluster
from milena.tiered.orders.manifest import Manifest, encode_manifest
from tests.wire.admin import Places, create_topic
from tests.wire.compacted import write_each_key
from tests.wire.tiers import settings
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

KEYS, UPDATES = 200, 12
COMPACTED = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "40000",
    "local.retention.bytes": "1",
    "min.cleanable.dirty.ratio": "0.3",
}
ORDERS = {
    "remote.log.compaction.enable": "true",
    "remote.log.compaction.work.orders.enable": "true",
    "remote.log.compaction.source.retention.ms": "500",
}
REFUSED = "result of a work order refused"


class Cleaned:
    """A cluster with a compacted topic ``t`` of one partition, on all brokers, in a tier."""

    def __init__(self, cluster: LocalCluster, tier: Path) -> None:
        self.cluster = cluster
        self.tier = tier
        self.last: dict[bytes, bytes] = {}

    def write(self, updates: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        for update in range(updates):
            self.last |= write_each_key(producer, KEYS, update)

    def orders(self) -> list[Path]:
        """Those that nobody has carried out."""
        found = sorted((self.tier / "milena-work").glob("t-0-*/*/order.json"))
        return [one.parent for one in found if not (one.parent / "manifest.json").exists()]

    def events(self, name: str) -> list[dict[str, object]]:
        lines = (line for broker in self.cluster.brokers for line in self.cluster.log(broker.id).splitlines())
        return [json.loads(line) for line in lines if f'"{name}"' in line]

    def cleaned_to(self) -> int:
        return max((int(str(one["cleaned_to"])) for one in self.events("log cleaned in the tier")), default=0)

    def clean(self, carry_out: Callable[[], object], end: float = 0.6 * KEYS * UPDATES) -> None:
        """The first order may be of a part of what was written."""
        while (before := self.cleaned_to()) < end:
            wait_until(lambda: bool(self.orders()), "a work order", 60)
            carry_out()
            wait_until(lambda before=before: self.cleaned_to() > before, "the result to be published", 60)  # type: ignore[misc]

    def read(self) -> tuple[int, dict[bytes, bytes]]:
        """What kafka-python reads from the beginning: how many records, and the last value of each key."""
        partition = TopicPartition("t", 0)
        consumer = KafkaConsumer(bootstrap_servers=self.cluster.bootstrap, enable_auto_commit=False)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        consumer.seek_to_beginning(partition)
        count, found = 0, {}
        while consumer.position(partition) < end:
            for record in consumer.poll(1000).get(partition, []):
                count += 1
                found[record.key] = record.value
        consumer.close()
        return count, found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int], Cleaned]]:
    running: list[LocalCluster] = []

    def started(brokers: int) -> Cleaned:
        tier = tmp_path / "tier"
        metadata = "rlmm.config.remote.log.metadata.topic"
        more = {f"{metadata}.replication.factor": str(brokers), f"{metadata}.min.isr": "1"}
        cluster = LocalCluster.start(
            tmp_path / "cluster", brokers=brokers, overrides={**settings(tier), **ORDERS, **more}
        )
        running.append(cluster)
        create_topic(cluster.bootstrap, "t", 1, replicas=brokers, config=COMPACTED)
        return Cleaned(cluster, tier)

    yield started
    for one in running:
        one.stop()


def ordered(cleaned: Cleaned) -> Path:
    """A new order."""
    wait_until(lambda: bool(cleaned.orders()), "a work order", 60)
    return cleaned.orders()[0]


def is_there(cleaned: Cleaned, order: Path, _topic: str) -> bool:
    return order in cleaned.orders()


def wait_until_gone(order: Path) -> None:
    wait_until(lambda: not order.exists(), "the result to be published", 60)


def test_what_spark_has_cleaned_is_published_also_if_the_job_was_stopped_in_the_middle(
    spark: SparkSession, start: Callable[[int], Cleaned], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = start(1)
    cleaned.write(UPDATES)
    order = ordered(cleaned)
    while len(json.loads((order / "order.json").read_text())["groups"]) < 2:
        compact(spark, str(cleaned.tier), chosen=partial(is_there, cleaned, order))
        wait_until_gone(order)
        order = ordered(cleaned)

    def half(rows: object, groups: object, parts: int) -> object:
        return winners.in_groups(rows, groups.where("group % 2 = 0"), parts)  # type: ignore[attr-defined, arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(job, "in_groups", half)
        with pytest.raises(Exception, match="groups were not written"):
            compact(spark, str(cleaned.tier))
    written = {path: path.stat().st_mtime_ns for path in order.glob("group-*.receipt")}
    assert written and not (order / "manifest.json").exists()
    seen: list[int] = []
    monkeypatch.setattr(job, "encode_manifest", seen_by(seen, written))
    result = compact(spark, str(cleaned.tier))
    assert result.orders >= 1 and seen[0] == len(written), "what was written is not written again"
    wait_until_gone(order)
    cleaned.clean(lambda: compact(spark, str(cleaned.tier)))
    assert cleaned.events(REFUSED) == []
    count, found = cleaned.read()
    assert found == cleaned.last and count < KEYS * UPDATES / 2


def seen_by(seen: list[int], written: dict[Path, int]) -> Callable[[Manifest], bytes]:
    """Counts receipts that are what they were when the manifest is written."""

    def encoding(manifest: Manifest) -> bytes:
        seen.append(sum(path.exists() and path.stat().st_mtime_ns == time for path, time in written.items()))
        return encode_manifest(manifest)

    return encoding


def test_the_result_of_a_leader_that_was_killed_is_not_published_and_the_next_ones_is(
    spark: SparkSession, start: Callable[[int], Cleaned], monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = start(2)
    cleaned.write(UPDATES)
    old = ordered(cleaned)
    places = Places(cleaned.cluster.bootstrap, "t")
    leader = places.now()[0].leader
    befores, killed = job._befores, list[int]()

    def killing(*arguments: object) -> object:
        """Between the scan and the writing."""
        if not killed:
            cleaned.cluster.kill(leader)
            killed.append(leader)
        return befores(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(job, "_befores", killing)
        compact(spark, str(cleaned.tier), chosen=lambda topic: topic == "t" and old in cleaned.orders())
    wait_until(lambda: places.now()[0].leader not in (leader, -1), "another leader", 60)
    new = ""

    def issued() -> bool:
        nonlocal new
        new = next((one.name for one in cleaned.orders() if one != old), "")
        return bool(new) and not old.exists()

    wait_until(issued, "the new leader's order", 60)
    assert int(new.split("-")[0]) > int(old.name.split("-")[0])
    assert cleaned.events("log cleaned in the tier") == [], "the former leader's result is nobody's"
    cleaned.cluster.restart(leader)
    cleaned.clean(lambda: compact(spark, str(cleaned.tier)))
    count, found = cleaned.read()
    assert found == cleaned.last and count < KEYS * UPDATES / 2
    assert cleaned.events(REFUSED) == []


def test_the_command_carries_out_what_there_is(start: Callable[[int], Cleaned]) -> None:
    cleaned = start(1)
    cleaned.write(UPDATES)
    words = ["pipeline", "compact", "--tier", str(cleaned.tier), "--master", "local[2]", "t"]

    def carry_out() -> None:
        command = [sys.executable, "-m", "milena", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout.split(",")[0][1:]) == (0, " work orders carried out"), done.stderr

    cleaned.clean(carry_out)
    count, found = cleaned.read()
    assert found == cleaned.last and count < KEYS * UPDATES / 2


def test_without_orders_nothing_is_done(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    assert compact(spark, str(tmp_path)) == Compacted(0, 0, 0)
    folder = tmp_path / "milena-work" / "t-0-AAAAAAAAAAAAAAAAAAAAAQ" / "0-AAAAAAAAAAAAAAAAAAAAAQ"
    folder.mkdir(parents=True)
    (folder / "order.json").write_text("{}")
    told: list[str] = []
    assert compact(spark, str(tmp_path), told=told.append) == Compacted(0, 1, 0)
    assert told == [f"{folder.parent.name}/{folder.name}: the order has no version"]
