"""The types of the console's modules, as TypeScript's compiler reads them from their comments."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.architecture.source import ROOT

FOLDER = ROOT / "tests" / "browser"


def test_the_modules_of_the_console_have_no_error_of_types() -> None:
    compiler = shutil.which("tsc", path=str(FOLDER / "node_modules" / ".bin")) or shutil.which("tsc")
    if compiler is None:
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("no TypeScript compiler: npm ci --prefix tests/browser")
    checked = subprocess.run([compiler, "--project", str(FOLDER)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
