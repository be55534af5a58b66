"""pytest for ``.ci/run``: what fails is run once more alone, and named if it then passes.

Usage: python .ci/twice.py ARGUMENTS OF PYTEST

It tells a broken test from an unsteady one on a busy machine; ``make test`` runs each test once. More than five
failures are no matter of chance: they are not run again. Lines about unsteady tests also go to the file that
MILENA_UNSTEADY names. The exit code is pytest's, or 0 if all that failed passed alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 5
FAILED = 1  # pytest.ExitCode.TESTS_FAILED


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="milena-pytest-") as folder:
        command = [sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir={folder}"]
        code = subprocess.run(command, check=False).returncode
        failed = failures(Path(folder))
        if code != FAILED or not 1 <= len(failed) <= MOST:
            return code
        print(f"once more alone: {', '.join(failed)}", flush=True)
        again = subprocess.run([*command, "--last-failed"], check=False).returncode
    if again == 0:
        tell(failed)
    return again


def failures(folder: Path) -> list[str]:
    """The tests that failed, as pytest's cache in ``folder`` names them."""
    path = folder / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def tell(names: list[str]) -> None:
    """They failed, and passed alone."""
    lines = "".join(f"unsteady: {name} failed, then passed alone\n" for name in names)
    print(lines, end="", flush=True)
    if path := os.environ.get("MILENA_UNSTEADY"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
