"""`make bench`: the same work against Milena and Kafka 4.3.1 in one run; the ratios, and JSON in benchmarks/results.

Stages: start latency throughput codecs replicated replicated-load partitions many tier segments.
SHORT=1: less work, on one cluster where stages that follow each other need the same; many partitions on Milena alone
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from argparse import ArgumentParser, RawTextHelpFormatter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.codecs import codecs
from benchmarks.goals import report
from benchmarks.latency import latency
from benchmarks.partitions import many, thousand
from benchmarks.peers import Kafka, Milena, Peer, Running
from benchmarks.replication import NotReplicated, replicated_latency, replicated_load
from benchmarks.segments import segments
from benchmarks.sizes import Figures, Sizes
from benchmarks.startup import start_up
from benchmarks.throughput import throughput
from benchmarks.tier import tier
from tests.oracle.kafka import NoKafka

Stage = Callable[[Peer, Sizes], Figures]
Measure = Callable[[Running, Sizes], Figures]
RESULTS = Path(__file__).with_name("results")
STAGES: dict[str, Stage | tuple[int, Measure]] = {
    "start": start_up,
    "latency": (1, latency),
    "throughput": (1, throughput),
    "codecs": (1, codecs),
    "replicated": (3, replicated_latency),
    "replicated-load": (3, replicated_load),
    "partitions": thousand,
    "many": many,
    "tier": tier,
    "segments": segments,
}
"""With a number of brokers: what is measured on a cluster of so many that nothing else was done with, but for SHORT."""
TOO_LONG = ("many",)
"""Stages that take Kafka minutes."""


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=RawTextHelpFormatter)
    parser.add_argument("--milena-only", action="store_true", help="leave Kafka out")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="all, where none is named")
    options = parser.parse_args(arguments)
    if unknown := [word for word in options.stages if word not in STAGES]:
        parser.error(f"no stage {unknown[0]}; there are {', '.join(STAGES)}")
    wanted = options.stages or list(STAGES)
    sizes = Sizes(short=bool(os.environ.get("SHORT")))
    results: dict[str, dict[str, float]] = {}
    peers = peers_here(milena_only=options.milena_only)
    for stages in groups(wanted, short=sizes.short):
        for peer in peers if stages[0] not in TOO_LONG or not sizes.short else peers[:1]:
            figures = results.setdefault(peer.name, {})
            with ExitStack() as cluster:
                run(stages, peer, sizes, figures, cluster)
    print(report(results))
    print(f"\nwritten to {write(results)}")
    return 0


def groups(wanted: list[str], *, short: bool) -> list[list[str]]:
    """Stages that share a cluster."""

    def key(stage: str) -> int | str:
        found = STAGES[stage]
        return found[0] if short and isinstance(found, tuple) else stage

    return [list(stages) for _, stages in groupby(wanted, key)]


def run(stages: list[str], peer: Peer, sizes: Sizes, figures: dict[str, float], cluster: ExitStack) -> None:
    """What a cluster's start takes counts with the first of its stages, and is said to."""
    running = None
    for name in stages:
        begin = time.perf_counter()
        stage = STAGES[name]
        try:
            if not isinstance(stage, tuple):
                figures.update(stage(peer, sizes))
            else:
                brokers, measure = stage
                running = running or cluster.enter_context(on_new_folder(peer, brokers))
                figures.update(measure(running, sizes))
        except NotReplicated as reason:
            print(f"{name}: {peer.name} is not measured: {reason}", file=sys.stderr, flush=True)
        print(f"{name}: {peer.name}, {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)


@contextmanager
def on_new_folder(peer: Peer, brokers: int) -> Iterator[Running]:
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder, peer.cluster(brokers, Path(folder)) as running:
        yield running


def peers_here(*, milena_only: bool) -> list[Peer]:
    """Milena, and Kafka where it can be run; else the reason is said."""
    if milena_only:
        return [Milena()]
    try:
        return [Milena(), Kafka()]
    except NoKafka as reason:
        print(f"Milena alone is measured: {reason}", file=sys.stderr)
        return [Milena()]


def write(results: dict[str, dict[str, float]]) -> str:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    content = {"machine": machine, "short": bool(os.environ.get("SHORT")), **results}
    file.write_text(json.dumps(content, indent=1) + "\n")
    return os.path.relpath(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
