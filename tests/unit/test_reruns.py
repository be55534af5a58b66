"""tests/run/reruns.py: what fails is run once more, and listed if it passes then."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.run.__main__ import Run
from tests.run.reruns import run_pytest
from tests.run.suites import Suite

FLAKY = """
from pathlib import Path
LOG = Path(__file__).with_name("log")
def test_fine():
    with LOG.open("a") as file:
        file.write("fine ")
def test_flaky():
    with LOG.open("a") as file:
        file.write("flaky ")
    assert LOG.read_text().count("flaky") == 2
"""

SKIPPED_LATER = """
from pathlib import Path
import pytest
LOG = Path(__file__).with_name("log")
def test_it():
    if LOG.exists():
        pytest.skip("this is the second run")
    LOG.touch()
    pytest.fail("this is the first run")
"""


def run(folder: Path, test: str, *options: str) -> tuple[int, list[str], str]:
    """The exit code, the flaky tests, and the output of pytest with ``test`` as the only file of ``folder``."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(test)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "--rootdir",
        str(folder),
        str(folder),
        *options,
    ]
    with (folder / "output").open("w") as output:
        code, flaky = run_pytest(command, os.environ, output.fileno())
    return code, flaky, (folder / "output").read_text()


def test_what_fails_once_is_run_alone_and_listed(tmp_path: Path) -> None:
    code, flaky, _ = run(tmp_path, FLAKY)
    assert (code, flaky) == (0, ["test_it.py::test_flaky"])
    assert (tmp_path / "log").read_text() == "fine flaky flaky "


@pytest.mark.parametrize(("tests", "runs"), [(1, 2), (6, 1)], ids=["few are run twice", "many are not"])
def test_what_fails_twice_or_in_great_number_fails(tmp_path: Path, tests: int, runs: int) -> None:
    code, flaky, output = run(tmp_path, "".join(f"def test_{n}():\n    assert False\n" for n in range(tests)))
    assert (code, flaky) == (1, [])
    assert output.count(f"{tests} failed") == runs


def test_a_test_that_is_skipped_when_run_again_has_not_passed(tmp_path: Path) -> None:
    code, flaky, _ = run(tmp_path, SKIPPED_LATER)
    assert (code, flaky) == (1, [])


def test_a_run_that_stops_at_its_first_failure_is_not_repeated(tmp_path: Path) -> None:
    code, flaky, _ = run(tmp_path, FLAKY, "-x")
    assert (code, flaky) == (1, [])


def test_no_tests_are_no_success(tmp_path: Path) -> None:
    assert run(tmp_path, "VALUE = 1\n")[0] == 5


@pytest.mark.parametrize(("failures", "alone", "result"), [(1, True, "ok"), (1, False, "FAILED"), (2, True, "FAILED")])
def test_a_failed_program_is_run_again_if_its_suite_runs_alone(
    tmp_path: Path, failures: int, alone: bool, result: str
) -> None:
    runs = tmp_path / "runs"
    count = f"import pathlib as p; f = p.Path({str(runs)!r}); n = len(f.read_text()) if f.exists() else 0"
    words = ("python", "-c", f"{count}; f.write_text('x' * (n + 1)); raise SystemExit(n < {failures})")
    done = Run(workers=1, compiled=False, until=None)
    with (tmp_path / "log").open("w") as log:
        assert done._command(Suite("chaos", "", (words,), alone=alone), words, log.fileno()) == result
    assert done.flaky == ([" ".join(words)] if result == "ok" else [])
