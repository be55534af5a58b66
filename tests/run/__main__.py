"""``make test-all``: suites by name, side by side on all cores, and a table of results.

A failed suite does not end the run. At most five failed tests of a suite are run once more, alone, and so is a failed
program of a suite that runs alone; those that pass then are listed as flaky at the end, and the causes of each failure
after them, a line for each. The exit code is 1 if a suite failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.run.causes import causes, notices
from tests.run.reruns import Ran, run_pytest
from tests.run.suites import ENGINE, PYTEST, ROOT, Suite, command_line, missing, suites

LOGS: Final = ROOT / ".cache" / "test-all"
FORM: Final = "MILENA_PURE"
OK, FAILED = "ok", "FAILED"
RESULTS: Final = {
    ("tests.chaos", 3): "not judged: the machine stalled",
    (".ci/containers.py", 77): "skipped: see above",
}
"""What an exit code of a program means if that is neither success nor failure."""


@dataclass
class Run:
    """The results so far. ``until`` is the time (monotonic, s) after which no suite is started; None: no limit."""

    workers: int
    compiled: bool
    until: float | None
    rows: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """The causes of failures, each with its suite."""
    _printing: threading.Lock = field(default_factory=threading.Lock)

    def suite(self, suite: Suite) -> None:
        """Run one suite, print its output in one piece, and note its row."""
        if programs := missing(suite):
            self._note(suite, 0, f"skipped: this machine lacks {', '.join(programs)}")
            return
        if suite.needs_build and not self.compiled:
            self._note(suite, 0, "skipped: the compiled form is not built (make compiled)")
            return
        if self.until is not None and time.monotonic() > self.until:
            self._note(suite, 0, "skipped: the time for this run is used up")
            return
        began = time.monotonic()
        path = LOGS / f"{suite.name}.log"
        with path.open("w+") as log:
            results = [self._command(suite, words, log.fileno()) for words in suite.commands]
        with self._printing:
            print(f"== {suite.name}: {suite.about}\n{path.read_text(errors='replace')}", flush=True)
        unusual = [result for result in results if result != OK]
        self._note(suite, time.monotonic() - began, FAILED if FAILED in results else unusual[0] if unusual else OK)

    def _command(self, suite: Suite, words: Sequence[str], output: int) -> str:
        """Return the result of the command: ``OK``, ``FAILED`` or one of ``RESULTS``. ``output`` can be read, too."""
        form = {FORM: "0"} if self.compiled and suite.built else {}
        environment = {**os.environ, **form, **suite.variables}
        command = command_line(words, self.workers)
        os.write(output, f"$ {' '.join(words)}\n".encode())
        begin = os.lseek(output, 0, os.SEEK_CUR)
        if PYTEST in words:
            ran = run_pytest(command, environment, output)
        else:
            ran = _run(command, environment, output)
            if ran.code == 1 and suite.alone and not _run(command, environment, output).code:
                ran = Ran(0, [" ".join(words)], [])
        self.flaky += ran.flaky
        named = [text for (program, code), text in RESULTS.items() if program in words and ran.code == code]
        if named or not ran.code:
            return named[0] if named else OK
        printed = os.pread(output, os.lseek(output, 0, os.SEEK_CUR) - begin, begin).decode(errors="replace")
        self.failed += [f"{suite.name}: {cause}" for cause in causes(ran.code, ran.failed, printed)]
        return FAILED

    def _note(self, suite: Suite, seconds: float, result: str) -> None:
        row = f"{suite.name:12} {seconds:5.0f} s  {result}"
        with self._printing:
            self.rows.append(row)
            print(f"-- {row}", flush=True)


def _run(command: Sequence[str], environment: Mapping[str, str], output: int) -> Ran:
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False)
    return Ran(done.returncode, [], [])


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    sample = options.sample or _commit()
    every = suites(short=options.short, sample=sample)
    if unknown := set(options.suites) - {suite.name for suite in every}:
        print(f"no suite is called {', '.join(sorted(unknown))}; there are {', '.join(suite.name for suite in every)}")
        return 2
    chosen = [suite for suite in every if not options.suites or suite.name in options.suites]
    LOGS.mkdir(parents=True, exist_ok=True)
    lanes = os.cpu_count() or 1
    until = None if options.minutes is None else time.monotonic() + options.minutes * 60
    run = Run(lanes, _is_built(), until)
    try:
        with ThreadPoolExecutor(lanes) as pool:
            list(pool.map(run.suite, [suite for suite in chosen if not suite.alone]))
        for suite in chosen:
            if suite.alone:
                run.suite(suite)
    finally:
        if (ROOT / ENGINE / "docker.pid").exists():
            subprocess.run([sys.executable, ".ci/containers.py", "stop", ENGINE], cwd=ROOT, check=False)
    print("== results", *run.rows, *notices(run.flaky, run.failed), sep="\n")
    if options.short:
        names = " ".join(suite.name for suite in chosen)
        print(f"the same sample again: make test-all SHORT=1 SAMPLE={sample} ONLY='{names}'")
    return int(bool(run.failed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("suites", nargs="*", help="names of suites; without one, all of them", metavar="SUITE")
    parser.add_argument("--short", action="store_true", help="samples in place of whole suites")
    parser.add_argument("--sample", help="selects the samples (default: the commit)", metavar="TEXT")
    parser.add_argument("--minutes", type=float, help="start no suite after so many minutes")
    return parser


def _commit() -> str:
    """The first digits of the hash of the commit, or ``none`` outside of a git checkout."""
    done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "none"


def _is_built() -> bool:
    """Whether ``make compiled`` has built the compiled form."""
    import milena.form

    return Path(ROOT, milena.form.TREE, milena.form.NOTE).exists()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
