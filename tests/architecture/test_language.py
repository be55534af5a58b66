"""Words and phrases that are never right in Milena's code and documentation.

The list is short on purpose: it holds private words for which Kafka or ordinary English has a better one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source import ROOT, tracked

BANNED: Final = {
    "told": "reported, returned, notified",
    "tells": "reports, returns, notifies",
    "whoever": "the client, the caller, the node that ...",
    "nobody": "no client, no broker, no one else",
    "somebody": "a client, a broker, another process",
    "everybody": "all clients, all brokers",
    "anew": "again",
    "reckon(?:s|ed|ing)?": "estimate, estimated",
    "unsteady": "flaky",
    "keepsakes?": "saved state",
    "(?:at|in) (?:one|a) go": "at once, in one step",
    "go(?:es)? on": "continue, continues",
    "(?:stand|lie)s? in": "is in",
    "contained errors?": "logged error",
    "overrul(?:e|es|ed|ing)": "republish; of options: override",
}
"""A regular expression, and what to write instead. Parts of an identifier count as words."""

PATTERNS: Final = {
    re.compile(rf"(?<![A-Za-z]){words}(?![A-Za-z])", re.IGNORECASE): better for words, better in BANNED.items()
}

CLEAN: Final = (
    ".ci",
    ".github",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "compiling",
    "docs",
    "milena",
    "pyproject.toml",
    "tests",
)
"""Folders and files without any of them. Add yours; remove none. CHANGELOG.md quotes old names."""

EXEMPT: Final = (
    "docs/formats.md",
    "milena/tiered/work/republishing.py",
    "tests/architecture/test_language.py",
)
"""The first two have the name of a file on disk."""


def files_in(place: str) -> list[Path]:
    """The tracked files of Python and documentation in a folder, or the file itself."""
    return [
        path
        for path in tracked()
        if path.suffix in (".py", ".md", ".yaml", ".toml", ".sh")
        and path.is_relative_to(place)
        and str(path) not in EXEMPT
    ]


def banned_in(text: str) -> list[tuple[int, str, str]]:
    """Each banned word of ``text``: line number, the word, what to write instead."""
    return [
        (number, match.group(), better)
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, better in PATTERNS.items()
        for match in pattern.finditer(line)
    ]


@pytest.mark.parametrize("place", CLEAN)
def test_no_file_has_a_banned_word(place: str) -> None:
    files = files_in(place)
    assert files, f"{place} has no tracked files: correct CLEAN"
    hits = [
        f"{path}:{number}: {word!r}; write: {better}"
        for path in files
        for number, word, better in banned_in((ROOT / path).read_text())
    ]
    assert not hits, "\n".join(hits)


def test_the_check_finds_words_in_prose_and_in_identifiers() -> None:
    text = "def _told(x):\n    '''Whoever asks goes on.'''\n    begin_anew = contained_errors"
    assert [word for _, word, _ in banned_in(text)] == ["told", "Whoever", "goes on", "anew"]
    assert not banned_in("stolen, retold, ongoing, nobodys, instand in")
