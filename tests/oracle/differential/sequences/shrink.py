"""Minimises a script that shows a difference, so that it still shows the same one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.oracle.differential.sequences.script import Script, Step

Shows = Callable[[Script], bool]


def shrunk(script: Script, shows: Shows, *, tries: int = 250) -> list[Step]:
    """Return a script from which no step and no list item can be removed, or the smallest after so many ``tries``."""
    left = [tries]

    def still(candidate: Script) -> bool:
        left[0] -= 1
        return left[0] >= 0 and shows(candidate)

    now = _without_steps(list(script), still)
    for index in range(len(now)):
        now = _with_less(now, index, still)
    return now


def _without_steps(script: list[Step], shows: Shows) -> list[Step]:
    size = max(1, len(script) // 2)
    while True:
        at = len(script) - size
        before = len(script)
        while at >= 0:
            fewer = script[:at] + script[at + size :]
            if fewer and shows(fewer):
                script = fewer
            at -= size
        if size > 1:
            size = max(1, size // 2)
        elif len(script) == before:
            return script


def _with_less(script: list[Step], index: int, shows: Shows) -> list[Step]:
    """Return the script without the list items of a step that are not needed for the difference."""
    again = True
    while again:
        again = False
        for smaller in lessened(script[index].fields):
            candidate = [*script[:index], dataclasses.replace(script[index], fields=smaller), *script[index + 1 :]]
            if shows(candidate):
                script, again = candidate, True
                break
    return script


def lessened(value: Any) -> Iterator[Any]:
    """Yield the value with one item less in one of its lists that have several."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            for smaller in lessened(item):
                yield {**value, key: smaller}
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if len(value) > 1:
                yield [*value[:index], *value[index + 1 :]]
            for smaller in lessened(item):
                yield [*value[:index], smaller, *value[index + 1 :]]
