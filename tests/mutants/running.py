"""Runs the tests of one module for each of its mutants, in forks of a process that has collected them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

from tests.mutants.mutations import Mutant, mutants_of

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 10.0
"""So many times as long as the tests take without a change may they take with one, and some seconds more."""
SOME_SECONDS: Final = 20.0


class Mutating:
    """A plug-in of pytest: instead of the tests once, all of them for each mutant. ``survivors`` is the result."""

    def __init__(self, path: str) -> None:
        self.survivors: list[str] = []
        self.count = 0
        self._path = path

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        began = time.monotonic()
        assert _passes(session, None, SOME_SECONDS * PATIENCE), f"the tests of {self._path} fail without a change"
        limit = (time.monotonic() - began) * PATIENCE + SOME_SECONDS
        for mutant in mutants_of(self._path, (ROOT / self._path).read_text()):
            survives = _passes(session, mutant, limit)
            self.count += 1
            if survives:
                self.survivors.append(mutant.name)
        return True


def answer(path: str, tests: Sequence[str], asked: Connection) -> None:
    """Sends the number of mutants, and the names of those that survive."""
    plugin = Mutating(path)
    options = ["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider"]
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        pytest.main([*options, *tests], plugins=[plugin])
    if plugin.count:
        asked.send((plugin.count, plugin.survivors))


def _passes(session: pytest.Session, mutant: Mutant | None, seconds: float) -> bool:
    """In a child, which is killed where it takes too long."""
    child = os.fork()
    if not child:
        _run_in_child(session, mutant)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run_in_child(session: pytest.Session, mutant: Mutant | None) -> None:
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        if mutant is not None:
            _function(mutant).__code__ = mutant.code
        for index, item in enumerate(session.items):
            following = session.items[index + 1] if index + 1 < len(session.items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                break
        code = int(session.testsfailed > 0)
    finally:
        os._exit(code)


def _function(mutant: Mutant) -> FunctionType:
    module = importlib.import_module(mutant.path.removesuffix(".py").replace("/", "."))
    found: object = module
    for name in mutant.function.split("."):
        found = vars(found)[name]
    match found:
        case property():
            found = found.fget
        case staticmethod() | classmethod():
            found = found.__func__
        case functools.cached_property():
            found = found.func
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    assert isinstance(found, FunctionType), mutant.name
    return found
