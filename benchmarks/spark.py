"""Spark reads topics of records of 1 KB: our source from the tier, and Spark's own Kafka connector from the brokers,
Milena's and Kafka's. Uncompressed with two cores and with one, and compressed by each codec."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks.forms import PURE
from benchmarks.peers import Milena, Peer
from benchmarks.sizes import Sizes
from benchmarks.spark_reader import COLUMNS
from benchmarks.spark_topics import CODECS, NONE, RECORD, fill, wait_until_tiered
from benchmarks.tier_reads import settings
from benchmarks.turns import NotMeasured, Rounds
from tests.pipeline.connector import NoConnector, connector_jars

ROUNDS: Final = 3
CONNECTOR: Final = "_connector"
"""In the names of figures of Spark's connector; but Kafka's have the name of ours, which are compared with them."""
MADE: Final = "_made"
"""In those of a source that reads nothing."""


class Read(NamedTuple):
    """What one process reads, topic after topic, by codec."""

    cores: int
    codecs: Sequence[str]

    def name(self, codec: str) -> str:
        """Of its figures."""
        return f"spark_{codec}" if codec != NONE else "spark" if self.cores > 1 else "spark_one_core"


def spark(peer: Peer, sizes: Sizes) -> Rounds:
    """The pure form is read in uncompressed with two cores alone. Without the connector's jars nothing is measured:
    there is nothing to compare with."""
    if find_spec("pyspark") is None:
        raise NotMeasured("Spark is not installed (make spark)")
    try:
        jars = connector_jars()
    except NoConnector as reason:
        raise NotMeasured(str(reason)) from None
    reads = [Read(2, [NONE])] if peer.name == PURE else [Read(2, [NONE, *CODECS]), Read(1, [NONE])]
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as name:
        folder = Path(name)
        tier = folder / "tier" if isinstance(peer, Milena) else None
        with peer.cluster(1, folder / "cluster", settings(tier) if tier else None) as running:
            for codec in reads[0].codecs:
                size = sizes.spark_mb if codec == NONE else sizes.spark_codec_mb
                fill(running.bootstrap, _topic(codec), codec, size, tiered=tier is not None)
            brokers = {"kafka.bootstrap.servers": running.bootstrap, "startingOffsets": "earliest"}
            figures: dict[str, float] = {}
            if isinstance(peer, Milena) and tier is not None:
                wait_until_tiered(running.members.data(1), tier)
                options = {"tier": str(tier), "columns": ",".join(COLUMNS)}
                figures |= _all(reads, "milena", options, "", peer.environment, "")
                if peer.name != PURE:
                    figures |= _all(reads, "kafka", brokers, jars, {}, CONNECTOR)
                    made = {**options, "rows": str((sizes.spark_mb << 20) // RECORD)}
                    figures |= _all([Read(2, [NONE])], "made", made, "", {}, MADE)
            else:
                figures |= _all(reads, "kafka", brokers, jars, {}, "")
    yield figures | _shares(figures)


def _topic(codec: str) -> str:
    return f"spark-{codec}"


def _shares(figures: Mapping[str, float]) -> dict[str, float]:
    """Our rates through those of the connector at the same brokers."""
    rates = {name.removesuffix("_mb_s"): rate for name, rate in figures.items() if name.endswith("_mb_s")}
    return {
        f"{name}_share": rate / rates[name + CONNECTOR] for name, rate in rates.items() if name + CONNECTOR in rates
    }


def _all(
    reads: Sequence[Read], form: str, options: Mapping[str, str], jars: str, environment: Mapping[str, str], suffix: str
) -> dict[str, float]:
    """``environment``: of the driver, and so of its workers. ``suffix``: of the names of figures."""
    figures: dict[str, float] = {}
    for read in reads:
        frames = [
            {"format": form, "options": {**options, "subscribe": _topic(codec)}, "rounds": ROUNDS}
            for codec in read.codecs
        ]
        found = _read({"master": f"local[{read.cores}]", "jars": jars, "frames": frames}, environment)
        for codec, result in zip(read.codecs, found, strict=True):
            figures |= _figures(read.name(codec) + suffix, result)
    return figures


def _read(asked: Mapping[str, object], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.spark_reader", json.dumps(asked)]
    here = {"PYTHONPATH": str(Path(__file__).parents[1])}  # workers have a source of the benchmarks
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment, **here}
    )
    if done.returncode:
        raise RuntimeError(f"Spark failed: {done.stderr[-2000:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _figures(name: str, result: Mapping[str, Any]) -> dict[str, float]:
    size = result["rows"] * RECORD / (1 << 20)
    return {
        f"{name}_mb_s": size / median(result["seconds"]),
        f"{name}_rows_s": result["rows"] / median(result["seconds"]),
        f"{name}_cpu_ms_mb": median(result["cpu"]) / size * 1000,
        f"{name}_memory_mib": result["mib"],
    }
