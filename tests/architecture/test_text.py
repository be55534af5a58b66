"""Texts that no file may contain: paths of one machine, hosts of package registries, notes of undone work."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.source import ROOT, tracked

FORBIDDEN = {
    "a path of one machine": re.compile(
        r"/(?:home|root|Users)/\w|/wo" r"rk/(?:main|shared)|\.py" r"env/|/tm" r"p/team"
    ),
    "a package registry's host": re.compile(
        r"\b(?:pypi" r"\.org|files\.pythonhosted" r"\.org|repo1?\.maven" r"\.(?:apache\.)?org|registry\.npmjs" r"\.org)"
    ),
    "a note of undone work": re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b"),
}

VENDORED = "milena/console/static/vendor"


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        if (
            not path.is_relative_to("tests/fixtures")
            and not path.is_relative_to(VENDORED)
            and path.suffix != ".png"
            and path.name not in ("LICENSE", "test_text.py")
        ):
            found.append((path, (ROOT / path).read_text(errors="replace")))
    return found


def test_no_file_names_what_only_one_machine_has() -> None:
    hits = [
        f"{path}:{number}: {what}: {line.strip()[:100]}"
        for path, content in texts()
        for number, line in enumerate(content.splitlines(), 1)
        for what, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]
    assert not hits, "\n".join(hits)


def test_files_end_with_a_newline_and_have_no_tabs_in_python() -> None:
    bad = [
        str(path)
        for path, content in texts()
        if content and (not content.endswith("\n") or (path.suffix == ".py" and "\t" in content))
    ]
    assert not bad, bad
