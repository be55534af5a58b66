"""Words and phrases that are never right in Milena's code and documentation.

The list is short on purpose: it holds private words for which Kafka or ordinary English has a better one. A package
that has been rewritten is added to ``CLEAN`` and stays there.
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
    "docs/GAPS.md",
    "docs/configuration.md",
    "docs/containers.md",
    "docs/glossary.md",
    "docs/internals",
    "docs/kafka-semantics.md",
    "docs/operations.md",
    "docs/performance.md",
    "docs/pipeline.md",
    "docs/reliability.md",
    "docs/scenarios.md",
    "docs/security.md",
    "docs/spark.md",
    "docs/testing.md",
    "docs/tier.md",
    "milena/__init__.py",
    "milena/__main__.py",
    "milena/broker",
    "milena/client",
    "milena/command_line",
    "milena/commands/scenario",
    "milena/config",
    "milena/controller",
    "milena/form.py",
    "milena/lab/chaos",
    "milena/lab/cluster.py",
    "milena/lab/histories",
    "milena/lab/invariants",
    "milena/lab/scenarios",
    "milena/lab/world",
    "milena/node",
    "milena/protocol",
    "milena/pipeline",
    "milena/report",
    "milena/storage",
    "milena/runtime",
    "milena/steering",
    "milena/testing",
    "milena/storage/files",
    "milena/tiered",
    "milena/up",
    "tests/architecture",
    "tests/chaos",
    "tests/containers",
    "tests/contract",
    "tests/endurance",
    "tests/fixtures",
    "tests/oracle",
    "tests/pipeline",
    "tests/scenarios",
    "tests/simulation",
    "tests/unit/broker",
    "tests/unit/client",
    "tests/unit/compiling",
    "tests/unit/controller",
    "tests/unit/lab",
    "tests/unit/milena",
    "tests/unit/node",
    "tests/unit/oracle",
    "tests/unit/protocol",
    "tests/unit/runtime",
    "tests/unit/storage",
    "tests/unit/tiered",
    "tests/wire",
)
"""Packages, folders and files without any of them. Add yours; remove none."""

EXEMPT: Final = ("milena/tiered/work/republishing.py", "tests/architecture/test_language.py")
"""The first has the name of a file on disk."""


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
def test_a_rewritten_package_has_no_banned_word(place: str) -> None:
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
