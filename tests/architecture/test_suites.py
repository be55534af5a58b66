"""Every test belongs to ``make test`` or to a suite of ``make test-all``, and the Makefile stays small."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.source import modules, text, tracked
from tests.conftest import FIRST
from tests.run.suites import EVERYDAY, ROOT, suites

MAKE = re.compile(r"(?:^    |`)make ([a-z-]+)", re.MULTILINE)


def test_each_folder_of_tests_belongs_to_a_suite() -> None:
    paths = [path for path in modules() if path.parts[0] == "tests" and path.name.startswith("test_")]
    run = set(EVERYDAY) | {folder for suite in suites(short=False, sample="") for folder in suite.folders}
    assert not {str(path) for path in paths if path.parts[1] not in run}


def test_the_files_that_begin_first_are_there() -> None:
    assert [name for name in FIRST if not (ROOT / "tests" / name).exists()] == []


def test_a_short_run_has_the_suites_of_a_long_one_but_for_those_without_a_short_form() -> None:
    long, short = ([suite.name for suite in suites(short=short, sample="")] for short in (False, True))
    assert [name for name in long if name not in short] == ["explore", "powerloss", "endurance"]
    assert not set(short) - set(long)


def test_pages_name_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text(Path("Makefile")), re.MULTILINE))
    assert len(targets) <= 15
    pages = [path for path in tracked() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    named = {(str(path), target) for path in pages for target in MAKE.findall(text(path))}
    assert not {(path, target) for path, target in named if target not in targets}
