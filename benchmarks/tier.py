"""A topic with segments in a tier (a local folder): cost of copying and rate of reading, their effect on produce and
local reads; and the time until an empty follower is in sync."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.latency import percentile
from benchmarks.load import load
from benchmarks.peers import Milena, Peer, Running
from benchmarks.sizes import Sizes
from benchmarks.throughput import consumer_performance
from benchmarks.tier_consumer import consuming
from benchmarks.tier_follower import follower_joins
from benchmarks.tier_reads import TIERED, create, fill, settings
from benchmarks.turns import Rounds
from benchmarks.wire import (
    FETCH,
    FETCH_VERSION,
    PRODUCE,
    PRODUCE_VERSION,
    Wire,
    batch_of,
    create_topic,
    fetch_body,
    fetched_bytes,
    leader_id,
    leader_of,
    produce_body,
    produced_error,
)
from tests.oracle.kafka import NoKafka, jars
from tests.wire.admin import alter_topic

COPIED: Final = 300
"""MB, in segments of 10 MB."""
OTHER_LOAD: Final = 10.0
"""MB/s."""
AT_LEAST: Final = 2.0
"""Seconds of a latency measurement."""
PAUSE: Final = 0.001
"""Seconds between requests: without a pause they would be a load of their own."""
LIMIT: Final = 120.0
LOOK: Final = 0.02
"""Seconds between checks of the local files."""


def tier(peer: Peer, sizes: Sizes) -> Rounds:
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as name:
        folder = Path(name)
        with peer.cluster(1, folder / "cluster", settings(folder / "tier")) as running:
            figures = _one_broker(running, sizes)
    if isinstance(peer, Milena):
        figures["tier_follower_s"] = follower_joins(sizes, peer.environment)
    yield figures


def _one_broker(running: Running, sizes: Sizes) -> dict[str, float]:
    bootstrap = running.bootstrap
    for topic in ("local", "tiered"):
        create(bootstrap, topic, {})
    end = [fill(leader_of(bootstrap, topic), topic, COPIED) for topic in ("local", "tiered")][-1]
    probe = Probe(bootstrap)
    probe.until(_enough(sizes))
    create_topic(bootstrap, "busy", 6)
    with load(bootstrap, "busy", OTHER_LOAD):
        before, _ = probe.until(_enough(sizes))
        copied, meanwhile = _copy(running, "tiered", probe)
    figures = {
        "tier_copied_s": copied,
        "tier_copy_produce_p99_ms": meanwhile,
        "tier_copy_produce_growth": meanwhile / before,
    }
    figures |= _reads(bootstrap, end)
    alone = probe.until(_enough(sizes))
    with consuming(bootstrap, "tiered", end):
        beside = probe.until(_enough(sizes))
    for kind, quiet, found in zip(("produce", "fetch"), alone, beside, strict=True):
        figures |= {f"tier_read_{kind}_p99_ms": found, f"tier_read_{kind}_growth": found / quiet}
    return figures


def _enough(sizes: Sizes) -> Callable[[int], bool]:
    """This many requests over this time, so that background load affects all measurements."""
    end = time.perf_counter() + AT_LEAST
    return lambda sent: sent >= sizes.latency_requests // 2 and time.perf_counter() >= end


def _copy(running: Running, topic: str, probe: Probe) -> tuple[float, float]:
    """Seconds from the topic's configuration until its closed segments are only in the tier; produce p99 in that
    time."""
    place = running.members.data(leader_id(running.bootstrap, topic)) / f"{topic}-0"
    begin = looked = time.perf_counter()
    alter_topic(running.bootstrap, topic, TIERED)

    def is_copied(_: int) -> bool:
        nonlocal looked
        now = time.perf_counter()
        if now - looked < LOOK:
            return False
        looked = now
        if now - begin > LIMIT:
            raise TimeoutError(f"{topic} was not copied within {LIMIT:.0f} s")
        return len(list(place.glob("*.log"))) == 1

    produce, _ = probe.until(is_copied)
    return looked - begin, produce


def _reads(bootstrap: str, end: int) -> dict[str, float]:
    """Without Java nothing is measured: its tool is needed."""
    try:
        jars()
    except NoKafka:
        return {}
    cold, local, warm = (consumer_performance(bootstrap, topic, end) for topic in ("tiered", "local", "tiered"))
    return {"tier_consume_cold_mb_s": cold, "tier_consume_warm_mb_s": warm, "tier_consume_share": warm / local}


class Probe:
    """Produces with acks=all to another topic, and reads each record back from the local log."""

    def __init__(self, bootstrap: str) -> None:
        create(bootstrap, "probe", {})
        address = leader_of(bootstrap, "probe")
        self._producer, self._consumer = Wire(address), Wire(address)
        self._body = produce_body("probe", batch_of(100), -1)
        self._end = 0

    def until(self, done: Callable[[int], bool]) -> tuple[float, float]:
        """Call ``done`` with the number of records after each; return the p99 of produce and of fetch in ms."""
        produce: list[float] = []
        fetch: list[float] = []
        while not done(len(produce)):
            begin = time.perf_counter()
            self._producer.send(PRODUCE, PRODUCE_VERSION, self._body)
            if error := produced_error(self._producer.receive()):
                raise RuntimeError(f"produce failed with error {error}")
            produced = time.perf_counter()
            self._consumer.send(FETCH, FETCH_VERSION, fetch_body("probe", self._end))
            if not fetched_bytes(self._consumer.receive()):
                raise RuntimeError("the fetch came back without the record")
            produce.append(produced - begin)
            fetch.append(time.perf_counter() - produced)
            self._end += 1
            time.sleep(PAUSE)
        return percentile(produce, 99), percentile(fetch, 99)
