"""Histories in files, judged part by part: what is in memory at a time are the events of one part.

The file is read twice. The first time each line is checked and noted as a place in the file, by its part: some 20 bytes
for each event. Then the lines of one part after the other are read again and judged.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from milena.lab.histories.anomalies import Violation
from milena.lab.histories.events import Event, from_line
from milena.lab.histories.invocations import UnderWay
from milena.lab.histories.parts import DEFAULT, Demands, Judge, Part, is_shared, part_of

Found = TypeVar("Found")
NOTHING: Final = "no operations of clients, so there is nothing to judge"
"""What is said of a history without parts."""


class BadLine(ValueError):
    """A line that is not an event. The message names file and line."""


class HistoryFile:
    """A history on disk. ``lines``: events read; ``cut_off``: the number of a last line that was not written to its
    end, as by a run that died, which counts for nothing; None if there is none.

    Raises OSError, BadLine."""

    def __init__(self, path: Path, seen: Callable[[Event], object] | None = None) -> None:
        """Reads the file for the first time. ``seen`` is called with each event."""
        self.path = path
        self.events = 0
        self.cut_off: int | None = None
        self.shared: list[tuple[Part | None, Event]] = []
        self._parts: dict[Part, _Places] = {}
        self._ends: dict[Part, list[Event]] = {}
        """Of operations whose end is missing in the file."""
        self._index(seen)

    @property
    def parts(self) -> list[Part]:
        """In the order of verdicts. Without any there is nothing to judge, and no anomaly says nothing."""
        return sorted(self._parts, key=lambda part: part.place)

    def _index(self, seen: Callable[[Event], object] | None) -> None:
        offset = 0
        under_way = UnderWay()
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
                under_way.add(event)
                part = part_of(event)
                if part is not None:
                    self._places(part).add(offset, len(line))
                if is_shared(event):
                    self.shared.append((part, event))
                if seen is not None:
                    seen(event)
                offset += len(line)
                self.events += 1
        self._end(under_way, seen)

    def _end(self, under_way: UnderWay, seen: Callable[[Event], object] | None) -> None:
        for event in under_way.ends():
            part = part_of(event)
            if part is not None:
                self._places(part)
                self._ends.setdefault(part, []).append(event)
            if is_shared(event):
                self.shared.append((part, event))
            if seen is not None:
                seen(event)

    def _places(self, part: Part) -> _Places:
        found = self._parts.get(part)
        if found is None:
            found = self._parts[part] = _Places()
        return found

    def read(self, part: Part) -> Iterator[Event]:
        """The events of a part, in order, and behind them all shared ones that are not among them."""
        with self.path.open("rb") as file:
            yield from map(from_line, self._parts[part].lines(file.fileno()))
        yield from self._ends.get(part, ())
        for own, event in self.shared:
            if own != part:
                yield event

    def each(self, body: Callable[[Judge], Found], demands: Demands = DEFAULT) -> Iterator[Found]:
        """What ``body`` returns for each part, which has all its events, in the order of verdicts. It must not keep the
        part: then one at a time is in memory."""
        for part in self.parts:
            yield body(self._judge(part, demands))

    def _judge(self, part: Part, demands: Demands) -> Judge:
        judge = Judge(part, demands)
        for event in self.read(part):
            judge.add(event)
        return judge


class _Places:
    """Lines of a file."""

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
    """The violations in a history on disk, the same as those of ``checker.check``. Raises OSError, BadLine."""
    return [violation for found in HistoryFile(path).each(violations_of, demands) for violation in found]


def violations_of(judge: Judge) -> list[Violation]:
    """For ``HistoryFile.each``."""
    return list(judge.finish())
