"""`python -m lab SEED`: one seed with its trace; `python -m lab --seconds N`: seeds at random for a time, without."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback

from lab.seeded import FAULTS, Report, run_seed
from lab.trace import quiet_logs, show_logs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="the seed to run, with its trace")
    parser.add_argument("--faults", type=int, default=FAULTS, help=f"faults of nodes in one run ({FAULTS})")
    parser.add_argument("--seconds", type=float, help="run seeds at random for so long, or until one fails")
    options = parser.parse_args()
    if (options.seed is None) == (options.seconds is None):
        parser.error("give a seed, or --seconds")
    if options.seed is not None:
        show_logs(_print)
        return 0 if _succeeds(options.seed, options.faults, shown=True) else 1
    quiet_logs()
    return _soak(options.seconds, options.faults)


def _soak(seconds: float, faults: int) -> int:
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        seed = int.from_bytes(os.urandom(4), "big")
        if not _succeeds(seed, faults, shown=False):
            _print(f"see it with: make sim SEED={seed}")
            return 1
        count += 1
    _print(f"{count} seeds passed")
    return 0


def _succeeds(seed: int, faults: int, *, shown: bool) -> bool:
    try:
        report: Report = run_seed(seed, faults=faults, listener=_print if shown else None)
    except Exception:
        _print(f"seed {seed} failed:\n{traceback.format_exc()}")
        return False
    for text in report.violations:
        _print(f"seed {seed} failed: {text}")
    if shown:
        _print(f"seed {seed}: {'wrong' if report.violations else 'right'}, digest {report.digest}")
    return not report.violations


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
