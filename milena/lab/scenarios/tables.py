"""A replica as the design documents draw it: log, leader epochs and high watermark; compared, renumbered, printed.

The documents number leader epochs by hand, while a controller increments the epoch also when a partition loses its
leader. A run is therefore compared as it is, or after ``Renumbering``: the leader epochs in which a record was written
get the document's numbers in the same order, and checkpoint entries of other epochs are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import Final, NamedTuple, TypeAlias

from milena.command_line.options import nearest
from milena.lab.scenarios.script import Fields

KEYS: Final = frozenset({"log", "epochs", "committed", "log_end_offset", "in_isr", "stopped", "state"})
Log: TypeAlias = Mapping[int, tuple[str, int]]
"""Offset to (value, leader epoch)."""
GAP: Final = "   "
COMMITTED: Final = " (HW)"
EXPECTED: Final = "expected"
ACTUAL: Final = "actual"


class TableError(ValueError):
    """A table is invalid, or a run cannot be numbered like the document."""


class Mark(StrEnum):
    """How a row of a run compares with the expected one."""

    SAME = "same"
    DIFFERS = "differs"
    ACCEPTED = "accepted"
    """It is written in another way, and means the same."""
    UNCHECKED = "unchecked"
    """The scenario expects nothing here."""


class Row(NamedTuple):
    """A row of a table, expected and actual; None where one of them has no such row."""

    expected: str | None
    actual: str | None
    mark: Mark
    reason: str = ""
    """Why a difference is accepted."""


class DrawnTable(NamedTuple):
    """A table of a step. ``kind``: ``replica``, or an expectation of the tier (``remote``, ``metadata``, ...)."""

    name: str
    kind: str
    rows: Sequence[Row]


MARKS: Final = {Mark.DIFFERS: "  <- differs", Mark.ACCEPTED: " (*)"}

_RowKey: TypeAlias = tuple[int, int]
"""The section of a table, and the offset or the epoch of the row."""
_STOPPED, _LOG, _TITLE, _EPOCHS, _FIELDS = range(5)


@dataclass(frozen=True, slots=True)
class Table:
    """One replica at one moment. In an expectation, a field that is None is not checked."""

    log: Log | None = None
    """The local log."""
    epochs: Mapping[int, int] | None = None
    """The leader epoch checkpoint: epoch to start offset."""
    committed: int | None = None
    """The last committed offset: the high watermark - 1."""
    log_end_offset: int | None = None
    in_isr: bool | None = None
    stopped: bool = False
    state: str | None = None
    """A follower's state, in the documents' words."""

    @classmethod
    def parse(cls, fields: Fields) -> Table:
        """Parse scenario data. A record is ``[N, epoch]`` for the value "msg N", or ``[text, epoch]``."""
        for unknown in set(fields) - KEYS:
            raise TableError(
                f"a table has no {unknown}{nearest(str(unknown), sorted(KEYS))}; it has {', '.join(sorted(KEYS))}"
            )
        log, epochs = fields.get("log"), fields.get("epochs")
        return cls(
            log=None if log is None else log_of(log),
            epochs=None if epochs is None else epochs_of(epochs),
            committed=fields.get("committed"),
            log_end_offset=fields.get("log_end_offset"),
            in_isr=fields.get("in_isr"),
            stopped=bool(fields.get("stopped", False)),
            state=fields.get("state"),
        )

    def differences(self, found: Table) -> list[str]:
        """Return the differences of a run's table from this expected one, as text."""
        wrong = []
        for name in ("log", "epochs", "committed", "log_end_offset", "in_isr", "state"):
            expected, actual = getattr(self, name), getattr(found, name)
            if expected is not None and expected != actual:
                wrong.append(f"{name}: expected {expected}, found {actual}")
        if self.stopped != found.stopped:
            wrong.append(f"it is {'stopped' if found.stopped else 'running'}")
        return wrong

    def lines(self) -> list[str]:
        """Return the table as the documents draw it: records with their epochs, the high watermark, then the
        checkpoint."""
        return [text for text, _ in self._rows(Table()).values()]

    def expected_lines(self) -> list[str]:
        """Return all fields of an expected table, as the documents draw it."""
        return [text for text, _ in self._rows(self).values()]

    def compared(self, found: Table) -> list[Row]:
        """Return the rows of this expected table and of a run's, offset by offset and epoch by epoch."""
        expected, actual = self._rows(self), found._rows(self)
        checked = {_STOPPED, _FIELDS}
        checked |= set() if self.log is None else {_LOG}
        checked |= set() if self.epochs is None else {_TITLE, _EPOCHS}
        rows = []
        for key in sorted({*expected, *actual}):
            left, right = expected.get(key), actual.get(key)
            same = left is not None and right is not None and left[1] == right[1]
            mark = Mark.SAME if same else Mark.DIFFERS if key[0] in checked else Mark.UNCHECKED
            rows.append(Row(left and left[0], right and right[0], mark))
        return rows

    def _rows(self, expected: Table) -> dict[_RowKey, tuple[str, object]]:
        """Return each row's text, and what is compared. ``expected`` decides which of the fields are drawn, and whether
        the high watermark is compared."""
        rows: dict[_RowKey, tuple[str, object]] = {}
        if self.stopped:
            rows[_STOPPED, 0] = "stopped", True
        for offset, (value, epoch) in sorted((self.log or {}).items()):
            last = offset == self.committed
            text = f"{offset}: {value} LE-{epoch}{COMMITTED if last else ''}"
            rows[_LOG, offset] = text, (value, epoch, last and expected.committed is not None)
        if self.epochs is not None:
            rows[_TITLE, 0] = "leader_epochs", None
            rows |= {(_EPOCHS, epoch): (f"LE-{epoch}, {start}", start) for epoch, start in sorted(self.epochs.items())}
        fields: dict[str, object] = {
            "committed": self.committed if expected.committed not in (None, *(expected.log or {})) else None,
            "log end": self.log_end_offset if expected.log_end_offset is not None else None,
            "in the ISR": ("yes" if self.in_isr else "no") if expected.in_isr is not None else None,
            "state": self.state or "none" if expected.state is not None else None,
        }
        for number, (name, shown) in enumerate(fields.items()):
            if shown is not None:
                rows[_FIELDS, number] = f"{name}: {shown}", shown
        return rows


