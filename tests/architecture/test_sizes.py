"""Small by test, not by wish: modules, functions and their docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import modules, text, tree

MODULE_LINES = 400
TEST_MODULE_LINES = 600
FUNCTION_LINES = 60

EXCEPTIONS: dict[str, int] = {}
"""``file`` or ``file:function`` -> its size. The list may only shrink, and so may each number in it."""


def sizes() -> Iterator[tuple[str, int, int]]:
    """(name, lines, limit) of each module and function."""
    for path in modules():
        lines = len(text(path).splitlines())
        yield str(path), lines, TEST_MODULE_LINES if path.parts[0] == "tests" else MODULE_LINES
        for function in functions(path):
            assert function.end_lineno is not None
            yield f"{path}:{function.name}", function.end_lineno - function.lineno + 1, FUNCTION_LINES


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for found in ast.walk(tree(path)):
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            yield found


def test_modules_and_functions_are_small() -> None:
    too_long = [
        f"{name} has {lines} lines, {EXCEPTIONS.get(name, limit)} are allowed"
        for name, lines, limit in sizes()
        if lines > EXCEPTIONS.get(name, limit)
    ]
    assert not too_long, "\n".join(too_long)


def test_the_list_of_exceptions_only_shrinks() -> None:
    actual = {name: (lines, limit) for name, lines, limit in sizes()}
    stale = [name for name, allowed in EXCEPTIONS.items() if name not in actual or actual[name][0] < allowed]
    needless = [name for name, allowed in EXCEPTIONS.items() if name in actual and allowed <= actual[name][1]]
    assert not stale + needless, f"shrink or remove: {stale + needless}"


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path) for path in modules() if tree(path).body and ast.get_docstring(tree(path)) is None]
    assert not silent, silent
