"""The rules of the lab's history checker for the job ``history``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from milena.lab.histories.events import Event, Invoke, from_line
from milena.lab.histories.invocations import UnderWay, unknown_end
from milena.lab.histories.parts import KINDS, PARTITION, Demands, Part, is_shared, judge, part_of
from milena.pipeline.jobs.history.rules import Found, PartName

PLAIN: Final = re.compile(rb'\{"event":"(?:send|poll|keyed)","partition":\["([\w.-]+)",(\d{1,9})\],', re.ASCII)
"""The beginning of most lines, which need not be parsed before they are judged."""


@dataclass(frozen=True, slots=True)
class LabRules:
    """The rules of ``milena history check``. The start of an operation belongs to the part of its end."""

    demands: Demands

    def place(self, line: bytes) -> tuple[PartName | None, bool]:
        begins = PLAIN.match(line)
        if begins is not None and line.endswith(b"\n"):  # else it may be incomplete
            return PartName(KINDS.index(PARTITION), begins[1].decode(), int(begins[2])), False
        event = from_line(line)
        end = unknown_end(event) if isinstance(event, Invoke) else event
        part = part_of(end)
        return None if part is None else PartName(*part.place), is_shared(end)

    def judge(
        self, part: PartName, lines: Iterable[bytes], shared: Sequence[tuple[PartName | None, bytes]]
    ) -> list[Found]:
        common = _ended(line for own, line in shared if own != part)
        name = Part(KINDS[part.kind], part.name, part.number)
        found = judge(name, _ended(lines), common, self.demands)
        return [Found(one.anomaly.value, one.where, one.text) for one in found]


def _ended(lines: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events, followed by the missing ends of operations."""
    under_way = UnderWay()
    for line in lines:
        event = from_line(line)
        under_way.add(event)
        if not isinstance(event, Invoke):
            yield event
    yield from under_way.ends()
