"""Leaders on real processes are killed under acks=all load; the followers' logs equal theirs byte for byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from milena.testing.local_cluster import LocalCluster
from tests.wire.admin import Places, create_topic
from tests.wire.conftest import REPLICATED
from tests.wire.load import PARTITIONS, Load, read_all
from tests.wire.waiting import wait_until

pytestmark = [pytest.mark.kill, pytest.mark.timeout(180)]

KILLS = 3


def test_three_killed_leaders_lose_no_records_and_return_to_the_isr(
    milena_start: Callable[..., LocalCluster], topic: str
) -> None:
    cluster = milena_start(brokers=3, overrides=REPLICATED)
    create_topic(cluster.bootstrap, topic, partitions=PARTITIONS)
    places = Places(cluster.bootstrap, topic)
    with Load(cluster.bootstrap, topic) as load:

        def wait_for_writes() -> None:
            enough = len(load.acknowledged) + 3000
            wait_until(lambda: len(load.acknowledged) > enough, "3000 more writes", 40)

        for _ in range(KILLS):
            wait_for_writes()
            killed = places.now()[0].leader
            cluster.kill(killed)
            wait_until(lambda killed=killed: places.none_has(killed), "another leader", 40)  # type: ignore[misc]
            wait_for_writes()
            cluster.restart(killed)
            wait_until(lambda killed=killed: places.all_have(killed), "the killed one in sync", 40)  # type: ignore[misc]
    assert load.errors == []
    assert read_all(cluster.bootstrap, topic) == Counter(load.acknowledged)

    folders = [Path(node.log_dirs[0]) for node in cluster.brokers]
    cluster.stop()
    for index in range(PARTITIONS):
        logs = [sorted((folder / f"{topic}-{index}").glob("*.log")) for folder in folders]
        contents = {b"".join(path.read_bytes() for path in paths) for paths in logs}
        assert len(contents) == 1, f"the replicas of partition {index} differ"
