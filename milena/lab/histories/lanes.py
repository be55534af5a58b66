"""Lanes: send sequences with a guaranteed order. Also checks the order by time of sends without a lane (rules:
``checker``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milena.lab.histories.events import RequestOutcome, Send

OrderViolation = tuple[Send, int, Send, int]
"""A record and its offset, and a record that was sent later and has a lower offset."""

Gap = tuple[Send | None, Send, Send]
"""The last stored record before a gap in an idempotent lane (None if there is none), the first record of unknown
outcome in the gap, which is not stored, and the next stored record."""


class Lanes:
    """The lanes of one partition. ``stored`` is the offset of each value in the final log; empty if there is none."""

    def __init__(self) -> None:
        self._sends: list[Send] = []

    def add(self, send: Send) -> None:
        self._sends.append(send)

    def violations(self, stored: Mapping[str, int]) -> Iterator[OrderViolation]:
        """Yield each pair of records in the wrong order once."""
        violations = list(self._acknowledged_violations())
        reported = {(before.value, after.value) for before, after in violations}
        for before, after in violations:
            yield before, before.offset, after, after.offset
        for before, after in (*self._stored_violations(stored), *self._below_acknowledged(stored)):
            if (before.value, after.value) not in reported:
                reported.add((before.value, after.value))
                yield before, stored[before.value], after, stored[after.value]

    def _acknowledged_violations(self) -> Iterator[tuple[Send, Send]]:
        """Yield consecutive sends of a lane whose acknowledged offsets are in the wrong order. Acknowledgements may
        come in another order than the sends."""
        last: dict[str, Send] = {}
        for send in sorted(self._sends, key=lambda send: send.begun):
            if send.lane and send.outcome is RequestOutcome.OK and send.offset >= 0:
                before = last.get(send.lane)
                if before is not None and before.offset >= send.offset:
                    yield before, send
                last[send.lane] = send

    def _of_lanes(self) -> Iterator[list[Send]]:
        """Yield the sends of each idempotent lane, in order."""
        lanes: dict[str, list[Send]] = {}
        for send in self._sends:
            if send.lane and send.once:
                lanes.setdefault(send.lane, []).append(send)
        for lane in lanes.values():
            lane.sort(key=lambda send: send.begun)
            yield lane

    def _stored_violations(self, stored: Mapping[str, int]) -> Iterator[tuple[Send, Send]]:
        for lane in self._of_lanes() if stored else ():
            last: Send | None = None
            for send in lane:
                if send.value not in stored:
                    continue
                if last is not None and stored[send.value] < stored[last.value]:
                    yield last, send
                last = send

    def _below_acknowledged(self, stored: Mapping[str, int]) -> Iterator[tuple[Send, Send]]:
        """Yield sends at a lower offset than one that had been acknowledged before they were sent."""
        there = [send for send in self._sends if send.value in stored]
        first: Send | None = None
        for send in sorted(there, key=lambda send: stored[send.value], reverse=True):
            if first is not None and first.ended < send.begun:
                yield first, send
            reported = send.offset == stored[send.value] or (send.offset < 0 and send.once)
            is_known = send.outcome is RequestOutcome.OK and reported
            if is_known and (first is None or send.ended < first.ended):
                first = send

    def gaps(self, stored: Mapping[str, int]) -> Iterator[Gap]:
        """Yield the gaps in idempotent lanes."""
        for lane in self._of_lanes():
            before: Send | None = None
            missing: Send | None = None
            for send in lane:
                if send.value in stored:
                    if missing is not None:
                        yield before, missing, send
                    before, missing = send, None
                elif send.outcome is RequestOutcome.UNKNOWN and missing is None:
                    missing = send
