"""A broker is killed with -9 while a client produces: nothing acknowledged is missing, nothing is there twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from milena.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.clients import CODECS, Record, WireClient
from tests.wire.conftest import RECORDS

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120 + RECORDS // 100)]

SOON_FENCED = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
"""As in Kafka, the controller takes a broker back when the session of its former process has run out."""


@pytest.mark.parametrize("codec", CODECS)
def test_a_producer_survives_kill_9(
    milena_start: Callable[..., LocalCluster], client: WireClient, topic: str, codec: str
) -> None:
    cluster = milena_start(overrides=SOON_FENCED)
    create_topic(cluster.bootstrap, topic, partitions=3)
    records: list[Record] = [
        (f"key-{number % 29}".encode(), f"{number:08d}".encode() + b"." * 92) for number in range(RECORDS)
    ]

    def kill_and_bring_back() -> None:
        cluster.kill(1)
        cluster.restart(1)

    acknowledged = client.produce(cluster.bootstrap, topic, records, codec=codec, halfway=kill_and_bring_back)
    assert len(acknowledged) == RECORDS
    found = client.consume(cluster.bootstrap, topic, RECORDS, group=topic)
    times = Counter(record for _, _, record in found)
    missing = [index for index in acknowledged if records[index] not in times]
    assert not missing, f"{len(missing)} acknowledged records are missing, the first is {missing[0]}"
    assert set(times.values()) == {1}, "an idempotent producer's record is there twice"
    assert in_order(found)


def in_order(found: list[tuple[int, int, Record]]) -> bool:
    """Whether each partition holds its records in the order in which they were sent, without gaps."""
    for wanted in {partition for partition, _, _ in found}:
        places = sorted((offset, value) for partition, offset, (_, value) in found if partition == wanted)
        if [offset for offset, _ in places] != list(range(len(places))):
            return False
        values = [value for _, value in places]
        if values != sorted(values, key=lambda value: value or b""):
            return False
    return True
