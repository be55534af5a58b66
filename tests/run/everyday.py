"""``make test``: the checks beside the tests of ``EVERYDAY`` that are not slow, on all cores. Arguments go to pytest.

``--dist loadfile`` keeps the tests of a file on one worker; the files begin in the order that ``tests/conftest.py``
gives them. That order has a seed, ORDER, so that a run can be repeated. The exit code is 1 if a check or a test failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.run.causes import causes, notices
from tests.run.reruns import run_pytest
from tests.run.suites import EVERYDAY, ROOT, command_line

MORE_WORKERS: Final = 2
"""How many more workers there are than cores: the wire tests wait for processes half of their time."""


def main(arguments: Sequence[str]) -> int:
    began = time.monotonic()
    # Without files of bytecode each worker would compile all tests, and each process of a test all of Milena.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with ThreadPoolExecutor(1) as beside:
        checks = beside.submit(_check)
        ran = run_pytest(_pytest(arguments), os.environ, None)
    failed = [f"make check: {cause}" for cause in checks.result()]
    failed += causes(ran.code, ran.failed, "pytest said why") if ran.code else []
    took = f"make test took {time.monotonic() - began:.0f} s; make test-all runs the slow tests and the other suites"
    print(*notices(ran.flaky, failed), took, sep="\n")
    return int(bool(failed))


def _pytest(arguments: Sequence[str]) -> list[str]:
    """The command; with a path among the arguments only that path is tested."""
    paths = [word for word in arguments if word.partition("::")[0].startswith("tests")]
    folders = [] if paths else [f"tests/{name}" for name in EVERYDAY if name != "architecture"]
    workers = ["-n", str((os.cpu_count() or 1) + MORE_WORKERS), "--dist", "loadfile", "--no-loadscope-reorder"]
    return command_line(["pytest", *folders, "-m", "not slow", *workers, *arguments], 1)


def _check() -> list[str]:
    """Run ``make check`` and print its result as soon as it is there. Returns the causes of a failure."""
    command = ["make", "--no-print-directory", "check"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"\nmake check: {'FAILED' if done.returncode else 'ok'}\n{done.stdout}", flush=True)
    return causes(done.returncode, [], done.stdout) if done.returncode else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
