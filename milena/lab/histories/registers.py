"""A committed offset as a register: checks that its writes and reads are those of one replicated log.

The model. Writes (commits, deletions) take effect one after the other, each strictly between its start and its end; one
of unknown outcome also later, or never. A coordinator has a prefix of them, including all writes that it has
acknowledged or returned itself; a replaced coordinator that does not know it may lack writes that others acknowledged.
So a read at a node sees at least the writes that this node has returned before. A ``settled`` read sees all writes that
any node has returned.

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


class RegisterAnomaly(Enum):
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
        """Add a write that was known at ``at``. Call in order of ``at``."""
        last = self.writes[-1] if self.writes else INITIAL
        self.times.append(at)
        self.writes.append(write if write.begun > last.begun else last)

    def until(self, at: float) -> Write:
        index = bisect_right(self.times, at)
        return self.writes[index - 1] if index else INITIAL


@dataclass(slots=True)
class _KnownWrites:
    """The newest known write by time, at any node and at each node."""

    everywhere: _Newest = field(default_factory=_Newest)
    at_node: dict[str, _Newest] = field(default_factory=dict)

    def required_by(self, read: Read) -> Write:
        """Return the write that began last among those that a read must see."""
        newest = self.everywhere if read.settled else self.at_node.get(read.node)
        return INITIAL if newest is None else newest.until(read.begun)


def judge(writes: Iterable[Write], reads: Iterable[Read]) -> Iterator[tuple[RegisterAnomaly, str]]:
    """Yield the anomalies; none if some order of the writes is consistent with all reads."""
    in_time = sorted(reads, key=lambda read: read.ended)
    excuses = {read: Write(None, read.excuse, EVER, False) for read in in_time if read.value is None}
    excuses = {read: write for read, write in excuses.items() if write.begun < read.ended}
    known = [INITIAL, *writes, *excuses.values()]
    of_value: dict[Value, list[Write]] = {}
    for write in known[: len(known) - len(excuses)]:
        of_value.setdefault(write.value, []).append(write)
    candidates = {read: [one for one in of_value.get(read.value, ()) if one.begun < read.ended] for read in in_time}
    candidates.update({read: [write] for read, write in excuses.items()})
    explained = candidates
    newest: dict[Read, Write] = {}
    for _ in range(NARROWINGS):
        only = {read: one[0] for read, one in explained.items() if len(one) == 1}
        last, known_writes = lasts(known, only), _known_writes(known, only)
        newest = {read: known_writes.required_by(read) for read in in_time}
        explained = {
            read: [one for one in candidates[read] if newest[read] in (INITIAL, one) or last[one] > newest[read].begun]
            for read in in_time
        }
        if not all(explained.values()):
            break
    found = False
    for read in in_time:
        if not explained[read]:
            found = True
            newer = newest[read]
            yield _name(read, candidates[read], newer), f"{read}, after {newer}" if candidates[read] else str(read)
    if not found and not _is_explained(known, explained):
        conflict = _conflict(known, explained)
        is_back = conflict[-1].value is not None and any(read.value is None for read in conflict)
        text = f"no order of writes explains that {'; '.join(map(str, conflict))}"
        yield RegisterAnomaly.DELETED_BACK if is_back else RegisterAnomaly.ORDER, text


def _known_writes(writes: Iterable[Write], seen: Mapping[Read, Write]) -> _KnownWrites:
    events = [(write.ended, write.node, write) for write in writes if write.sure and write is not INITIAL]
    events += [(read.ended, read.node, write) for read, write in seen.items() if write is not INITIAL]
    known_writes = _KnownWrites()
    for at, node, write in sorted(events, key=lambda event: event[0]):
        known_writes.everywhere.add(at, write)
        if node:
            known_writes.at_node.setdefault(node, _Newest()).add(at, write)
    return known_writes


def _name(read: Read, candidates: Sequence[Write], newest: Write) -> RegisterAnomaly:
    if read.value is None:
        return RegisterAnomaly.LOST
    if not candidates:
        return RegisterAnomaly.FROM_NOWHERE
    return RegisterAnomaly.DELETED_BACK if newest.value is None else RegisterAnomaly.BACK


def _conflict(writes: Sequence[Write], explained: Mapping[Read, Sequence[Write]]) -> list[Read]:
    """Return a minimal set of reads that cannot be explained together. Half of the reads are left out first, then
    fewer."""
    remaining = list(explained)
    size = max(1, len(remaining) // 2)
    while True:
        at = 0
        while at < len(remaining):
            fewer = remaining[:at] + remaining[at + size :]
            if _is_explained(writes, {one: explained[one] for one in fewer}):
                at += size
            else:
                remaining = fewer
        if size == 1:
            return remaining
        size //= 2


def _is_explained(writes: Sequence[Write], explained: Mapping[Read, Sequence[Write]]) -> bool:
    """Whether a write can be chosen for each read so that the writes have an order. Also True if CHOICES is
    exceeded."""
    reads = list(explained)
    choices = (sorted(explained[read], key=lambda write: (write.sure, write.begun), reverse=True) for read in reads)
    for count, chosen in enumerate(itertools.product(*choices)):
        if count == CHOICES or in_order(writes, dict(zip(reads, chosen, strict=True))):
            return True
    return False
