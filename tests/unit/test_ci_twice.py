"""``.ci/twice.py``: what fails is run once more, and named if it passes then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TWICE = Path(__file__).parents[2] / ".ci" / "twice.py"
UNSTEADY = """
from pathlib import Path
SEEN = Path(__file__).with_name("seen")
def test_fine():
    with SEEN.open("a") as file:
        file.write("fine ")
def test_odd():
    with SEEN.open("a") as file:
        file.write("odd ")
    assert SEEN.read_text().count("odd") == 2
"""


def run(folder: Path, test: str) -> subprocess.CompletedProcess[str]:
    """pytest on ``test`` as the only file of ``folder``."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(test)
    return subprocess.run(
        [sys.executable, str(TWICE), "-q", "-p", "no:randomly", "."],
        cwd=folder,
        env={"MILENA_UNSTEADY": str(folder / "unsteady"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_fails_once_is_run_alone_and_named(tmp_path: Path) -> None:
    done = run(tmp_path, UNSTEADY)
    assert done.returncode == 0
    assert (tmp_path / "seen").read_text() == "fine odd odd "
    assert (tmp_path / "unsteady").read_text() == "unsteady: test_it.py::test_odd failed, then passed alone\n"
    assert (tmp_path / "unsteady").read_text() in done.stdout


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_broken():\n    assert False\n")
    assert done.returncode == 1
    assert done.stdout.count("1 failed") == 2
    assert not (tmp_path / "unsteady").exists()


def test_more_than_five_failures_are_no_chance(tmp_path: Path) -> None:
    done = run(tmp_path, "".join(f"def test_{n}():\n    assert False\n" for n in range(6)))
    assert done.returncode == 1
    assert done.stdout.count("6 failed") == 1


def test_no_tests_are_no_success(tmp_path: Path) -> None:
    assert run(tmp_path, "VALUE = 1\n").returncode == 5
