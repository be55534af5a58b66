"""Modules that mypyc compiles mean the same in both forms: what it is known to treat otherwise is not written."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from compiling.modules import ROOT, compiled_files, name_of, reasons

NOT_FOUND = ("object", "memoryview", "bytearray")
NOT_COMPILED = ("Enum", "IntEnum", "StrEnum", "NamedTuple", "Protocol", "TypedDict")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
HARMLESS = ("len", "max", "min", "floor_index", "bisect_left")
"""What may be called twice."""
RUN_TO_THE_END = {"batches_of": "all that go through a run's batches go through all of them"}
"""Generators that may have a ``finally``, and why."""


def traps(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            yield from errors_of_two_types(node)
            yield from ends_that_may_not_come(node)
            yield from names_that_clash(node)
            yield from yields_of_coroutines(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "object.__new__":
            yield node.lineno, "object.__new__ makes nothing of a compiled class"
        elif isinstance(node, ast.Slice):
            yield from calls_made_twice(node)
        elif isinstance(node, ast.Try):
            yield from pauses_while_handling(node)
        elif isinstance(node, ast.For):
            yield from ends_that_move(node)
        elif isinstance(node, ast.ClassDef):
            yield from fields_not_found(node) if is_a(node, "NamedTuple") else methods_of_calls(node)


def calls_made_twice(bounds: ast.Slice) -> Iterator[tuple[int, str]]:
    for node in ast.walk(bounds):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in HARMLESS:
            yield node.lineno, "a call in the bounds of a slice may be made twice"


def is_a(node: ast.ClassDef, *kinds: str) -> bool:
    return any(ast.unparse(base).split("[")[0].split(".")[-1] in kinds for base in node.bases)


def fields_not_found(node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and ast.unparse(field.annotation) in NOT_FOUND:
            yield field.lineno, "a NamedTuple's field of this type is not found in a compiled module"


def methods_of_calls(node: ast.ClassDef) -> Iterator[tuple[int, str]]:
    if is_a(node, *NOT_COMPILED):
        return
    for field in node.body:
        if isinstance(field, ast.Assign) and isinstance(field.value, ast.Call):
            yield field.lineno, "a method that a call makes is an attribute of each instance if compiled"


def names_that_clash(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    options = function.args.kwarg
    if options and options.annotation and not ast.unparse(options.annotation).endswith(".kwargs"):
        for argument in function.args.posonlyargs:
            if not argument.arg.startswith("_") and argument.arg != "self":
                yield argument.lineno, f"** takes no {argument.arg} if compiled, since it is an argument's name"


def ends_that_may_not_come(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    """Of generators: coroutines are run to their ends by their tasks, and context managers by ``with``."""
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    if "contextmanager" in decorators or function.name in RUN_TO_THE_END:
        return
    for node in own_nodes(function):
        if isinstance(node, ast.With) or (isinstance(node, ast.Try) and node.finalbody):
            for inner in [part for child in node.body for part in [child, *own_nodes(child)]]:
                if isinstance(inner, ast.Yield | ast.YieldFrom):
                    yield inner.lineno, "if compiled, a generator that is left here never runs what is to be at its end"


def yields_of_coroutines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[int, str]]:
    if isinstance(function, ast.AsyncFunctionDef) and any(isinstance(node, ast.Yield) for node in own_nodes(function)):
        yield function.lineno, "mypyc compiles no asynchronous generator"


def pauses_while_handling(block: ast.Try) -> Iterator[tuple[int, str]]:
    for part in [*block.handlers, *block.finalbody]:
        for node in [part, *own_nodes(part)]:
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.AsyncFor | ast.AsyncWith):
                yield node.lineno, "if compiled, the error that is handled meanwhile becomes the context of all others"


def ends_that_move(loop: ast.For) -> Iterator[tuple[int, str]]:
    call = loop.iter
    if isinstance(call, ast.Call) and ast.unparse(call.func) == "range":
        ends = {argument.id for argument in call.args if isinstance(argument, ast.Name)}
        for node in ast.walk(loop):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ends:
                yield node.lineno, f"if compiled, a change of {node.id} within the loop moves the end of its range"


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


def test_no_interpreted_class_has_a_compiled_base() -> None:
    compiled = set(compiled_files())
    classes = {
        (name_of(path), node.name)
        for path in compiled
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not is_a(node, *NOT_COMPILED)
    }
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name} is compiled: a class that is not cannot derive from it"
        for folder in ("milena", "tests", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if path not in compiled
        for line, name in derived(ast.parse(path.read_text()), classes)
    ]
    assert not found, "\n".join(found)


def derived(tree: ast.Module, classes: set[tuple[str, str]]) -> Iterator[tuple[int, str]]:
    imported = {
        name.asname or name.name: (node.module or "", name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if imported.get(ast.unparse(base).split("[")[0]) in classes:
                    yield node.lineno, ast.unparse(base)


def test_causes_are_asked_for_in_one_place() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "milena").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "__cause__" and path.stem != "containment"
    ]
    assert not found, "an error that compiled code raises has no __cause__: use cause_of"


def test_a_coroutine_is_not_taken_for_a_generator() -> None:
    found = []
    for path in (ROOT / "milena").rglob("*.py"):
        for line, code in enumerate(path.read_text().splitlines(), 1):
            asked = re.search(r"isinstance\((\w+), [^)]*(Generator|Iterator|Iterable)\b", code)
            if asked and f"not isinstance({asked[1]}, Awaitable)" not in code:
                found.append(f"{path.relative_to(ROOT)}:{line}")
    assert not found, "a compiled coroutine is a Generator, too"
