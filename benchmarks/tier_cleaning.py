"""Compaction in the tier (a local folder) of a topic whose keys were each written ten times: its cost, and its effect
on produce latency. Kafka does not have it."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.cleaning import AT_LEAST, LOOK, SEGMENTS, SETTINGS, TOPIC, Watch, fill
from benchmarks.peers import Peer, Running
from benchmarks.sizes import Sizes
from benchmarks.tier import Probe
from benchmarks.tier_reads import TIERED, create, settings
from benchmarks.turns import Rounds
from tests.wire.admin import alter_topic

COMPACTED: Final = {
    "remote.log.compaction.enable": "true",
    "remote.log.compaction.source.retention.ms": "0",  # the size of the folder then shows what was cleaned
}


def tier_cleaning(peer: Peer, sizes: Sizes) -> Rounds:
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as name:
        folder = Path(name)
        overrides = settings(folder / "tier") | SETTINGS | COMPACTED
        with peer.cluster(1, folder / "cluster", overrides) as running:
            yield _figures(running, folder / "tier", sizes.cleaned_mb)


def _figures(running: Running, tier: Path, megabytes: int) -> dict[str, float]:
    segment = (megabytes << 20) // SEGMENTS
    create(running.bootstrap, TOPIC, {"segment.bytes": str(segment), **TIERED})
    fill(running, megabytes)
    watch = _Tier(running, tier)
    while not watch.is_copied():
        time.sleep(LOOK)
    probe = Probe(running.bootstrap)
    quiet_end = time.perf_counter() + AT_LEAST
    before, _ = probe.until(lambda _: time.perf_counter() >= quiet_end)
    dirty = watch.stored()
    alter_topic(running.bootstrap, TOPIC, {"cleanup.policy": "compact"})
    begin = time.perf_counter()
    meanwhile, _ = probe.until(lambda _: watch.is_shrunk(dirty))
    return {
        "tier_cleaned_mb_s": dirty / (1 << 20) / (watch.looked - begin),
        "tier_cleaning_produce_p99_ms": meanwhile,
        "tier_cleaning_produce_growth": meanwhile / before,
        "tier_cleaner_memory_mib": watch.worker_mib,
    }


class _Tier(Watch):
    """Observes the topic's files in the tier too."""

    def __init__(self, running: Running, tier: Path) -> None:
        super().__init__(running)
        self._tier = tier

    def stored(self) -> int:
        found = 0
        for file in self._tier.rglob("*.log"):
            try:
                found += file.stat().st_size if f"{TOPIC}-0-" in str(file) else 0
            except OSError:
                continue  # the file has just been deleted
        return found

    def is_copied(self) -> bool:
        """Whether only the active segment is local."""
        return self.is_time() and len(list((self.data / f"{TOPIC}-0").glob("*.log"))) == 1

    def is_shrunk(self, dirty: int) -> bool:
        return self.is_time() and self.stored() < dirty * 0.15
