"""The build flavours of Milena that can be measured: pure Python, and the compiled one of ``make compiled``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from milena.form import VARIABLE

PURE, COMPILED = "pure", "compiled"
_VALUES = {PURE: "1", COMPILED: "0"}
_LIBRARY = "compiled__mypyc"


class NoForm(Exception):
    """A flavour cannot be measured; the message says why."""


def chosen(form: str) -> dict[str, str]:
    """The environment variables of a process in this flavour."""
    return {VARIABLE: _VALUES[form]}


def check_there(form: str) -> None:
    """Raises NoForm if processes cannot run in the flavour."""
    asked = "from milena.form import running; print(running())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", asked],
        capture_output=True,
        text=True,
        env={**os.environ, **chosen(form)},
        check=False,
    )
    if done.returncode or done.stdout.strip() != form:
        raise NoForm((done.stderr or done.stdout).strip().removeprefix("milena: "))


def in_form(form: Mapping[str, str], module: str, *words: str) -> dict[str, float]:
    """Run a module and return the figures that it prints as JSON. ``form``: the result of ``chosen``."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **form}, check=False)
    if done.returncode:
        raise RuntimeError(f"{module}: {done.stdout}{done.stderr}")
    return {str(name): float(value) for name, value in json.loads(done.stdout).items()}


def check_runs(pid: int, form: str) -> None:
    """Raises RuntimeError if a process is of the other flavour: its figures would be in the wrong column."""
    if (_LIBRARY in Path(f"/proc/{pid}/maps").read_text()) != (form == COMPILED):
        raise RuntimeError(f"process {pid} is not of the {form} form")
