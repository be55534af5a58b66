"""Counts with a direction: references, invariants, modules in a folder, import circles."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.architecture.graph import circles, import_graph
from tests.architecture.source import modules, text, tracked, tree

INVARIANTS = 81
"""The least number of places where an invariant is checked as the state changes (``milena.protocol.invariants``)."""
LOOSE_MODULES = 25
"""Modules directly in one folder; ``apis`` has one for each API and is exempt."""
CIRCLES_OF_TYPES = 4
"""The largest number of groups of modules that import each other when imports for type checkers count, too."""

UNRESOLVED = re.compile(
    r"kafka-behaviour|\bdocument 00\d|(?<![\w-])\((?:[A-H]\d+(?:\.\d+)?(?:, |; | to |-))*[A-H]\d+(?:\.\d+)?\)"
)


def product() -> list[Path]:
    return [path for path in modules() if path.parts[0] == "milena"]


def test_references_can_be_followed() -> None:
    texts = [path for path in tracked() if path.suffix in (".py", ".md") and path.name != "test_counts.py"]
    citations = {str(path): UNRESOLVED.findall(text(path)) for path in texts}
    assert not {path: matches for path, matches in citations.items() if matches}


def test_invariants_do_not_become_fewer() -> None:
    count = sum(_checks_invariant(part) for path in product() for part in ast.walk(tree(path)))
    assert count >= INVARIANTS, f"{count} invariants are checked, {INVARIANTS} were"


def _checks_invariant(part: ast.AST) -> bool:
    """``raise BrokenInvariant(...)``, or ``raise self._broken(...)``, which adds the numbers of its owner."""
    if not isinstance(part, ast.Raise) or not isinstance(part.exc, ast.Call):
        return False
    raised = part.exc.func
    return (raised.id if isinstance(raised, ast.Name) else getattr(raised, "attr", "")) in (
        "BrokenInvariant",
        "_broken",
    )


def test_no_folder_is_crowded() -> None:
    loose = Counter(path.parent for path in product() if path.name != "__init__.py" and path.parent.name != "apis")
    assert not {str(folder): count for folder, count in loose.items() if count > LOOSE_MODULES}


def test_no_module_imports_itself_by_others() -> None:
    assert not circles(import_graph(product(), type_checking=False))


def test_circles_of_types_do_not_become_more() -> None:
    found = circles(import_graph(product(), type_checking=True))
    assert len(found) <= CIRCLES_OF_TYPES, found
