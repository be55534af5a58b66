"""The stages of a measurement, and the systems that each measures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.cleaning import cleaning
from benchmarks.codecs import codecs
from benchmarks.console import console
from benchmarks.crowds import fan_out, many_producers
from benchmarks.forms import COMPILED, PURE
from benchmarks.groups import rebalance
from benchmarks.histories import histories
from benchmarks.kfake import Kfake
from benchmarks.latency import latency
from benchmarks.pages import pages
from benchmarks.partitions import many, thousand
from benchmarks.peers import Kafka, Peer, Running
from benchmarks.replication import replicated_latency, replicated_load
from benchmarks.resets import resets
from benchmarks.scans import scans
from benchmarks.segments import segments
from benchmarks.sizes import Sizes
from benchmarks.spark import spark
from benchmarks.startup import start_up
from benchmarks.throughput import throughput
from benchmarks.tier import tier
from benchmarks.tier_cleaning import tier_cleaning
from benchmarks.transactions import replicated_transactions, transactional_ids, transactions
from benchmarks.turns import Rounds, in_turns


@dataclass(frozen=True)
class Stage:
    """Starts the clusters that it measures."""

    measure: Callable[[Peer, Sizes], Rounds]
    both_forms: bool = False
    """Measures both flavours even with SHORT, which otherwise measures only the compiled one."""
    one_form: bool = False
    """Does not use compiled code: only the first flavour is measured."""
    kafka: bool = True
    kafka_takes_minutes: bool = False


@dataclass(frozen=True)
class ClusterStage:
    """Measures a cluster of this many brokers that was not used before, except with SHORT."""

    brokers: int
    measure: Callable[[Running, Sizes], Rounds]
    both_forms: bool = True
    kfake: bool = False


STAGES: dict[str, Stage | ClusterStage] = {
    "start": Stage(start_up, both_forms=True),
    "latency": ClusterStage(1, latency, kfake=True),
    "crowd": ClusterStage(1, many_producers, kfake=True),
    "fan-out": ClusterStage(1, fan_out, kfake=True),
    "group": ClusterStage(1, rebalance),
    "throughput": ClusterStage(1, throughput, both_forms=False),
    "codecs": ClusterStage(1, codecs, both_forms=False),
    "transactions": ClusterStage(1, transactions, both_forms=False),
    "scans": Stage(scans, both_forms=True, kafka=False),
    "replicated": ClusterStage(3, replicated_latency),
    "replicated-load": ClusterStage(3, replicated_load),
    "replicated-transactions": ClusterStage(3, replicated_transactions, both_forms=False),
    "transactional-ids": Stage(transactional_ids),
    "partitions": Stage(thousand),
    "reset": Stage(resets),
    "many": Stage(many, kafka_takes_minutes=True),
    "cleaning": Stage(cleaning),
    "tier": Stage(tier),
    "tier-cleaning": Stage(tier_cleaning, kafka=False),
    "segments": Stage(segments, kafka=False),
    "spark": Stage(spark, both_forms=True),
    "histories": Stage(histories, one_form=True, kafka=False),
    "console": Stage(console, one_form=True, kafka=False),
    "pages": Stage(pages, one_form=True, kafka=False),
}


def groups(wanted: Sequence[str], *, short: bool) -> list[list[str]]:
    """Stages that share their clusters."""

    def key(name: str) -> int | str:
        stage = STAGES[name]
        return stage.brokers if short and isinstance(stage, ClusterStage) else name

    return [list(names) for _, names in groupby(wanted, key)]


def run(names: Sequence[str], peers: Sequence[Peer], sizes: Sizes) -> dict[str, dict[str, float]]:
    """Return the figures by peer. Starting the clusters counts with the first stage that needs them, and is printed."""
    found: dict[str, dict[str, float]] = {peer.name: {} for peer in peers}
    with ExitStack() as clusters:
        running: dict[str, Running] = {}
        for name in names:
            begin = time.perf_counter()
            rounds: dict[str, Rounds] = {}
            for peer in measured(STAGES[name], peers, sizes):
                stage = STAGES[name]
                if isinstance(stage, Stage):
                    rounds[peer.name] = stage.measure(peer, sizes)
                    continue
                if peer.name not in running:
                    running[peer.name] = clusters.enter_context(on_new_folder(peer, stage.brokers))
                rounds[peer.name] = stage.measure(running[peer.name], sizes)
            for peer_name, figures in in_turns(name, rounds).items():
                found[peer_name].update(figures)
            print(f"{name}: {', '.join(rounds)}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return found


def measured(stage: Stage | ClusterStage, peers: Sequence[Peer], sizes: Sizes) -> Iterator[Peer]:
    """The systems that a stage measures."""
    forms = {PURE, COMPILED} & {peer.name for peer in peers}
    for peer in peers:
        if peer.name == Kafka.name:
            fits = isinstance(stage, ClusterStage) or (stage.kafka and not (sizes.short and stage.kafka_takes_minutes))
        elif peer.name == Kfake.name:
            fits = isinstance(stage, ClusterStage) and stage.kfake
        elif isinstance(stage, Stage) and stage.one_form:
            fits = peer.name == COMPILED or len(forms) == 1
        else:
            fits = peer.name == COMPILED or len(forms) == 1 or stage.both_forms or not sizes.short
        if fits:
            yield peer


@contextmanager
def on_new_folder(peer: Peer, brokers: int) -> Iterator[Running]:
    with TemporaryDirectory(prefix=f"bench-{peer.name}-") as folder, peer.cluster(brokers, Path(folder)) as running:
        yield running
