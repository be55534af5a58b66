"""`make bench`: the same work against Milena and Kafka 4.3.1 in one run; the ratios, and JSON in benchmarks/results.

python -m benchmarks [--milena-only] [FIGURES...]      figures: start idle latency throughput partitions
SHORT=1: less work
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import figures
from benchmarks.figures import Figures, Sizes
from benchmarks.goals import report
from benchmarks.peers import Kafka, Milena, Peer, Running
from tests.oracle.kafka import NoKafka

ON_A_CLUSTER: dict[str, tuple[int, Callable[[Running, Sizes], Figures]]] = {
    "idle": (3, figures.idle),
    "latency": (1, figures.latency),
    "throughput": (1, figures.throughput),
    "partitions": (3, figures.partitions),
}
RESULTS = Path(__file__).with_name("results")


def main(arguments: list[str]) -> int:
    sizes = Sizes(short=bool(os.environ.get("SHORT")))
    wanted = [word for word in arguments if not word.startswith("-")] or ["start", *ON_A_CLUSTER]
    peers: list[Peer] = [Milena()]
    if "--milena-only" not in arguments:
        try:
            peers.append(Kafka())
        except NoKafka as reason:
            print(f"Without Kafka: {reason}", file=sys.stderr)
    results: dict[str, Figures] = {peer.name: {} for peer in peers}
    for what in wanted:
        for peer in peers:
            print(f"{what}: {peer.name}", file=sys.stderr, flush=True)
            results[peer.name] |= measure(peer, what, sizes)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    file.write_text(
        json.dumps({"machine": machine, "short": bool(os.environ.get("SHORT")), **results}, indent=1) + "\n"
    )
    print(report(results))
    print(f"\nwritten to {file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")
    return 0


def measure(peer: Peer, what: str, sizes: Sizes) -> Figures:
    if what == "start":
        return figures.start_up(peer, sizes)
    brokers, function = ON_A_CLUSTER[what]
    with peer.cluster(brokers) as running:
        return function(running, sizes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
