"""Real clients read a topic whose records are mostly in the tier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import create_topic
from tests.wire.clients import Record, WireClient, all_clients
from tests.wire.command import milena, refused
from tests.wire.tiers import logs, settings
from tests.wire.waiting import wait_until

TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "100000", "local.retention.bytes": "1"}
RECORDS: list[Record] = [(b"key", b"%-300d" % number) for number in range(1500)]


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A broker with a topic ``t``, of which only the active segment is on its own disk."""
    folder = tmp_path_factory.mktemp("tiered")
    with LocalCluster.start(folder / "cluster", brokers=1, overrides=settings(folder / "tier")) as running:
        create_topic(running.bootstrap, "t", partitions=1, config=TIERED)
        writer = next(client for client in all_clients() if client.name == "confluent-kafka")
        assert len(writer.produce(running.bootstrap, "t", RECORDS)) == len(RECORDS)
        data = Path(running.brokers[0].log_dirs[0])
        wait_until(lambda: len(logs(data, "t-0")) == 1, "closed segments are in the tier")
        assert len(logs(folder / "tier" / "kafka-tiered-storage", "t-0-*")) >= 5
        yield running


def test_every_client_reads_all_records_from_the_first_offset(tiered: LocalCluster, client: WireClient) -> None:
    found = client.consume(tiered.bootstrap, "t", len(RECORDS), group=client.name)
    assert found == [(0, offset, record) for offset, record in enumerate(RECORDS)]


def test_a_fetch_from_a_missing_segment_is_logged_with_its_offset(tiered: LocalCluster) -> None:
    create_topic(tiered.bootstrap, "holed", partitions=1, config=TIERED)
    for _ in range(6):  # each is at least one batch
        milena("produce", "holed", "-b", tiered.bootstrap, stdin=f"{'x' * 1000}\n" * 50)
    data, remote = Path(tiered.brokers[0].log_dirs[0]), Path(tiered.directory).parent / "tier" / "kafka-tiered-storage"
    wait_until(lambda: len(logs(data, "holed-0")) == 1, "closed segments are in the tier")
    missing = logs(remote, "holed-0-*")[1]
    missing.unlink()
    offset = int(missing.name.partition("-")[0])
    said = refused("consume", "holed", "--from-beginning", "--exit", "-b", tiered.bootstrap)
    assert said == (
        f"holed-0 cannot be read from offset {offset} on (UNKNOWN_SERVER_ERROR): the brokers' logs say why "
        "(`milena logs`); `milena tier verify holed` checks the tier"
    )
