"""Modules that mypyc compiles mean the same in both forms: what it is known to treat otherwise is not written."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from compiling.modules import ROOT, compiled_files, name_of, reasons

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def traps(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield from errors_of_two_types(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__new__":
            yield node.lineno, "object.__new__ makes nothing of a compiled class"
        elif isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "NamedTuple" for base in node.bases):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) == "object":
                    yield field.lineno, "a NamedTuple's field of type object is not found in a compiled module"


def errors_of_two_types(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    caught: dict[str, str] = {}
    for node in own_nodes(function):
        if isinstance(node, ast.ExceptHandler) and node.name and node.type:
            kind = ast.unparse(node.type)
            if caught.setdefault(node.name, kind) != kind:
                yield node.lineno, f"{node.name} has another type before: the second raises TypeError if compiled"


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Those that are not of a function within."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, FUNCTIONS):
            yield from own_nodes(child)


def test_what_mypyc_treats_otherwise_is_not_written() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for path in compiled_files()
        for line, why in traps(ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(found)


def test_each_module_that_stays_interpreted_exists_and_has_its_reason() -> None:
    for name, reason in reasons().items():
        place = ROOT.joinpath(*name.split("."))
        assert place.is_dir() or place.with_suffix(".py").exists(), name
        assert reason


def test_no_module_is_compiled_twice() -> None:
    assert max(Counter(name_of(path) for path in compiled_files()).values()) == 1
