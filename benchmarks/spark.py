"""Spark on local[2] reads a topic of records of 1 KB: our source from the tier, and Spark's own Kafka connector from
the brokers, Milena's and Kafka's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from confluent_kafka import Producer

from benchmarks.forms import PURE
from benchmarks.peers import Milena, Peer
from benchmarks.sizes import Sizes
from benchmarks.spark_reader import COLUMNS
from benchmarks.tier_reads import settings
from benchmarks.turns import NotMeasured, Rounds
from tests.pipeline.connector import NoConnector, connector_jars
from tests.wire.admin import create_topic
from tests.wire.waiting import wait_until

TOPIC = "spark"
PARTITIONS = 4
RECORD = 1024
ROUNDS = 3
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(64 << 20), "local.retention.bytes": "-2"}


def spark(peer: Peer, sizes: Sizes) -> Rounds:
    """Without the connector's jars nothing is measured: there is nothing to compare with."""
    try:
        jars = connector_jars()
    except NoConnector as reason:
        raise NotMeasured(str(reason)) from None
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as name:
        folder = Path(name)
        is_ours = isinstance(peer, Milena)
        with peer.cluster(1, folder / "cluster", settings(folder / "tier") if is_ours else None) as running:
            create_topic(running.bootstrap, TOPIC, PARTITIONS, 1, TIERED if is_ours else {})
            written = _fill(running.bootstrap, sizes.spark_mb)
            figures: dict[str, float] = {}
            if is_ours:
                wait_until(lambda: _tiered(folder / "tier") > 0.7 * written, "most segments are in the tier", 300)
                environment = peer.environment if isinstance(peer, Milena) else {}
                options = {"tier": str(folder / "tier"), "subscribe": TOPIC, "columns": ",".join(COLUMNS)}
                figures |= _read("milena", options, "", environment, "tier")
            if not is_ours or peer.name != PURE:
                where = {"kafka.bootstrap.servers": running.bootstrap, "subscribe": TOPIC}
                figures |= _read("kafka", {**where, "startingOffsets": "earliest"}, jars, {}, "connector")
            if figures.keys() >= {"spark_tier_mb_s", "spark_connector_mb_s"}:
                figures["spark_tier_share"] = figures["spark_tier_mb_s"] / figures["spark_connector_mb_s"]
    yield figures


def _read(form: str, options: dict[str, str], jars: str, environment: dict[str, str], name: str) -> dict[str, float]:
    asked = json.dumps({"format": form, "options": options, "rounds": ROUNDS, "jars": jars})
    command = [sys.executable, "-m", "benchmarks.spark_reader", asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if done.returncode:
        raise RuntimeError(f"Spark with {form} failed: {done.stderr[-2000:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    seconds = median(told["seconds"])
    return {
        f"spark_{name}_rows_s": told["rows"] / seconds,
        f"spark_{name}_mb_s": told["rows"] * RECORD / (1 << 20) / seconds,
        f"spark_{name}_memory_mib": told["mib"],
    }


def _fill(bootstrap: str, megabytes: int) -> int:
    """Bytes of values."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1 << 17, "acks": "all"})
    count = (megabytes << 20) // RECORD
    value = os.urandom(RECORD - 16)
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value + b"%016d" % number, b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(300)
    return count * RECORD


def _tiered(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.log"))
