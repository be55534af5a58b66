"""A build needs mypy and a compiler only if extensions are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ASK = """
import sys
from setuptools import build_meta
build_meta.get_requires_for_build_wheel = lambda settings: ["of setuptools"]
from compiling.backend import get_requires_for_build_wheel, wants_extensions
sys.argv = ["setup.py", "{command}"]
print(*get_requires_for_build_wheel(), wants_extensions(), sep="\\n")
"""


def ask(command: str, variable: str | None) -> tuple[list[str], bool]:
    """What a wheel requires, and whether setup.py compiles at this step of the build."""
    environment = {name: value for name, value in os.environ.items() if name != "MILENA_COMPILE"}
    environment |= {} if variable is None else {"MILENA_COMPILE": variable}
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(command=command)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *required, wanted = done.stdout.splitlines()
    return required, wanted == "True"


def test_a_build_from_source_needs_setuptools_alone() -> None:
    for variable in (None, "", "0"):
        assert ask("bdist_wheel", variable) == (["of setuptools"], False)


def test_a_wheel_with_extensions_needs_mypy_and_what_it_reads_types_of() -> None:
    required, wanted = ask("bdist_wheel", "1")
    assert wanted
    assert any(one.startswith("mypy[mypyc]") for one in required)
    assert any(one.startswith("kio") for one in required)


def test_metadata_and_editable_installs_compile_nothing() -> None:
    for command in ("egg_info", "dist_info", "editable_wheel", "sdist"):
        assert not ask(command, "1")[1]
