"""How soon an empty follower joins the ISR of a log most of which is in the tier: 1,000 segments, 2 GB as sparse files
(SHORT: 64 MB, since restoring them reads them all).

Milena alone: the tier is written without a broker, and `milena tier restore` makes a cluster of it.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka.admin import AdminClient

from benchmarks.sizes import Sizes
from benchmarks.tier_reads import fill, settings
from benchmarks.wire import leader_id, leader_of
from milena.protocol.records.records import BatchBuilder
from milena.protocol.uuids import to_text
from milena.storage.files.producer_snapshot import encode_snapshot
from milena.storage.state.producer_state import ProducerState
from milena.testing.local_cluster import MILENA, LocalCluster
from milena.tiered.store.tier_names import ROOT

TOPIC: Final = "long"
SEGMENTS: Final = 1_000
LOCAL: Final = 20
"""MB."""
HEAD: Final = 256
"""Bytes of a segment's only batch before the zeros of its only record."""
LIMIT: Final = 60.0


def follower_joins(sizes: Sizes, form: Mapping[str, str]) -> float:
    """Seconds from the reassignment that adds it until it is in the ISR. ``form`` is added to the environment."""
    with TemporaryDirectory(prefix="bench-tier-") as name:
        folder = Path(name)
        write_tier(folder / "tier", sizes.tier_segment_bytes)
        overrides = settings(folder / "tier")
        words = [word for key, value in overrides.items() for word in ("--override", f"{key}={value}")]
        place = ["--dir", str(folder / "cluster"), "--tier", str(folder / "tier")]
        _milena(form, "tier", "restore", *place, "--brokers", "2", "--replicas", "1", *words)
        with LocalCluster.start(folder / "cluster", brokers=2, overrides=overrides, environment=form) as cluster:
            leader = leader_id(cluster.bootstrap, TOPIC)
            fill(leader_of(cluster.bootstrap, TOPIC), TOPIC, LOCAL)
            follower = next(node.id for node in cluster.brokers if node.id != leader)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
            begin = time.perf_counter()
            _milena(form, "reassign", "start", f"{TOPIC}:0={leader},{follower}", "-b", cluster.bootstrap)
            while follower not in admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].isrs:
                if time.perf_counter() - begin > LIMIT:
                    raise TimeoutError("the follower is not in the ISR")
                time.sleep(0.01)
            elapsed = time.perf_counter() - begin
            own = Path(cluster.nodes[follower].log_dirs[0], f"{TOPIC}-0")
            if (first := min(int(path.stem) for path in own.glob("*.log"))) < SEGMENTS:
                raise RuntimeError(f"the follower has copied what is in the tier, from {first} on")
            return elapsed


def write_tier(folder: Path, size: int) -> None:
    """Segments of one record each, whose value is zeros that take no space on the disk (a sparse file)."""
    place = folder / ROOT / f"{TOPIC}-0-{to_text(uuid.uuid4())}"
    place.mkdir(parents=True)
    builder = BatchBuilder()
    builder.append(timestamp=time.time_ns() // 1_000_000, value=bytes(size))
    batch = bytearray(builder.build())
    batch[12:16] = bytes(4)  # leader epoch 0
    snapshot = encode_snapshot(ProducerState())
    for number in range(SEGMENTS):
        path = f"{place}/{number:020d}-{to_text(uuid.uuid4())}"
        batch[:8] = number.to_bytes(8, "big")  # not covered by the checksum
        with open(f"{path}.log", "wb") as log:
            log.write(batch[:HEAD])
            log.truncate(len(batch))
        for suffix, content in (
            (".index", b""),
            (".timeindex", b""),
            (".snapshot", snapshot),
            (".leader_epoch_checkpoint", b"0\n1\n0 0\n"),
        ):
            Path(path + suffix).write_bytes(content)


def _milena(form: Mapping[str, str], *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    done = subprocess.run([*MILENA, *words], capture_output=True, text=True, env={**environment, **form}, check=False)
    if done.returncode:
        raise RuntimeError(f"milena {words[0]}: {done.stdout}{done.stderr}")
