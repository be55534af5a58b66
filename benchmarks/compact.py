"""A topic whose keys were each written ten times, in the tier, a local folder: the job ``compact`` on local[2] carries
out its leader's work order, and the leader checks and publishes what was made. Beside that, the leader cleans as much
by itself. No Kafka does that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.cleaning import SETTINGS, TOPIC, Watch, fill
from benchmarks.peers import Milena, Peer, Running
from benchmarks.process_tree import ProcessTree, with_ended_children
from benchmarks.sizes import Figures, Sizes
from benchmarks.tier_reads import TIERED, create, settings
from benchmarks.turns import NotMeasured, Rounds
from milena.tiered.orders.order import MANIFEST, ORDER, decode_order
from milena.tiered.store.staging import WORK
from milena.up.layout import ClusterDir
from tests.wire.admin import alter_topic
from tests.wire.waiting import wait_until

SEGMENTS: Final = 40
LIMIT: Final = 3600.0
LOOK: Final = 0.1
PUBLISHED: Final = '"log cleaned in the tier"'
FAILED: Final = ('"result of a work order refused"', '"work order taken back', '"cleaning in the tier failed"')
KINDS: Final = {"driver": b"benchmarks.compact_job", "jvm": b"SparkSubmit", "worker": b"pyspark.daemon"}


def compact(peer: Peer, sizes: Sizes) -> Rounds:
    if not isinstance(peer, Milena):
        return
    if find_spec("pyspark") is None or shutil.which("java") is None:
        raise NotMeasured("Spark or a JDK is missing")
    figures: dict[str, float] = {}
    with _written(peer, sizes.ordered_mb, orders=True) as topic:
        figures |= topic.cleaned_by_order(peer)
    with _written(peer, sizes.ordered_mb, orders=False) as topic:
        figures |= topic.cleaned_by_its_leader()
    yield figures


@contextmanager
def _written(peer: Milena, megabytes: int, *, orders: bool) -> Iterator[_Topic]:
    """All but the active segment is in the tier alone, and nothing is compacted yet."""
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as name:
        folder = Path(name)
        tiered = settings(folder / "tier") | SETTINGS | {"remote.log.compaction.enable": "true"}
        more = {"remote.log.compaction.work.orders.enable": "true"} if orders else {}
        with peer.cluster(1, folder / "cluster", tiered | more) as running:
            create(running.bootstrap, TOPIC, {"segment.bytes": str((megabytes << 20) // SEGMENTS), **TIERED})
            fill(running, megabytes)
            topic = _Topic(running, folder)
            wait_until(topic.is_copied, "all but the active segment to be in the tier alone", LIMIT)
            yield topic


class _Topic(Watch):
    def __init__(self, running: Running, folder: Path) -> None:
        super().__init__(running)
        self._tier = folder / "tier"
        self._bootstrap = running.bootstrap
        (self._broker_pid,) = running.brokers
        self._log = Path(ClusterDir(str(folder / "cluster")).log("broker-1"))

    def is_copied(self) -> bool:
        return len(list((self.data / f"{TOPIC}-0").glob("*.log"))) == 1

    def cleaned_by_order(self, peer: Milena) -> Figures:
        self._let_compact()
        wait_until(lambda: bool(self._staged(ORDER)), "the work order", LIMIT)
        (path,) = self._staged(ORDER)
        order = decode_order(path.read_bytes())
        gigabytes = sum(group.size for group in order.groups) / (1 << 30)
        command = [sys.executable, "-m", "benchmarks.compact_job", str(self._tier)]
        environment = {**os.environ, **peer.environment}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as job:
            assert job.stdout is not None
            job.stdout.readline()
            tree = ProcessTree(job.pid, KINDS)
            tree.look()
            started = {kind: tree.of(kind).cpu for kind in KINDS}
            while not self._staged(MANIFEST) and job.poll() is None:
                tree.look()
                time.sleep(LOOK)
            before, begin = with_ended_children(self._broker_pid), time.perf_counter()
            told = job.stdout.read()
        if job.returncode:
            raise RuntimeError(f"the job ended with {job.returncode}")
        checked = self._until_published(before, begin, gigabytes)
        cpu = {kind: tree.of(kind).cpu - started[kind] for kind in KINDS}
        return {
            "ordered_mb_s": 1024 * gigabytes / json.loads(told)["seconds"],
            "ordered_cpu_s_gb": sum(cpu.values()) / gigabytes,
            "ordered_jvm_cpu_s_gb": cpu["jvm"] / gigabytes,
            **{f"ordered_{kind}_mib": tree.of(kind).mib for kind in KINDS},
            "ordered_check_mb_s": checked["mb_s"],
            "ordered_check_cpu_s_gb": checked["cpu_s_gb"],
            "ordered_check_mib": self.worker_mib,
        }

    def cleaned_by_its_leader(self) -> Figures:
        gigabytes = sum(path.stat().st_size for path in self._tier.rglob("*.log") if TOPIC in str(path)) / (1 << 30)
        before, begin = with_ended_children(self._broker_pid), time.perf_counter()
        self._let_compact()
        return {f"unordered_{name}": value for name, value in self._until_published(before, begin, gigabytes).items()}

    def _let_compact(self) -> None:
        alter_topic(self._bootstrap, TOPIC, {"cleanup.policy": "compact"})

    def _until_published(self, before: float, begin: float, gigabytes: float) -> Figures:
        """``before``: the broker's processor time at ``begin``."""

        def is_so() -> bool:
            self.look_at_workers()
            log = self._log.read_text()
            if failed := [one for one in FAILED if one in log]:
                raise RuntimeError(f"the broker says {', '.join(failed)}")
            return PUBLISHED in log

        wait_until(is_so, "the log to be cleaned", LIMIT)
        seconds, cpu = time.perf_counter() - begin, with_ended_children(self._broker_pid) - before
        return {"mb_s": 1024 * gigabytes / seconds, "cpu_s_gb": cpu / gigabytes}

    def _staged(self, name: str) -> list[Path]:
        return list((self._tier / WORK).glob(f"{TOPIC}-0-*/*/{name}"))
