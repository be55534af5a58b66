"""Runs pytest, and once more, alone, the few tests that failed: a flaky test passes then, a broken one does not."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

FEW: Final = 5
"""More failures than this are not a matter of chance and are not run again."""
FAILED: Final = 1  # pytest.ExitCode.TESTS_FAILED


def run_pytest(command: Sequence[str], environment: Mapping[str, str], output: int | None) -> tuple[int, list[str]]:
    """Return pytest's exit code, 0 if all that failed passed alone, and the names of these flaky tests.

    ``output`` is the descriptor of the file that takes what pytest prints; None: the standard output.
    """
    with tempfile.TemporaryDirectory(prefix="milena-pytest-") as folder:
        cached = [*command, "-o", f"cache_dir={folder}"]
        code = subprocess.run(cached, env=environment, stdout=output, stderr=output, check=False).returncode
        failed = failures(Path(folder))
        if code != FAILED or not 1 <= len(failed) <= FEW:
            return code, []
        again = [*cached, "--last-failed", "-n", "0"]
        code = subprocess.run(again, env=environment, stdout=output, stderr=output, check=False).returncode
        return code, failed if code == 0 else []


def failures(folder: Path) -> list[str]:
    """The tests that failed, as pytest's cache in ``folder`` names them."""
    path = folder / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []
