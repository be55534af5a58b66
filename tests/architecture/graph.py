"""Which module imports which, and the circles in that."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.architecture.source import tree

Graph = dict[str, set[str]]


def import_graph(paths: Iterable[Path], *, type_checking: bool) -> Graph:
    """Modules by name, with those that they import at any time. ``type_checking``: also for type checkers only."""
    names = {_name(path): path for path in paths}
    return {
        name: {found for found in _imported(tree(path), names.keys(), type_checking) if found != name}
        for name, path in names.items()
    }


def circles(graph: Graph) -> list[list[str]]:
    """Groups of modules of which each reaches each, sorted."""
    rest = {name: set(others) for name, others in graph.items()}
    found = []
    while (start := _in_a_circle(rest)) is not None:
        group = sorted(_reached(rest, start) & {name for name in rest if start in _reached(rest, name)} | {start})
        found.append(group)
        for name in group:
            rest[name] -= set(group)
    return sorted(found)


def _in_a_circle(graph: Graph) -> str | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        first: str = error.args[1][0]
        return first
    return None


def _reached(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in graph.get(waiting.pop(), ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imported(node: ast.AST, names: Iterable[str], type_checking: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.module is not None:
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                if inner in names or child.module in names:
                    yield inner if inner in names else child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name in names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not type_checking:
            for other in child.orelse:
                yield from _imported(other, names, type_checking)
        else:
            yield from _imported(child, names, type_checking)
