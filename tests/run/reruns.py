"""Runs pytest, and once more, alone, the few tests that failed: a flaky test passes then, a broken one does not."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

FEW: Final = 5
"""More failures than this are not a matter of chance and are not run again."""
FAILED: Final = 1  # pytest.ExitCode.TESTS_FAILED


class Ran(NamedTuple):
    """``code``: pytest's exit code, 0 if all that failed passed alone. ``flaky``: the tests that failed and then passed
    alone; ``failed``: those that did not."""

    code: int
    flaky: list[str]
    failed: list[str]


def run_pytest(command: Sequence[str], environment: Mapping[str, str], output: int | None) -> Ran:
    """Run a command that ends with pytest's options.

    ``output`` is the descriptor of the file that takes what pytest prints; None: the standard output.
    """
    with tempfile.TemporaryDirectory(prefix="milena-pytest-") as folder:
        cached = [*command, "-o", f"cache_dir={folder}"]
        code = subprocess.run(cached, env=environment, stdout=output, stderr=output, check=False).returncode
        failed = failures(Path(folder))
        if code != FAILED or not 1 <= len(failed) <= FEW or _stops_early(command):
            return Ran(code, [], failed)
        report = Path(folder) / "rerun.xml"
        again = [*cached, "--last-failed", "-n", "0", f"--junitxml={report}"]
        subprocess.run(again, env=environment, stdout=output, stderr=output, check=False)
        left = [name for name in failures(Path(folder)) if name in failed]
        # A test that is skipped, or not found any more, has not passed.
        if passed(report) + len(left) < len(failed):
            return Ran(code, [], failed)
        return Ran(code if left else 0, [name for name in failed if name not in left], left)


def _stops_early(command: Sequence[str]) -> bool:
    """Whether tests after the first failures were not run at all."""
    return any(word in ("-x", "--exitfirst") or word.startswith("--maxfail") for word in command)


def passed(report: Path) -> int:
    """Return how many tests of a report in JUnit's format passed; 0 if there is no report."""
    if not report.exists():
        return 0
    cases = ElementTree.parse(report).iter("testcase")
    return sum(not any(child.tag in ("failure", "error", "skipped") for child in case) for case in cases)


def failures(folder: Path) -> list[str]:
    """The tests that failed, as pytest's cache in ``folder`` names them."""
    path = folder / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []
