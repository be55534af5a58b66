"""`make bench`: the same work against both forms of Milena, Kafka 4.4.0 and kfake, in one run and in turns; the ratios,
and JSON in benchmarks/results.

Stages: start latency crowd fan-out group throughput codecs transactions scans replicated replicated-load
replicated-transactions transactional-ids partitions reset many cleaning tier tier-cleaning segments spark histories
console pages; and compact, which is measured if it is named.
SHORT=1: less work, on one cluster where stages that follow each other need the same; where the forms are not compared
the compiled one alone; many partitions on Milena alone. KFAKE names a program that starts kfake.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from argparse import ArgumentParser, RawTextHelpFormatter
from pathlib import Path

from benchmarks.forms import COMPILED, PURE, NoForm
from benchmarks.goals import report
from benchmarks.kfake import Kfake, NoKfake
from benchmarks.peers import Kafka, Milena, Peer
from benchmarks.sizes import Sizes
from benchmarks.stages import STAGES, groups, run
from tests.oracle.kafka import NoKafka

RESULTS = Path(__file__).with_name("results")


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=RawTextHelpFormatter)
    parser.add_argument("--milena-only", action="store_true", help="leave Kafka and kfake out")
    parser.add_argument("--ids", type=int, help="transactional ids of the stage transactional-ids")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="all but compact, where none is named")
    options = parser.parse_args(arguments)
    if unknown := [word for word in options.stages if word not in STAGES]:
        parser.error(f"no stage {unknown[0]}; there are {', '.join(STAGES)}")
    wanted = options.stages or list(STAGES)
    sizes = Sizes(short=bool(os.environ.get("SHORT")))
    if options.ids is not None:
        sizes.transactional_ids = options.ids
    peers = forms_here() + ([] if options.milena_only else others_here())
    results: dict[str, dict[str, float]] = {peer.name: {} for peer in peers}
    for stages in groups(wanted, short=sizes.short):
        for name, figures in run(stages, peers, sizes).items():
            results[name].update(figures)
    print(report(results))
    print(f"\n{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"\nwritten to {write(results)}")
    return 0


def forms_here() -> list[Peer]:
    """Return Milena's build flavours: the compiled one if it has been built; else print why not."""
    try:
        return [Milena(COMPILED), Milena(PURE)]
    except NoForm as reason:
        print(f"the column {COMPILED} is absent: {reason}", file=sys.stderr)
        return [Milena(PURE)]


def others_here() -> list[Peer]:
    """Return Kafka and kfake if they can be run; else print why not."""
    found: list[Peer] = []
    for make in (Kafka, Kfake):
        try:
            found.append(make())
        except (NoKafka, NoKfake) as reason:
            print(f"the column {make.name} is absent: {reason}", file=sys.stderr)
    return found


def processor() -> str:
    """The model of the CPU, with family, model and stepping where Linux reports them: vendors reuse the name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    numbers = ", ".join(f"{name} {fields[name]}" for name in ("cpu family", "model", "stepping") if name in fields)
    return f"{fields.get('model name', 'unknown processor')} ({numbers})"


def write(results: dict[str, dict[str, float]]) -> str:
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    machine = {
        "processor": processor(),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }
    content = {"machine": machine, "short": bool(os.environ.get("SHORT")), **results}
    file.write_text(json.dumps(content, indent=1) + "\n")
    return os.path.relpath(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
