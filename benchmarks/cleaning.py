"""Local compaction of a topic whose keys were each written ten times: the cost of a cleaning in a running broker, and
its effect on produce latency."""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.peers import Milena, Peer, Running
from benchmarks.sizes import Sizes
from benchmarks.tier import Probe
from benchmarks.tier_reads import create, fill_with
from benchmarks.turns import Rounds
from benchmarks.wire import leader_id, leader_of
from milena.protocol.records.records import BatchBuilder
from tests.wire.admin import alter_topic

TOPIC: Final = "keyed"
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}
WRITTEN: Final = 10
"""How often each key is written."""
VALUE, BATCH = 1_000, 15
SEGMENTS: Final = 10
AT_LEAST: Final = 2.0
"""Seconds of the latency measurement before cleaning."""
LOOK: Final = 0.05
LIMIT: Final = 600.0


def cleaning(peer: Peer, sizes: Sizes) -> Rounds:
    with (
        TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder,
        peer.cluster(1, Path(folder), SETTINGS) as running,
    ):
        yield _figures(running, sizes.cleaned_mb, workers=isinstance(peer, Milena))


def _figures(running: Running, megabytes: int, *, workers: bool) -> dict[str, float]:
    segment = (megabytes << 20) // SEGMENTS
    create(running.bootstrap, TOPIC, {"segment.bytes": str(segment)})
    fill(running, megabytes)
    probe = Probe(running.bootstrap)
    quiet_end = time.perf_counter() + AT_LEAST
    before, _ = probe.until(lambda _: time.perf_counter() >= quiet_end)
    watch = Watch(running)
    dirty = watch.size()
    alter_topic(running.bootstrap, TOPIC, {"cleanup.policy": "compact"})
    begin = time.perf_counter()
    meanwhile, _ = probe.until(watch.is_clean)
    seconds = watch.looked - begin
    if watch.size() > dirty / 2:
        raise RuntimeError(f"of {dirty} bytes {watch.size()} are left")
    figures = {
        "cleaned_mb_s": dirty / (1 << 20) / seconds,
        "cleaning_produce_p99_ms": meanwhile,
        "cleaning_produce_growth": meanwhile / before,
    }
    return figures | ({"cleaner_memory_mib": watch.worker_mib} if workers else {})


def fill(running: Running, megabytes: int) -> None:
    """Yield each key in turn, with values that do not repeat."""
    records = (megabytes << 20) // VALUE
    keys, some = records // WRITTEN, os.urandom(VALUE + (1 << 16))
    now = time.time_ns() // 1_000_000

    def batch(first: int) -> bytes:
        builder = BatchBuilder()
        for number in range(first, first + BATCH):
            at = number * 7 % (1 << 16)
            builder.append(timestamp=now, key=b"key-%010d" % (number % keys), value=some[at : at + VALUE])
        return builder.build()

    fill_with(leader_of(running.bootstrap, TOPIC), TOPIC, map(batch, range(0, records, BATCH)))


class Watch:
    """Observes the files of the topic's partition, and the worker processes of its broker."""

    def __init__(self, running: Running) -> None:
        node = leader_id(running.bootstrap, TOPIC)
        self.data = running.members.data(node)
        self._broker = running.members.pid(node)
        self._begun = self.looked = time.perf_counter()
        self.worker_mib = 0.0
        """The maximum resident memory of a worker."""

    def size(self) -> int:
        return sum(file.stat().st_size for file in (self.data / f"{TOPIC}-0").glob("*.log"))

    def is_clean(self, _: int) -> bool:
        """Whether all closed segments are clean according to the checkpoint."""
        if not self.is_time():
            return False
        checkpoint = self.data / "cleaner-offset-checkpoint"
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        active = max(int(file.stem) for file in (self.data / f"{TOPIC}-0").glob("*.log"))
        return any(line.split()[:2] == [TOPIC, "0"] and int(line.split()[2]) >= active for line in lines)

    def is_time(self) -> bool:
        """Sample the workers; return whether to continue. Raises TimeoutError."""
        now = time.perf_counter()
        if now - self.looked < LOOK:
            return False
        self.looked = now
        if now - self._begun > LIMIT:
            raise TimeoutError(f"{TOPIC} was not cleaned within {LIMIT:.0f} s")
        self.look_at_workers()
        return True

    def look_at_workers(self) -> None:
        children = Path(f"/proc/{self._broker}/task/{self._broker}/children").read_text().split()
        for child in children:
            try:
                status = Path(f"/proc/{child}/status").read_text()
            except OSError:
                continue  # the process has just ended
            peak = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
            self.worker_mib = max(self.worker_mib, *(int(kib) / 1024 for kib in peak), 0.0)
