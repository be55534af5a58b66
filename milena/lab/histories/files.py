"""Checks histories in files part by part, with the events of one part in memory at a time.

The file is read twice. The first pass validates each line and records its position by part, with some 20 bytes per
event. The second pass reads the lines of one part after another and checks them.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from milena.lab.histories.anomalies import Violation
from milena.lab.histories.events import Event, from_line
from milena.lab.histories.invocations import OpenOperations
from milena.lab.histories.parts import DEFAULT, Demands, Judge, Part, is_shared, part_of

Result = TypeVar("Result")
NOTHING: Final = "no operations of clients, so there is nothing to judge"
"""The message for a history without parts."""


class BadLine(ValueError):
    """A line is not a valid event. The message has the file name and line number."""


class HistoryFile:
    """A history on disk. ``events`` is the number of events. ``cut_off`` is the number of an incomplete last line,
    which is ignored (the run ended while it was written); None if there is none.

    Raises OSError, BadLine."""

    def __init__(self, path: Path, on_event: Callable[[Event], object] | None = None) -> None:
        """Read the file for the first time. ``on_event`` is called with each event."""
        self.path = path
        self.events = 0
        self.cut_off: int | None = None
        self.shared: list[tuple[Part | None, Event]] = []
        self._parts: dict[Part, _LinePositions] = {}
        self._ends: dict[Part, list[Event]] = {}
        """By part, an end event with unknown outcome for each operation without an end in the file."""
        self._index(on_event)

    @property
    def parts(self) -> list[Part]:
        """The parts in the order of reports. A history without parts has nothing to check, so that it has no violations
        means nothing."""
        return sorted(self._parts, key=lambda part: part.sort_key)

    def _index(self, on_event: Callable[[Event], object] | None) -> None:
        offset = 0
        open_operations = OpenOperations()
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.isspace():
                    offset += len(line)
                    continue
                try:
                    event = from_line(line)
                except (ValueError, RecursionError) as error:
                    if not line.endswith(b"\n"):
                        self.cut_off = number
                        break
                    raise BadLine(f"{self.path}, line {number}: {error}") from None
                open_operations.add(event)
                part = part_of(event)
                if part is not None:
                    self._positions(part).add(offset, len(line))
                if is_shared(event):
                    self.shared.append((part, event))
                if on_event is not None:
                    on_event(event)
                offset += len(line)
                self.events += 1
        self._end(open_operations, on_event)

    def _end(self, open_operations: OpenOperations, on_event: Callable[[Event], object] | None) -> None:
        for event in open_operations.ends():
            part = part_of(event)
            if part is not None:
                self._positions(part)
                self._ends.setdefault(part, []).append(event)
            if is_shared(event):
                self.shared.append((part, event))
            if on_event is not None:
                on_event(event)

    def _positions(self, part: Part) -> _LinePositions:
        positions = self._parts.get(part)
        if positions is None:
            positions = self._parts[part] = _LinePositions()
        return positions

    def read(self, part: Part) -> Iterator[Event]:
        """Yield the events of a part, in order, and then all shared events of other parts."""
        with self.path.open("rb") as file:
            yield from map(from_line, self._parts[part].lines(file.fileno()))
        yield from self._ends.get(part, ())
        for own, event in self.shared:
            if own != part:
                yield event

    def each(self, body: Callable[[Judge], Result], demands: Demands = DEFAULT) -> Iterator[Result]:
        """Yield the result of ``body`` for each part, in the order of ``parts``. ``body`` must not keep a reference to
        the judge, so that only one part is in memory."""
        for part in self.parts:
            yield body(self._judge(part, demands))

    def _judge(self, part: Part, demands: Demands) -> Judge:
        judge = Judge(part, demands)
        for event in self.read(part):
            judge.add(event)
        return judge


class _LinePositions:
    """Positions and lengths of lines in a file."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._lengths = array("I")

    def add(self, offset: int, length: int) -> None:
        self._offsets.append(offset)
        self._lengths.append(length)

    def lines(self, descriptor: int) -> Iterator[bytes]:
        for offset, length in zip(self._offsets, self._lengths, strict=True):
            yield os.pread(descriptor, length, offset)


def judge_file(path: Path, demands: Demands = DEFAULT) -> list[Violation]:
    """Return the violations in a history on disk, the same as ``checker.check``. Raises OSError, BadLine."""
    return [violation for of_part in HistoryFile(path).each(violations_of, demands) for violation in of_part]


def violations_of(judge: Judge) -> list[Violation]:
    """Return the violations of one part, for ``HistoryFile.each``."""
    return list(judge.finish())
