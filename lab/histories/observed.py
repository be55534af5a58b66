"""What a history says of one partition, gathered event by event, and the verdict on it (rules: ``checker``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from lab.histories.events import ACKS_ALL, FinalLog, Hole, Outcome, Poll, Send, Void
from lab.histories.sessions import Jump, Sessions

Found = tuple[str, str]
UNDER_WAY: Final = 5.0
"""Seconds that what was read may have travelled, or waited, before the reader got it."""


class Observed:
    """Offsets claimed for values, by acknowledgements, by reads, by the final log; conflicts are judged at the end,
    when it is known what is void."""

    def __init__(self) -> None:
        self._sends: dict[str, Send] = {}
        self._value_at: dict[int, str] = {}
        self._offset_of: dict[str, int] = {}
        self._rivals: dict[int, dict[str, None]] = {}
        self._places: dict[str, dict[int, None]] = {}
        self._read: dict[str, int] = {}
        """Each value that was read, and where last."""
        self._weak: set[tuple[int, str]] = set()
        """What was acknowledged with acks=1."""
        self._reads = Sessions()
        self._lanes: dict[str, Send] = {}
        self._falls: list[tuple[Send, Send]] = []
        self._voids: list[tuple[float, float]] = []
        """From when to when each came about."""
        self._holes: list[tuple[int, int]] = []
        """What readers were refused."""
        self._final: FinalLog | None = None
        self._stored: dict[str, int] = {}
        self._highest_read = -1

    # -- gathering

    def sent(self, send: Send) -> None:
        self._sends[send.value] = send
        if send.outcome is not Outcome.OK or send.offset < 0:
            return
        self._claim(send.offset, send.value)
        if send.acks != ACKS_ALL:
            self._weak.add((send.offset, send.value))
        if send.lane:
            before = self._lanes.get(send.lane)
            if before is not None and before.offset >= send.offset:
                self._falls.append((before, send))
            self._lanes[send.lane] = send

    def polled(self, poll: Poll) -> None:
        for offset, value in poll.records:
            self._claim(offset, value)
            self._read[value] = offset
            if offset > self._highest_read:
                self._highest_read = offset
        self._reads.add(poll)

    def voided(self, void: Void) -> None:
        self._voids.append((void.at if void.since is None else void.since, void.at))

    def passed(self, hole: Hole) -> None:
        self._holes.append((hole.first, hole.last))

    def ended(self, final: FinalLog) -> None:
        self._final = final
        for offset, value, _ in final.records:
            self._claim(offset, value)
            self._stored[value] = offset

    def _claim(self, offset: int, value: str) -> None:
        if self._value_at.setdefault(offset, value) != value:
            self._rivals.setdefault(offset, {self._value_at[offset]: None})[value] = None
        if self._offset_of.setdefault(value, offset) != offset:
            self._places.setdefault(value, {self._offset_of[value]: None})[offset] = None

    # -- the verdict

    def verdict(self) -> Iterator[Found]:
        """Each anomaly's name, and a sentence."""
        yield from self._lost()
        yield from self._cut_in_the_middle()
        for value, places in self._places.items():
            send = self._sends.get(value)
            if send is None or (send.once and not self._is_void(send)):
                yield "duplicate", f"{value} is at {_listed(places)}"
        for offset, values in self._rivals.items():
            kept = [value for value in values if self._is_promised(value, offset)]
            if len(kept) > 1:
                yield "inconsistent offsets", f"{_listed(kept)} were at {offset}"
        yield from self._out_of_nowhere()
        for before, after in self._falls:
            if self._is_promised(before.value, before.offset):
                kind = "" if before.ended <= after.begun else "internal "
                text = f"{after.value} is at {after.offset}, and {before.value}, sent before it, at {before.offset}"
                yield f"{kind}non-monotonic send", text
        yield from self._of_readers()
        yield from self._of_final_log()

    def _is_void(self, send: Send) -> bool:
        return bool(self._voids) and send.begun <= max(end for _, end in self._voids)

    def _is_promised(self, value: str, offset: int) -> bool:
        """Whether a value that was found at an offset stays there."""
        send = self._sends.get(value)
        if send is None:
            return True
        if self._is_void(send):
            return False
        if (offset, value) not in self._weak:
            return True
        return offset in (self._read.get(value), self._stored.get(value))

    def _is_acknowledged(self, send: Send) -> bool:
        return send.outcome is Outcome.OK and send.acks == ACKS_ALL

    def _lost(self) -> Iterator[Found]:
        start = self._final.start if self._final is not None else 0
        for value, send in self._sends.items():
            acknowledged = self._is_acknowledged(send)
            if not (acknowledged or value in self._read) or value in self._stored or self._is_void(send):
                continue
            offset = self._offset_of.get(value, -1)
            if 0 <= offset < start or self._is_refused(offset):
                continue
            if self._final is not None:
                how = "acknowledged" if acknowledged else "read"
                yield "lost write", f"{value} was {how} at {offset} and is gone"
            elif value not in self._read and 0 <= offset <= self._highest_read:
                yield "lost write", f"{value} was acknowledged at {offset}, and {self._highest_read} was read without"

    def _cut_in_the_middle(self) -> Iterator[Found]:
        if self._final is None or not self._voids:
            return
        missing: Send | None = None
        acknowledged = [one for one in self._sends.values() if self._is_acknowledged(one) and one.offset >= 0]
        for send in sorted(acknowledged, key=lambda send: send.offset):
            if self._stored.get(send.value) != send.offset:
                if send.offset >= self._final.start and not self._is_refused(send.offset):
                    missing = send
            elif missing is not None and not self._void_within(missing.begun, send.ended):
                if self._is_void(missing) and missing.begun <= send.begun:
                    yield "lost write", f"{missing.value} is gone, but not {send.value}, which followed it in the log"
                missing = None

    def _void_within(self, start: float, end: float) -> bool:
        return any(since <= end and start <= at for since, at in self._voids)

    def _out_of_nowhere(self) -> Iterator[Found]:
        for value, offset in self._offset_of.items():
            send = self._sends.get(value)
            if send is None:
                yield "phantom", f"{value} at {offset} was never sent"
            elif send.outcome is Outcome.FAILED and (value in self._stored or not self._is_void(send)):
                yield "aborted read", f"{value} at {offset} had been refused"

    def _of_readers(self) -> Iterator[Found]:
        offsets: list[int] | None = None
        for jump in self._reads.jumps:
            if self._void_within(jump.before_at - UNDER_WAY, jump.at):
                continue
            if jump.back:
                yield f"{jump.kind}non-monotonic poll", f"{jump.session} read {jump.after} after {jump.before}"
                continue
            if offsets is None:
                offsets = sorted(self._value_at)
            skipped = self._skipped(jump, offsets)
            if skipped is not None:
                text = (
                    f"{jump.session} read {jump.after} after {jump.before}; {self._value_at[skipped]} is at {skipped}"
                )
                yield f"{jump.kind}poll skip", text

    def _skipped(self, jump: Jump, offsets: list[int]) -> int | None:
        """The first offset between two reads that holds something which stays."""
        start = self._final.start if self._final is not None else 0
        index = bisect_left(offsets, max(jump.before + 1, start))
        while index < len(offsets) and offsets[index] < jump.after:
            if self._is_promised(self._value_at[offsets[index]], offsets[index]):
                return offsets[index]
            index += 1
        return None

    def _is_refused(self, offset: int) -> bool:
        """Whether the final log could not be read there."""
        return self._final is not None and any(first <= offset <= last for first, last in self._final.holes)

    def _follows(self, offset: int, before: int) -> bool:
        """Whether nothing lies between the two but what could not be read."""
        return all(map(self._is_refused, range(before + 1, offset)))

    def _of_final_log(self) -> Iterator[Found]:
        if self._final is None:
            return
        last: tuple[int, str, int] | None = None
        if self._final.dense and self._final.records:
            first = self._final.records[0][0]
            if not self._follows(first, self._final.start - 1):
                yield "gap", f"the log starts at {self._final.start}, and {first} is its first record"
        for record in self._final.records:
            offset, value, epoch = record
            if last is not None and epoch < last[2]:
                yield "epoch order", f"leader epoch {epoch} at {offset} follows {last[2]}"
            if last is not None and (offset <= last[0] or (self._final.dense and not self._follows(offset, last[0]))):
                yield "gap", f"offset {offset} follows {last[0]}"
            last = record
            send = self._sends.get(value)
            if not self._read or value in self._read or send is None or send.outcome is not Outcome.OK:
                continue
            if not self._is_void(send) and not any(first <= offset <= last for first, last in self._holes):
                yield "unseen", f"{value} at {offset} was read by nobody"


def _listed(items: Iterable[object]) -> str:
    return " and ".join(map(str, items))
