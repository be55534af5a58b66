"""The mutations: the places of a module that are changed, and the code of the function with each change."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final, TypeAlias

_COMPARES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_SWAPPED: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOG_CALLS: Final = frozenset({"info", "warning", "error", "debug", "add", "record"})
"""Method names that log or count. Calls of them whose result is unused are not mutated, since they decide nothing."""
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed function: ``function`` is the qualified name of the outermost function, ``code`` the changed code."""

    path: str
    function: str
    change: str
    code: CodeType

    @property
    def name(self) -> str:
        return f"{self.path}: {self.function}: {self.change}"


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yields the mutants of a module in order of their places. Repeated changes in a function are numbered from 2."""
    tree = ast.parse(source)
    for prefix, function in _functions(tree.body, ""):
        qualified = prefix + function.name
        seen: dict[str, int] = {}
        for number, _ in enumerate(_places(function)):
            other = copy.deepcopy(tree)
            changed = next(one for name, one in _functions(other.body, "") if name + one.name == qualified)
            place, new = list(_places(changed))[number]
            text = f"{_text(place)} -> {_text(new)}"
            seen[text] = seen.get(text, 0) + 1
            _replace(changed, place, new)
            code = _code_of(compile(ast.fix_missing_locations(other), path, "exec", dont_inherit=True), qualified)
            yield Mutant(path, qualified, text if seen[text] == 1 else f"{text} ({seen[text]})", code)


def marked(path: str, source: str) -> Iterator[Mutant]:
    """Yields each function of a module, changed to first add its path and name to a global set ``__called__``."""
    tree = ast.parse(source)
    names = []
    for prefix, function in _functions(tree.body, ""):
        names.append(prefix + function.name)
        function.body.insert(0, ast.parse(f"__called__.add(({path!r}, {names[-1]!r}))").body[0])
    module = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    for name in names:
        yield Mutant(path, name, "", _code_of(module, name))


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for statement in body:
        if isinstance(statement, Function):
            yield prefix, statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{prefix}{statement.name}.")


def _places(function: Function) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields each node that can be changed, and its replacement."""
    for statement in function.body:
        for node in ast.walk(statement):
            yield from ((node, new) for new in _changes(node))


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(left, ops, comparators):
            for index, op in enumerate(ops):
                other = [*ops[:index], _COMPARES[type(op)](), *ops[index + 1 :]]
                yield ast.Compare(left, other, comparators)
        case ast.BoolOp(op, values):
            for index in range(len(values)):
                rest = [*values[:index], *values[index + 1 :]]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Call(ast.Name(name), arguments, keywords) if name in _SWAPPED:
            yield ast.Call(ast.Name(_SWAPPED[name], ast.Load()), arguments, keywords)
        case ast.BinOp(left, ast.Add() | ast.Sub() as op, ast.Constant(1) as one):
            yield ast.BinOp(left, ast.Sub() if isinstance(op, ast.Add) else ast.Add(), one)
        case ast.Return(ast.Constant(bool(value))):
            yield ast.Return(ast.Constant(not value))
        case ast.Expr(ast.Call(function)) if not _only_logs(function):
            yield ast.Pass()
        case _:
            return


def _only_logs(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _LOG_CALLS


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _replace(function: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(function):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(one is old for one in value):
                value[next(index for index, one in enumerate(value) if one is old)] = new
                return


def _code_of(module: CodeType, qualified: str) -> CodeType:
    code = module
    for name in qualified.split("."):
        code = next(one for one in reversed(code.co_consts) if isinstance(one, CodeType) and one.co_name == name)
    return code
