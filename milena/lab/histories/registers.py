"""One committed offset as a register: are its writes and reads those of one replicated log whose prefixes are read?

The model. Writes (commits, deletions) take effect one after the other, each strictly between its begin and its end; one
of unknown outcome also later, or never. A coordinator has a prefix of them, including all that it has acknowledged or
returned itself; a deposed coordinator that does not know it may lack writes that others acknowledged. So a read at a
node sees at least what that node has returned before. A ``settled`` read sees everything that any node returned.

``judge`` is exact if all values are different. If several writes have a read's value (all deletions have the same one),
it searches for a choice that explains the history, within ``CHOICES``; violations common to all choices are always
found.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from milena.lab.histories.orders import in_order, lasts
from milena.lab.histories.register_events import EVER, Read, Value, Write

CHOICES: Final = 500
NARROWINGS: Final = 3


class Wrong(Enum):
    """The anomalies that a read can show."""

    FROM_NOWHERE = "group offset from nowhere"
    LOST = "lost commit"
    BACK = "commit went back"
    DELETED_BACK = "deleted offset is back"
    ORDER = "group offsets out of order"


INITIAL: Final = Write(None, -EVER, -EVER, True)


@dataclass(slots=True)
class _Newest:
    """For any time, the write that began last among those known by then."""

    times: list[float] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def add(self, at: float, write: Write) -> None:
        """In order of ``at``."""
        last = self.writes[-1] if self.writes else INITIAL
        self.times.append(at)
        self.writes.append(write if write.begun > last.begun else last)

    def until(self, at: float) -> Write:
        index = bisect_right(self.times, at)
        return self.writes[index - 1] if index else INITIAL


@dataclass(slots=True)
class _Told:
    """What was known when, to anybody, and at each node."""

    everywhere: _Newest = field(default_factory=_Newest)
    at_node: dict[str, _Newest] = field(default_factory=dict)

    def to(self, read: Read) -> Write:
        """The write that began last among those that a read must see."""
        newest = self.everywhere if read.settled else self.at_node.get(read.node)
        return INITIAL if newest is None else newest.until(read.begun)


def judge(writes: Iterable[Write], reads: Iterable[Read]) -> Iterator[tuple[Wrong, str]]:
    """The anomalies; none if some order of the writes explains every read."""
    asked = sorted(reads, key=lambda read: read.ended)
    excuses = {read: Write(None, read.excuse, EVER, False) for read in asked if read.value is None}
    excuses = {read: write for read, write in excuses.items() if write.begun < read.ended}
    known = [INITIAL, *writes, *excuses.values()]
    of_value: dict[Value, list[Write]] = {}
    for write in known[: len(known) - len(excuses)]:
        of_value.setdefault(write.value, []).append(write)
    fits = {read: [one for one in of_value.get(read.value, ()) if one.begun < read.ended] for read in asked}
    fits.update({read: [write] for read, write in excuses.items()})
    explained = fits
    newest: dict[Read, Write] = {}
    for _ in range(NARROWINGS):
        only = {read: one[0] for read, one in explained.items() if len(one) == 1}
        last, told = lasts(known, only), _told(known, only)
        newest = {read: told.to(read) for read in asked}
        explained = {
            read: [one for one in fits[read] if newest[read] in (INITIAL, one) or last[one] > newest[read].begun]
            for read in asked
        }
        if not all(explained.values()):
            break
    found = False
    for read in asked:
        if not explained[read]:
            found = True
            behind = newest[read]
            yield _name(read, fits[read], behind), f"{read}, behind {behind}" if fits[read] else str(read)
    if not found and not _is_explained(known, explained):
        conflict = _conflict(known, explained)
        is_back = conflict[-1].value is not None and any(read.value is None for read in conflict)
        text = f"no order of writes explains that {'; '.join(map(str, conflict))}"
        yield Wrong.DELETED_BACK if is_back else Wrong.ORDER, text


def _told(writes: Iterable[Write], seen: Mapping[Read, Write]) -> _Told:
    events = [(write.ended, write.node, write) for write in writes if write.sure and write is not INITIAL]
    events += [(read.ended, read.node, write) for read, write in seen.items() if write is not INITIAL]
    told = _Told()
    for at, node, write in sorted(events, key=lambda event: event[0]):
        told.everywhere.add(at, write)
        if node:
            told.at_node.setdefault(node, _Newest()).add(at, write)
    return told


def _name(read: Read, fits: Sequence[Write], newest: Write) -> Wrong:
    if read.value is None:
        return Wrong.LOST
    if not fits:
        return Wrong.FROM_NOWHERE
    return Wrong.DELETED_BACK if newest.value is None else Wrong.BACK


def _conflict(writes: Sequence[Write], explained: Mapping[Read, Sequence[Write]]) -> list[Read]:
    """A minimal set of reads that cannot all be explained together. Many at once are left out first."""
    left = list(explained)
    size = max(1, len(left) // 2)
    while True:
        at = 0
        while at < len(left):
            rest = left[:at] + left[at + size :]
            if _is_explained(writes, {one: explained[one] for one in rest}):
                at += size
            else:
                left = rest
        if size == 1:
            return left
        size //= 2


def _is_explained(writes: Sequence[Write], explained: Mapping[Read, Sequence[Write]]) -> bool:
    """Whether one write can be chosen for each read so that they have an order. True if the search was given up."""
    reads = list(explained)
    choices = (sorted(explained[read], key=lambda write: (write.sure, write.begun), reverse=True) for read in reads)
    for count, chosen in enumerate(itertools.product(*choices)):
        if count == CHOICES or in_order(writes, dict(zip(reads, chosen, strict=True))):
            return True
    return False
