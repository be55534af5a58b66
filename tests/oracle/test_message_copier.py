"""Kafka's tools of its own transaction tests: VerifiableProducer writes, TransactionalMessageCopier copies in
transactions, and VerifiableConsumer reads with read_committed. The copier and a broker are killed. As a control, it
reads with read_uncommitted: it finds records of aborted transactions, too."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.oracle.conftest import RECORDS, REPLICATED
from tests.oracle.kafka import java, tool
from tests.oracle.programs import running
from tests.oracle.tools import MESSAGE_COPIER, VERIFIABLE_CONSUMER, VERIFIABLE_PRODUCER
from tests.wire.admin import Places

COUNT = min(RECORDS, 4000)
SIZE = COUNT // 40
"""Records of a transaction."""
LONGEST = 90
"""Seconds that a tool may take."""

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("metadata", [True, False], ids=["generations", "no generations"])
def test_each_record_is_copied_once_although_the_copier_and_a_broker_are_killed(tmp_path: Path, metadata: bool) -> None:
    overrides = REPLICATED | {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
    with LocalCluster.start(tmp_path, brokers=3, topics=["input:1:3", "output:2:3"], overrides=overrides) as cluster:
        server = ("--bootstrap-server", cluster.bootstrap)
        tool(VERIFIABLE_PRODUCER, *server, "--topic", "input", "--max-messages", str(COUNT), timeout=LONGEST)
        copier = copier_of(cluster, metadata=metadata)
        with running(copier) as program:
            while json.loads(program.line(r"\{"))["consumed"] < COUNT // 4:
                pass
            program.process.kill()
        leader = Places(cluster.bootstrap, "input").now()[0].leader
        with running(copier) as program:
            program.line(r"\{.*ProcessLoop")
            cluster.kill(leader)
            cluster.restart(leader)
            assert program.process.wait(LONGEST) == 0
        assert read(cluster, tmp_path, "read_committed") == Counter(map(str, range(COUNT)))
        assert max(read(cluster, tmp_path, "read_uncommitted").values()) > 1


def copier_of(cluster: LocalCluster, *, metadata: bool) -> list[str]:
    arguments = {
        "--broker-list": cluster.bootstrap,
        "--input-topic": "input",
        "--input-partition": "0",
        "--output-topic": "output",
        "--consumer-group": "copiers",
        "--transactional-id": "copier",
        "--transaction-size": str(SIZE),
    }
    more = ["--group-mode", "--use-group-metadata"] if metadata else []
    words = [word for pair in arguments.items() for word in pair]
    return java(MESSAGE_COPIER, *words, "--enable-random-aborts", *more)


def read(cluster: LocalCluster, folder: Path, isolation: str) -> Counter[str]:
    """How often VerifiableConsumer has read each value, among the first ``COUNT``."""
    config = folder / "consumer.properties"
    config.write_text(f"isolation.level={isolation}\n")
    arguments = ("--bootstrap-server", cluster.bootstrap, "--topic", "output", "--group-id", isolation, "--verbose")
    options = ("--reset-policy", "earliest", "--max-messages", str(COUNT), "--command-config", str(config))
    said = tool(VERIFIABLE_CONSUMER, *arguments, *options, timeout=LONGEST)
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return Counter(event["value"] for event in events if event["name"] == "record_data")
