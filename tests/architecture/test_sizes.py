"""Soft limits for the sizes of modules and functions, and a docstring for each module.

A longer function is split so that the parent keeps the control flow and the leaves are pure. What is better left in one
piece is listed in ``EXCEPTIONS`` with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import modules, text, tree

MODULE_LINES = 600
FUNCTION_LINES = 70

EXCEPTIONS: dict[str, str] = {"tests/run/suites.py:suites": "a table, one entry per suite"}
"""``file`` or ``file:function`` -> why it is longer."""


def sizes() -> Iterator[tuple[str, int, int]]:
    """(name, lines, limit) of each module and function."""
    for path in modules():
        yield str(path), len(text(path).splitlines()), MODULE_LINES
        for function in functions(path):
            assert function.end_lineno is not None
            yield f"{path}:{function.name}", function.end_lineno - function.lineno + 1, FUNCTION_LINES


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for found in ast.walk(tree(path)):
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            yield found


def test_modules_and_functions_are_small_or_have_a_reason() -> None:
    long = {name: lines for name, lines, limit in sizes() if lines > limit}
    assert not {name: lines for name, lines in long.items() if name not in EXCEPTIONS}
    assert not [name for name in EXCEPTIONS if name not in long], "no longer needed"


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path) for path in modules() if tree(path).body and ast.get_docstring(tree(path)) is None]
    assert not silent, silent
