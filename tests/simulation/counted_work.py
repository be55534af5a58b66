"""Counts work instead of timing it: executed lines of Python, and comparisons of the values of a request.

Lines alone would miss loops in C (``x in names``, ``names.count(x)``). So each string and number of a decoded request
is an object that counts when it is compared or hashed.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import milena.lab

_NOT_OURS = (f"{milena.lab.__path__[0]}{os.sep}", f"{Path(__file__).parents[1]}{os.sep}")
"""Modules of the simulation, whose lines are not counted."""


class Work:
    """The lines and comparisons that were counted within ``counting``."""

    def __init__(self) -> None:
        self.lines = 0
        self.comparisons = 0
        work = self

        class Text(str):
            __slots__ = ()

            def __eq__(self, other: object) -> bool:
                work.comparisons += 1
                return str.__eq__(self, other)

            def __ne__(self, other: object) -> bool:
                work.comparisons += 1
                return str.__ne__(self, other)

            def __hash__(self) -> int:
                return str.__hash__(self)

        class Number(int):
            def __eq__(self, other: object) -> bool:
                work.comparisons += 1
                return int.__eq__(self, other)

            def __ne__(self, other: object) -> bool:
                work.comparisons += 1
                return int.__ne__(self, other)

            def __hash__(self) -> int:
                return int.__hash__(self)

        self._text, self._number = Text, Number

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.gettrace()
        self.lines = self.comparisons = 0
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename.startswith(_NOT_OURS):
            return None
        self.lines += 1
        return self._line

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        self.lines += 1
        return self._line

    def watched(self, value: Any) -> Any:
        """The same value, with strings and numbers that count their comparisons."""
        if type(value) is str:
            return self._text(value)
        if type(value) is int:
            return self._number(value)
        if type(value) in (tuple, list):
            return type(value)(map(self.watched, value))
        if isinstance(value, tuple):
            return type(value)(*map(self.watched, value))
        if dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                object.__setattr__(value, field.name, self.watched(getattr(value, field.name)))
        return value
