"""Checks the sends, polls and final log of one partition (rules: ``checker``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

from milena.lab.histories.copies import Copies, duplicate
from milena.lab.histories.events import ACKS_ALL, AllowedDeletion, FinalLog, Hole, Poll, RequestOutcome, Send, Void
from milena.lab.histories.lanes import Lanes
from milena.lab.histories.sessions import ReadSessions, Series

Finding = tuple[str, str]
EVERYTHING: Final = float("inf")
MAX_FETCH_DELAY: Final = 5.0
"""Seconds for which a fetched record may have been in flight, or buffered, before the reader returned it."""


class Observed:
    """The offsets of values according to acknowledgements, reads and the final log. Conflicts are checked at the end,
    when it is known which promises are void. ``promised``: acks=1 counts as acks=all."""

    def __init__(self, *, promised: bool = False) -> None:
        self._promising_acks = frozenset((ACKS_ALL, 1) if promised else (ACKS_ALL,))
        self._sends: dict[str, Send] = {}
        self._value_at: dict[int, str] = {}
        self._offset_of: dict[str, int] = {}
        self._values_at: dict[int, dict[str, None]] = {}
        self._places: dict[str, dict[int, None]] = {}
        self._read: dict[str, int] = {}
        """Each value that was read, and the offset at which it was last read."""
        self._acked_by_leader_only: set[tuple[int, str]] = set()
        """Values acknowledged with acks=1."""
        self._reads = ReadSessions()
        self._series: dict[str, Series] = {}
        self._lanes = Lanes()
        self._voids: list[Void] = []
        self._deletable = 0.0
        """The offset before which records may be deleted."""
        self._deletion_requests: set[int] = set()
        """The offsets before which an administrator has requested to delete records."""
        self._reader = False
        """Whether any reader has reached the end of the log."""
        self._holes: list[tuple[int, int]] = []
        """Offsets whose reads were rejected."""
        self._final: FinalLog | None = None
        self._copies: dict[str, Copies] = {}
        self._stored: dict[str, int] = {}
        self._highest_read = -1

    # -- events

    def sent(self, send: Send) -> None:
        """Add a send. If a value was sent again, which clients should not do, an acknowledged send is kept."""
        before = self._sends.get(send.value)
        if before is None or not self._is_acknowledged(before):
            self._sends[send.value] = send
        self._lanes.add(send)
        if send.outcome is not RequestOutcome.OK or send.offset < 0:
            return
        self._claim(send.offset, send.value)
        if send.acks not in self._promising_acks:
            self._acked_by_leader_only.add((send.offset, send.value))

    def polled(self, poll: Poll) -> None:
        self._reader = True
        for offset, value in poll.records:
            self._claim(offset, value)
            self._read[value] = offset
            if offset > self._highest_read:
                self._highest_read = offset
        self._reads.add(poll)
        if poll.series:
            self._series.setdefault(poll.series, Series()).add(poll)

    def voided(self, void: Void) -> None:
        self._voids.append(void)

    def deleted(self, deletion: AllowedDeletion) -> None:
        before = EVERYTHING if deletion.before is None else deletion.before
        self._deletable = max(self._deletable, before)
        if deletion.before is not None:
            self._deletion_requests.add(deletion.before)

    def add_hole(self, hole: Hole) -> None:
        self._holes.append((hole.first, hole.last))

    def ended(self, final: FinalLog) -> None:
        self._final = final
        for offset, value, _ in final.records:
            self._claim(offset, value)
            self._stored[value] = offset

    def copied(self, copies: Copies) -> None:
        self._copies[copies.value] = copies

    def _claim(self, offset: int, value: str) -> None:
        if self._value_at.setdefault(offset, value) != value:
            self._values_at.setdefault(offset, {self._value_at[offset]: None})[value] = None
        if self._offset_of.setdefault(value, offset) != offset:
            self._places.setdefault(value, {self._offset_of[value]: None})[offset] = None

    def acknowledged_within(self, begun: float, ended: float) -> Iterator[str]:
        """Yield the values of writes that were sent and acknowledged between two times."""
        for value, send in self._sends.items():
            if send.outcome is RequestOutcome.OK and begun <= send.begun and send.ended <= ended:
                yield value

    # -- violations

    def violations(self) -> Iterator[Finding]:
        """Yield the violations: name of the anomaly, description. Call once, after the last event."""
        yield from self._lost()
        yield from self._lost_in_the_middle()
        for value, places in self._places.items():
            send = self._sends.get(value)
            if send is None or (send.once and not self._is_void(send, min(places)) and not self._is_forgotten(places)):
                name, text = duplicate(value, places, self._copies.get(value))
                yield name, f"{value} {text}"
        for offset, values in self._values_at.items():
            kept = [value for value in values if self._is_promised(value, offset)]
            if len(kept) > 1:
                yield "inconsistent offsets", f"{_listed(kept)} were at {offset}"
        yield from self._never_sent()
        for before, at, after, there in self._lanes.violations(self._stored):
            if self._is_promised(before.value, at) and self._is_promised(after.value, there):
                kind = "" if before.ended <= after.begun else "internal "
                text = f"{after.value} is at {there}, and {before.value}, sent before it, at {at}"
                yield f"{kind}non-monotonic send", text
        if self._final is not None:
            for before_it, missing, found in self._lanes.gaps(self._stored):
                at, there = (
                    self._final.start - 1 if before_it is None else self._stored[before_it.value],
                    self._stored[found.value],
                )
                deleted = before_it is None and self._start > 0
                refused = any(first < there and last > at for first, last in self._final.holes)
                if not (deleted or refused or self._is_void(missing)):
                    yield "lost in a lane", f"{missing.value} is not there, but {found.value}, which was sent after it"
        yield from self._of_readers()
        yield from self._of_series()
        yield from self._of_final_log()

    def _is_void(self, send: Send, offset: int = -1) -> bool:
        """Whether a fault has voided the promises of ``send``. ``offset``: that of the record; -1 if unknown."""
        return any(send.begun <= void.at and not 0 <= offset < void.kept for void in self._voids)

    def _is_promised(self, value: str, offset: int) -> bool:
        """Whether the record with ``value`` at ``offset`` must stay there."""
        send = self._sends.get(value)
        if send is None:
            return True
        if self._is_void(send, offset):
            return False
        if (offset, value) not in self._acked_by_leader_only:
            return True
        return offset in (self._read.get(value), self._stored.get(value))

    def _is_forgotten(self, places: Iterable[int]) -> bool:
        """Whether only the last copy is above what DeleteRecords has deleted. A follower that starts at the new log
        start has no state of the producers before it, as in Kafka, and accepts their batches again as the leader."""
        return sorted(places)[-2] < self._deletion_requested_before

    @property
    def _deletion_requested_before(self) -> int:
        return max(self._deletion_requests, default=0)

    def _is_acknowledged(self, send: Send) -> bool:
        return send.outcome is RequestOutcome.OK and send.acks in self._promising_acks

    def _lost(self) -> Iterator[Finding]:
        for value, send in self._sends.items():
            acknowledged = self._is_acknowledged(send)
            if not (acknowledged or value in self._read) or value in self._stored:
                continue
            offset = self._offset_of.get(value, -1) if acknowledged else self._read[value]
            if self._is_void(send, offset) or 0 <= offset < self._start or self._is_refused(offset):
                continue
            if self._final is not None:
                how = "acknowledged" if acknowledged else "read"
                yield "lost write", f"{value} was {how} at {offset} and is gone"
            elif value not in self._read and 0 <= offset <= self._highest_read:
                yield (
                    "lost write",
                    f"{value} was acknowledged at {offset}, and {self._highest_read} was read without it",
                )

    def _lost_in_the_middle(self) -> Iterator[Finding]:
        if self._final is None or not self._voids:
            return
        missing: Send | None = None
        acknowledged = [send for send in self._sends.values() if self._is_acknowledged(send) and send.offset >= 0]
        for send in sorted(acknowledged, key=lambda send: send.offset):
            if self._stored.get(send.value) != send.offset:
                if send.offset >= self._start and not self._is_refused(send.offset):
                    missing = send
            elif missing is not None and not self._void_within(missing.begun, send.ended):
                if self._is_void(missing, missing.offset) and missing.begun <= send.begun:
                    yield "lost write", f"{missing.value} is gone, but not {send.value}, which followed it in the log"
                missing = None

    def _void_within(self, start: float, end: float) -> bool:
        sinces = ((void.at if void.since is None else void.since, void.at) for void in self._voids)
        return any(since <= end and start <= at for since, at in sinces)

    def _never_sent(self) -> Iterator[Finding]:
        for value, offset in self._offset_of.items():
            send = self._sends.get(value)
            if send is None:
                yield "phantom", f"{value} at {offset} was never sent"
            elif send.outcome is RequestOutcome.FAILED and (value in self._stored or not self._is_void(send, offset)):
                yield "aborted read", f"{value} at {offset} had been refused"

    def _of_readers(self) -> Iterator[Finding]:
        offsets: list[int] | None = None
        for jump in self._reads.jumps:
            if self._void_within(jump.before_at - MAX_FETCH_DELAY, jump.at):
                continue
            if jump.back and not jump.internal and jump.before + 1 < self._deletion_requested_before:
                # Only one of two leaders had deleted the records at the reader's position: it was reset to the start.
                continue
            if jump.back:
                yield f"{jump.kind}non-monotonic poll", f"{jump.session} read {jump.after} after {jump.before}"
                continue
            if offsets is None:
                offsets = sorted(self._value_at)
            skipped = list(self._promised_in(max(jump.before + 1, self._start), jump.after, offsets))
            if skipped and (jump.internal or not self._was_reset(skipped[-1], jump.after)):
                first = f"{self._value_at[skipped[0]]} is at {skipped[0]}"
                yield f"{jump.kind}poll skip", f"{jump.session} read {jump.after} after {jump.before}; {first}"

    def _was_reset(self, skipped: int, after: int) -> bool:
        """Whether a reader may have skipped the offsets up to ``skipped`` because its leader's log started after them.
        A leader moves its log start before its followers do (ReplicaManager.deleteRecordsOnLocalLog), also one that
        does not know that it was replaced: then DeleteRecords fails, and the other replicas keep the records."""
        return any(skipped < before <= after for before in self._deletion_requests)

    def _promised_in(self, first: int, end: int, offsets: list[int]) -> Iterator[int]:
        """Yield the offsets in ``[first, end)`` with a record that must stay."""
        for index in range(bisect_left(offsets, first), bisect_left(offsets, end)):
            if self._is_promised(self._value_at[offsets[index]], offsets[index]):
                yield offsets[index]

    def _of_series(self) -> Iterator[Finding]:
        if not self._series or self._voids:
            return  # after a void, readers may have been at a higher offset of another log
        offsets = sorted(self._value_at)
        end = max((record[0] for record in self._final.records), default=-1) + 1 if self._final else 0
        for name, series in self._series.items():
            for gap in series.gaps(self._start, end):
                skipped = [at for at in self._promised_in(*gap, offsets) if not self._is_in_hole(at)]
                if skipped and not self._was_reset(skipped[-1], gap[1]):
                    more = f", and {len(skipped) - 1} more up to {skipped[-1]}" if len(skipped) > 1 else ""
                    first = f"{self._value_at[skipped[0]]} at {skipped[0]}{more}"
                    yield "poll skip", f"{name} has not read {first}, and has continued after it"

    @property
    def _start(self) -> int:
        """Records before this offset may be missing in the final log."""
        return 0 if self._final is None else int(min(self._final.start, self._deletable))

    def _is_refused(self, offset: int) -> bool:
        """Whether reads of the final log were rejected at this offset."""
        return self._final is not None and any(first <= offset <= last for first, last in self._final.holes)

    def _is_in_hole(self, offset: int) -> bool:
        """Whether a read at this offset was rejected, by a reader or for the final log."""
        return self._is_refused(offset) or any(first <= offset <= last for first, last in self._holes)

    def _follows(self, offset: int, before: int) -> bool:
        """Whether all offsets between the two were unreadable."""
        return all(map(self._is_refused, range(before + 1, offset)))

    def _of_final_log(self) -> Iterator[Finding]:
        if self._final is None:
            return
        last: tuple[int, str, int] | None = None
        if self._final.start > self._deletable:
            yield "log start", f"it begins at {self._final.start}, and may begin at {int(self._deletable)}"
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
            if not self._reader or value in self._read or send is None or send.outcome is not RequestOutcome.OK:
                continue
            if offset < self._deletion_requested_before:
                continue  # readers may have been at a leader that had deleted it (``_was_reset``)
            if not self._is_void(send, offset) and not self._is_in_hole(offset):
                yield "unseen", f"{value} at {offset} was not read"


def _listed(items: Iterable[object]) -> str:
    return " and ".join(map(str, items))