@dataclass(slots=True)
class Renumbering:
    """Maps a run's leader epochs to the document's, by rank among those in which a record was written."""

    documents: Sequence[int]
    """The document's epochs with records, ascending."""
    _written: set[int] = field(default_factory=set)

    def observe(self, tables: Iterable[Table]) -> None:
        """Record the epochs of the records in a run. They count even after the records are truncated."""
        self._written |= {epoch for table in tables for _, epoch in (table.log or {}).values()}

    @property
    def numbers(self) -> dict[int, int]:
        """Return the mapping. Raises TableError if a run has records in more epochs than the document."""
        written = sorted(self._written)
        if len(written) > len(self.documents):
            raise TableError(f"records in the epochs {written}, but the document has {list(self.documents)}")
        return dict(zip(written, self.documents, strict=False))

    def apply(self, table: Table) -> Table:
        """Return a run's table in the document's numbers. Call ``observe`` with it first."""
        log, epochs = table.log, table.epochs
        return replace(
            table,
            log=None if log is None else self.log(log),
            epochs=None if epochs is None else self.epochs(epochs),
        )

    def log(self, log: Log) -> dict[int, tuple[str, int]]:
        """Return a log in the document's numbers. Raises TableError, as ``numbers`` does, and for a record in an epoch
        that was not observed before."""
        numbers = self.numbers
        try:
            return {at: (value, numbers[epoch]) for at, (value, epoch) in log.items()}
        except KeyError as epoch:
            raise TableError(f"records in epoch {epoch}, which was never observed") from None

    def epochs(self, epochs: Mapping[int, int]) -> dict[int, int]:
        """Return the epochs in which a record was written."""
        numbers = self.numbers
        return {numbers[epoch]: start for epoch, start in epochs.items() if epoch in numbers}


def side_by_side(columns: Mapping[str, Sequence[str]]) -> str:
    """Return columns under their titles, side by side."""
    drawn = [[title, "-" * len(title), *lines] for title, lines in columns.items()]
    widths = [max(map(len, column)) for column in drawn]
    rows = zip_longest(*drawn, fillvalue="")
    return "\n".join(
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def columns_of(tables: Iterable[DrawnTable]) -> dict[str, list[str]]:
    """Return the columns of ``side_by_side``: an expected and an actual one, in which differences are marked; only an
    actual one if nothing was expected."""
    columns: dict[str, list[str]] = {}
    for name, _, rows in tables:
        if rows and all(row.mark is Mark.UNCHECKED and row.expected is None for row in rows):
            columns[name] = [row.actual or "" for row in rows]
        else:
            columns[f"{name} {EXPECTED}"] = [row.expected or "" for row in rows]
            columns[f"{name} {ACTUAL}"] = [(row.actual or "-") + MARKS.get(row.mark, "") for row in rows]
    return columns


def epochs_drawn(epochs: Mapping[int, int]) -> str:
    """Return the epochs on one line."""
    return "; ".join(f"LE-{epoch}, {start}" for epoch, start in sorted(epochs.items()))


def log_of(fields: Mapping[int, object]) -> dict[int, tuple[str, int]]:
    """Parse a log: a record is ``[N, epoch]`` for the value "msg N", or ``[text, epoch]``. Raises TableError."""
    return {int(offset): _record(entry) for offset, entry in fields.items()}


def epochs_of(fields: Mapping[int, int]) -> dict[int, int]:
    """Parse epochs with their start offsets."""
    return {int(epoch): int(start) for epoch, start in fields.items()}


def _record(entry: object) -> tuple[str, int]:
    match entry:
        case [int(number), int(epoch)]:
            return f"msg {number}", epoch
        case [str(text), int(epoch)]:
            return text, epoch
    raise TableError(f"a record is [number or text, leader epoch], not {entry!r}")
