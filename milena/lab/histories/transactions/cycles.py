"""Cycles in a graph of transactions: its strongly connected components with more than one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def cycles(edges: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """Yield the nodes of each component in which every node reaches every other one (Tarjan's algorithm, without
    recursion). ``edges``: the successors of each node. Time and memory are linear in the size of the graph."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in edges:
        if root in index:
            continue
        path: list[tuple[str, Iterator[str]]] = []
        entered: str | None = root
        while entered is not None or path:
            if entered is not None:
                index[entered] = lowest[entered] = len(index)
                stack.append(entered)
                on_stack.add(entered)
                path.append((entered, iter(edges.get(entered, ()))))
                entered = None
            node, successors = path[-1]
            for successor in successors:
                if successor not in index:
                    entered = successor
                    break
                if successor in on_stack:
                    lowest[node] = min(lowest[node], index[successor])
            if entered is not None:
                continue
            path.pop()
            if path:
                lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
            if lowest[node] == index[node]:
                component = _pop(stack, on_stack, node)
                if len(component) > 1:
                    yield component


def _pop(stack: list[str], on_stack: set[str], node: str) -> list[str]:
    component: list[str] = []
    while True:
        component.append(stack.pop())
        on_stack.discard(component[-1])
        if component[-1] == node:
            return component[::-1]
