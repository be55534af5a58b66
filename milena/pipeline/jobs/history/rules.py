"""What the job ``history`` needs to know of histories. Whoever starts it hands an object of this kind in, which Spark
carries to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class PartName(NamedTuple):
    """A part that is judged by itself. The order is that of verdicts."""

    kind: int
    name: str
    number: int


class Found(NamedTuple):
    """An anomaly in a part."""

    anomaly: str
    where: str
    text: str


class HistoryRules(Protocol):
    """Pure functions on lines of a history."""

    def place(self, line: bytes) -> tuple[PartName | None, bool]:
        """The part that a line belongs to, and whether all parts need it. Raises ValueError for a bad line,
        unless ``judge`` does, which gets it then."""

    def judge(
        self, part: PartName, lines: Iterable[bytes], shared: Sequence[tuple[PartName | None, bytes]]
    ) -> list[Found]:
        """``lines``: those of the part, in their order; ``shared``: those that all parts need, with their own part."""
