"""For all tests: property tests are repeatable unless MILENA_EXPLORE says otherwise, files that take long come first,
and logging stays as it was."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType
from typing import Any, Final

import pytest
import structlog

from tests.fixtures.properties import load_profile

load_profile()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores SIGINT in its background jobs, and so would every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


FIRST: Final = ("simulation/test_seeded_cluster.py", "wire/", "simulation/", "scenarios/", "contract/")
"""Files and folders that take longest: a worker that began one of them last would keep the run waiting."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sample", help="run a share of the tests, which TEXT selects", metavar="TEXT:PERCENT")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests of ``FIRST`` first, and keep the share that ``--sample`` names, and half of it of those marked
    ``costly``: the same ones for the same text."""
    items.sort(key=lambda item: _rank(item.nodeid))
    text, _, percent = (config.getoption("sample") or "").rpartition(":")
    if not percent or int(percent) >= 100:
        return
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        share = int(percent) / (2 if item.get_closest_marker("costly") else 1)
        (chosen if _percentile(f"{text} {item.nodeid}") < share else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def _rank(name: str) -> int:
    """The place of a test's file in ``FIRST``. pytest-randomly has shuffled the files; those of one rank stay so."""
    return next((at for at, first in enumerate(FIRST) if name.startswith(f"tests/{first}")), len(FIRST))


def _percentile(text: str) -> int:
    return int(sha256(text.encode()).hexdigest()[:8], 16) % 100


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands that run in the test's own process silence the logs, which others look at."""
    configured, before = structlog.is_configured(), structlog.get_config()
    yield
    if configured:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()


class Replacements(pytest.MonkeyPatch):  # type: ignore[misc]  # it is final, but not by its making
    """A compiled module takes no other function or method in place of its own: such a test runs on the pure form."""

    def setattr(self, target: Any, *args: Any, **options: Any) -> None:
        name = target.rpartition(".")[0] if isinstance(target, str) else _module_of(target)
        found = str(getattr(sys.modules.get(name), "__file__", ""))
        if name.startswith("milena.") and found.endswith(tuple(EXTENSION_SUFFIXES)):
            pytest.skip(f"replaces a part of {name}, which is compiled")
        super().setattr(target, *args, **options)


def _module_of(target: Any) -> str:
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target, "__module__", ""))


@pytest.fixture
def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    """As pytest's."""
    patch = Replacements()
    yield patch
    patch.undo()
