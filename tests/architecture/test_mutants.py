"""The modules that are mutated, and their tests."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.modules import MODULES
from tests.mutants.reasons import REASONS

ROOT = Path(__file__).parents[2]


def test_the_modules_and_tests_of_the_mutants_exist() -> None:
    """If a test file was renamed, no mutant of its modules could be tried."""
    paths = {path for module, tests in MODULES.items() for path in (module, *tests)}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_reasons_are_for_mutants_of_these_modules() -> None:
    assert sorted({name.partition(": ")[0] for name in REASONS} - set(MODULES)) == []
