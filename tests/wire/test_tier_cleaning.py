"""A compacted topic in the tier of real processes: a worker that is killed cleans it, a consumer reads all of it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.compacted import broker_pid, read, workers, write_each_key
from tests.wire.tiers import logs, settings
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

KEYS, UPDATES = 500, 40
COMPACTED = {
    "cleanup.policy": "compact",
    "remote.storage.enable": "true",
    "internal.segment.bytes": "100000",
    "local.retention.bytes": "1",
    "min.cleanable.dirty.ratio": "0.3",
}
CLEANING = {
    "remote.log.compaction.enable": "true",
    "remote.log.compaction.source.retention.ms": "500",
    "log.cleaner.io.max.bytes.per.second": "2000000",
}


def size_in(remote: Path) -> int:
    """Return the total size of the topic's log files in the tier, in bytes."""
    size = 0
    for log in logs(remote, "t-0-*"):
        with suppress(FileNotFoundError):  # the file has just been deleted
            size += log.stat().st_size
    return size


def test_a_consumer_finds_the_last_value_of_each_key_in_the_tier(tmp_path: Path) -> None:
    remote = tmp_path / "tier" / "kafka-tiered-storage"
    with LocalCluster.start(
        tmp_path / "cluster", brokers=1, overrides={**settings(tmp_path / "tier"), **CLEANING}
    ) as own:
        create_topic(own.bootstrap, "t", 1, config=COMPACTED)
        producer = Producer({"bootstrap.servers": own.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        last: dict[bytes, bytes] = {}
        for update in range(UPDATES):
            last |= write_each_key(producer, KEYS, update)
            if update in (UPDATES // 3, UPDATES // 2):
                wait_until(lambda: bool(workers(broker_pid(own))), "a worker to clean")
                for pid in workers(broker_pid(own)):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            if update == 2 * UPDATES // 3:
                own.kill(own.brokers[0].id)
                own.restart(own.brokers[0].id)
        data = Path(own.brokers[0].log_dirs[0])
        written = KEYS * UPDATES * 70
        wait_until(
            lambda: len(logs(data, "t-0")) == 1 and size_in(remote) < written / 4,
            "what was replaced is gone",
            60,
        )
        count, found = read(own.bootstrap, "t")
        assert found == last and count < KEYS * UPDATES / 3
        wait_until(lambda: not (data / "t-0" / "remote-log-cleaning").exists(), "the last pass is over")
