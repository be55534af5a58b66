"""Runs the tests for each mutant of some modules, in forks of a process that has collected the tests.

The first fork runs them without a change and records which functions each test calls, and its duration. A mutant is
then run with the tests that call its function, the fastest first. A mutant counts as killed if a test takes far longer
than without a change, or far more memory, since an inverted condition may cause an endless loop.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import random
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

from tests.mutants.mutations import Mutant, marked, mutants_of

ROOT: Final = Path(__file__).parents[2]
CPU_FACTOR: Final = 4.0
CPU_SECONDS: Final = 2.0
"""The limit of processor time for each test: ``CPU_FACTOR`` times its time without a change, plus ``CPU_SECONDS``."""
WALL_FACTOR: Final = 10.0
WALL_SECONDS: Final = 30.0
"""The limit of elapsed time for all tests of a mutant, in case a test waits for ever. It allows for a busy machine."""
MEMORY: Final = 2 << 30
FAST_DISK: Final = "/dev/shm"


@dataclass(frozen=True, slots=True)
class Called:
    """The duration of one test without a change, and the functions that it calls as (path, qualified name)."""

    index: int
    seconds: float
    functions: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one module. ``met``: the names of all mutants that were run."""

    path: str
    met: list[str]
    survivors: list[str]
    seconds: float


class Mutating:
    """A plugin of pytest that runs, for each mutant, the tests that call its function, instead of all tests once."""

    def __init__(self, paths: Sequence[str], sample: int | None, seed: str, report: Callable[[Result], None]) -> None:
        self._paths = paths
        self._sample = sample
        self._seed = seed
        self._report = report
        self._called: list[Called] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Disable the shrinking of failing examples, which only costs time here."""
        from hypothesis import Phase, settings  # not at the top: pytest warns if it was imported before its plugin

        settings.register_profile(
            "mutants", settings.get_profile("repeatable"), phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._called = sorted(_calls(session, self._paths), key=lambda one: one.seconds)
        for path in self._paths:
            began = time.monotonic()
            mutants = list(mutants_of(path, (ROOT / path).read_text()))
            if self._sample is not None:
                chosen = random.Random(f"{self._seed} {path}").sample(
                    range(len(mutants)), min(self._sample, len(mutants))
                )
                mutants = [mutants[at] for at in sorted(chosen)]
            survivors = [one.name for one in mutants if self._survives(session, one)]
            self._report(Result(path, [one.name for one in mutants], survivors, time.monotonic() - began))
        return True

    def _survives(self, session: pytest.Session, mutant: Mutant) -> bool:
        place = mutant.path, mutant.function
        tests = [one for one in self._called if place in one.functions]
        return not tests or _passes(session, mutant, tests)


def answer(paths: Sequence[str], tests: Sequence[str], sample: int | None, seed: str, asked: Connection) -> None:
    """Runs the mutants of the modules ``paths`` and sends a ``Result`` for each module to ``asked``."""
    options = ["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=0"]
    where = FAST_DISK if os.path.isdir(FAST_DISK) else None
    with (
        tempfile.TemporaryDirectory(dir=where) as folder,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        plugin = Mutating(paths, sample, seed, asked.send)
        pytest.main([*options, f"--basetemp={folder}/tests", *tests], plugins=[plugin])


def _calls(session: pytest.Session, paths: Sequence[str]) -> list[Called]:
    """Runs all tests in a child process in which each function records its calls."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        _in_child(lambda: _note_calls(session, paths, writes))
    os.close(writes)
    with open(reads, "rb") as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the tests of {', '.join(paths)} fail without a change"
    called: list[Called] = pickle.loads(found)
    return called


def _note_calls(session: pytest.Session, paths: Sequence[str], writes: int) -> bool:
    called = set[tuple[str, str]]()
    for path in paths:
        for mutant in marked(path, (ROOT / path).read_text()):
            function = _function(mutant)
            function.__globals__["__called__"] = called
            function.__code__ = mutant.code
    found = []
    for index in range(len(session.items)):
        called.clear()
        began = time.process_time()
        if not _run(session, index, None):
            return False
        found.append(Called(index, time.process_time() - began, frozenset(called)))
    with open(writes, "wb") as pipe:
        pipe.write(pickle.dumps(found))
    return True


def _passes(session: pytest.Session, mutant: Mutant, tests: Sequence[Called]) -> bool:
    """Returns whether the tests pass with the mutant, in a child process that is killed after the time limit."""
    took = sum(one.seconds for one in tests)
    child = os.fork()
    if not child:
        _in_child(lambda: _change_and_run(session, mutant, tests))
    until = time.monotonic() + took * WALL_FACTOR + WALL_SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _change_and_run(session: pytest.Session, mutant: Mutant, tests: Sequence[Called]) -> bool:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the default action ends the process
    _function(mutant).__code__ = mutant.code
    for at, one in enumerate(tests):
        signal.setitimer(signal.ITIMER_PROF, one.seconds * CPU_FACTOR + CPU_SECONDS)
        if not _run(session, one.index, tests[at + 1].index if at + 1 < len(tests) else None):
            return False
    signal.setitimer(signal.ITIMER_PROF, 0)
    return True


def _in_child(run: Callable[[], bool]) -> None:
    """Runs ``run`` without output and ends the process, with exit code 0 if ``run`` returns True."""
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        code = 0 if run() else 1
    finally:
        os._exit(code)


def _run(session: pytest.Session, index: int, following: int | None) -> bool:
    item = session.items[index]
    item.config.hook.pytest_runtest_protocol(
        item=item, nextitem=None if following is None else session.items[following]
    )
    return not session.testsfailed


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
