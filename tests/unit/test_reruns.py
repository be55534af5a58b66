"""tests/run/reruns.py: what fails is run once more, and listed if it passes then."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.run.__main__ import Run
from tests.run.causes import causes, notices
from tests.run.reruns import Ran, run_pytest
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


def run(folder: Path, test: str, *options: str) -> tuple[Ran, str]:
    """What pytest did with ``test`` as the only file of ``folder``, and its output."""
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
        ran = run_pytest(command, os.environ, output.fileno())
    return ran, (folder / "output").read_text()


def test_what_fails_once_is_run_alone_and_listed(tmp_path: Path) -> None:
    assert run(tmp_path, FLAKY)[0] == Ran(0, ["test_it.py::test_flaky"], [])
    assert (tmp_path / "log").read_text() == "fine flaky flaky "


def test_of_two_failures_one_may_be_flaky(tmp_path: Path) -> None:
    ran, _ = run(tmp_path, f"{FLAKY}\ndef test_broken():\n    assert False\n")
    assert ran == Ran(1, ["test_it.py::test_flaky"], ["test_it.py::test_broken"])


@pytest.mark.parametrize(("tests", "runs"), [(1, 2), (6, 1)], ids=["few are run twice", "many are not"])
def test_what_fails_twice_or_in_great_number_fails(tmp_path: Path, tests: int, runs: int) -> None:
    ran, output = run(tmp_path, "".join(f"def test_{n}():\n    assert False\n" for n in range(tests)))
    assert ran == Ran(1, [], [f"test_it.py::test_{n}" for n in range(tests)])
    assert output.count(f"{tests} failed") == runs


def test_a_test_that_is_skipped_when_run_again_has_not_passed(tmp_path: Path) -> None:
    assert run(tmp_path, SKIPPED_LATER)[0] == Ran(1, [], ["test_it.py::test_it"])


def test_a_run_that_stops_at_its_first_failure_is_not_repeated(tmp_path: Path) -> None:
    assert run(tmp_path, FLAKY, "-x")[0] == Ran(1, [], ["test_it.py::test_flaky"])


def test_no_tests_are_no_success(tmp_path: Path) -> None:
    assert run(tmp_path, "VALUE = 1\n")[0].code == 5


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, "import no_such_module\n")[0] == Ran(2, [], ["test_it.py"])


@pytest.mark.parametrize(("failures", "alone", "result"), [(1, True, "ok"), (1, False, "FAILED"), (2, True, "FAILED")])
def test_a_failed_program_is_run_again_if_its_suite_runs_alone(
    tmp_path: Path, failures: int, alone: bool, result: str
) -> None:
    runs = tmp_path / "runs"
    count = f"import pathlib as p; f = p.Path({str(runs)!r}); n = len(f.read_text()) if f.exists() else 0"
    words = ("python", "-c", f"{count}; f.write_text('x' * (n + 1)); raise SystemExit(n < {failures})")
    done = Run(workers=1, compiled=False, until=None)
    with (tmp_path / "log").open("w+") as log:
        assert done._command(Suite("chaos", "", (words,), alone=alone), words, log.fileno()) == result
    assert done.flaky == ([" ".join(words)] if result == "ok" else [])


def failure_of(folder: Path, *words: str) -> list[str]:
    """The causes that a run names for this command of a suite."""
    done = Run(workers=1, compiled=False, until=None)
    with (folder / "log").open("w+") as log:
        log.write("an earlier command\n")
        log.flush()
        assert done._command(Suite("mutants", "", (words,)), words, log.fileno()) == "FAILED"
    return done.failed


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("begun\nfailed: a\nfault: b\nfailed: a\n2 failed", ["failed: a", "fault: b"]),
        (
            "begun\nFAILED tests/unit/test_it.py::test_it - wrong\n1 failed",
            ["FAILED tests/unit/test_it.py::test_it - wrong"],
        ),
        ("begun\n==== no tests ran ====\nmake: *** Error 3\n\n", ["exit code 3, no tests ran"]),
        ("", ["exit code 3"]),
    ],
    ids=["it names causes", "it is a pytest within a program", "it names none", "it says nothing"],
)
def test_a_failed_program_has_causes(tmp_path: Path, printed: str, found: list[str]) -> None:
    words = ("python", "-c", f"import sys; print({printed!r}); sys.exit(3)")
    assert failure_of(tmp_path, *words) == [f"mutants: {cause}" for cause in found]


def test_a_program_that_is_killed_has_its_signal_as_cause(tmp_path: Path) -> None:
    words = ("python", "-c", "import os; print('half', flush=True); os.kill(os.getpid(), 9)")
    assert failure_of(tmp_path, *words) == ["mutants: ended by signal 9, half"]


def test_more_causes_than_fit_are_counted() -> None:
    assert causes(1, [f"test_{n}" for n in range(25)], "")[-2:] == ["test_19", "and 5 more"]


def test_the_output_of_a_run_ends_with_what_was_flaky_and_what_failed() -> None:
    assert notices(["a"], ["oracle: b", "failed: c"]) == [
        "flaky: a failed, then passed alone",
        "failed: oracle: b",
        "failed: c",
    ]
