"""Kafka's LogCompactionTester produces with tombstones, waits, consumes, and compares the last value of each key."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.oracle import kafka
from tests.oracle.tools import TOOLS
from tests.wire.compacted import cleaned_to

TESTER: Final = f"{TOOLS}.LogCompactionTester"
CODECS: Final = ("none", "zstd")
TOPICS, MESSAGES, DUPLICATES = 2, 300_000, 5
"""With these numbers, a compressed topic has two closed segments."""
SETTINGS: Final = {
    "log.segment.bytes": str(1 << 20),
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.delete.retention.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster.start(tmp_path / "cluster", brokers=1, overrides=SETTINGS) as running:
        yield running


def started(own: LocalCluster, folder: Path, codec: str) -> subprocess.Popen[str]:
    """Start the tester; its files are in ``folder``."""
    folder.mkdir()
    options = {
        "bootstrap-server": own.bootstrap,
        "messages": MESSAGES,
        "duplicates": DUPLICATES,
        "percent-deletes": 20,
        "topics": TOPICS,
        "compression-type": codec,
        "sleep": 20,  # the cleaner has a low priority and is slow on a busy machine
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = kafka.java(TESTER, *words, options=(*kafka.QUICK, f"-Djava.io.tmpdir={folder}"))
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_last_value_of_each_key_is_found(own: LocalCluster, tmp_path: Path) -> None:
    running = [started(own, tmp_path / codec, codec) for codec in CODECS]
    # The tester waits for 20 s at the log end.
    for process in running:
        said, _ = process.communicate()
        assert process.returncode == 0, said
        assert re.search(r"^Validated [1-9]\d* values, 0 mismatches\.$", said, re.MULTILINE), said
        assert "Data verification is completed" in said
        counts = re.search(r"^(\d+) rows of data produced, (\d+) rows of data consumed", said, re.MULTILINE)
        assert counts is not None, said
        produced, consumed = map(int, counts.groups())
        assert consumed < produced == MESSAGES * TOPICS
        found = re.search(r"to topics (\S+)", said)
        assert found is not None, said
        (broker,) = own.brokers
        assert all(cleaned_to(broker.log_dirs[0], f"{topic}-0") > 0 for topic in found[1].split(","))
