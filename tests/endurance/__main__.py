"""`python -m tests.endurance --minutes 60`: produce, consume, groups, topics, moves, the tier.

Samples memory, descriptors and threads of each node; prints them as a table, and exits with code 1 if they grow.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, RawTextHelpFormatter
from pathlib import Path
from tempfile import TemporaryDirectory

from milena.testing.local_cluster import LocalCluster
from milena.up import nodes_file
from milena.up.layout import ClusterDir
from tests.attack.tally import failures_logged, table
from tests.endurance.load import Load
from tests.endurance.samples import Sample, sample, verdict
from tests.wire.memory import MIB

ROWS = 12
OVERRIDES = {
    "remote.log.manager.task.interval.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "group.initial.rebalance.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
}


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(prog="python -m tests.endurance", description=__doc__, formatter_class=RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args(arguments)
    with TemporaryDirectory(prefix="endurance-") as folder:
        with LocalCluster.start(folder, brokers=3, overrides=OVERRIDES, options=["--metrics", "0"]) as cluster:
            samples, faults = run(cluster, options.minutes)
        print(report(samples))
    for fault in faults:
        print(f"fault: {fault}")
    print(f"{'failed' if faults else 'passed'}: {len(faults)} faults")
    return 1 if faults else 0


def run(cluster: LocalCluster, minutes: float) -> tuple[dict[str, list[Sample]], list[str]]:
    entries = nodes_file.read(ClusterDir(cluster.directory).nodes)
    load = Load(cluster.bootstrap, [node.id for node in cluster.brokers], [one["metrics"] for one in entries])
    load.prepare()
    pids = {f"{node.roles[0]}-{node.id}": node.pid or 0 for node in cluster.nodes.values()}
    samples: dict[str, list[Sample]] = {name: [] for name in pids}
    begun = time.monotonic()
    load.start()
    interval = min(10.0, minutes * 60 / 60)
    while (elapsed := time.monotonic() - begun) < minutes * 60:
        for name, pid in pids.items():
            samples[name].append(sample(pid, elapsed / 60))
        time.sleep(interval)
    load.stop()
    print("done:", ", ".join(f"{kind} {count}" for kind, count in load.done.most_common()))
    print("refused:", ", ".join(f"{kind} ({count})" for kind, count in load.failures.most_common(10)) or "nothing")
    faults = [fault for name, taken in samples.items() for fault in verdict(name, taken)]
    for name in pids:
        logged = failures_logged(Path(ClusterDir(cluster.directory).log(name)))
        faults += [f"{name} logged: {line}" for line in logged[:10]]
    faults += [f"{name} has ended" for name, pid in pids.items() if not Path(f"/proc/{pid}").exists()]
    return samples, faults


def report(samples: dict[str, list[Sample]]) -> str:
    """Returns a table of samples at some times, and the kinds of descriptors at the end."""
    lines: list[tuple[str, ...]] = [("minute", *samples)]
    length = min(map(len, samples.values()))
    for at in sorted({round(step * (length - 1) / (ROWS - 1)) for step in range(ROWS)} if length else ()):
        row = [taken[at] for taken in samples.values()]
        cells = (f"{one.memory / MIB:.0f} MiB {one.descriptors} fds {one.threads} thr" for one in row)
        lines.append((f"{row[0].minute:.1f}", *cells))
    kinds = (
        f"{name}: " + ", ".join(f"{kind} {count}" for kind, count in taken[-1].kinds.most_common())
        for name, taken in samples.items()
    )
    return table(lines) + "\n\n" + "\n".join(kinds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
