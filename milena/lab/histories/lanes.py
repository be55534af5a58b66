"""Lanes: sequences of sends with a guaranteed order; and the order by time, without lanes (rules: ``checker``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milena.lab.histories.events import RequestOutcome, Send

Fall = tuple[Send, int, Send, int]
"""A record and its offset, and one that was sent after it and is at a lower offset."""

Gap = tuple[Send | None, Send, Send]
"""Two neighbours in an idempotent lane: one of unknown outcome that is not stored, and the next that is."""


class Lanes:
    """The lanes of one partition. ``stored`` is the offset of each value in the final log; empty if there is none."""

    def __init__(self) -> None:
        self._sends: list[Send] = []

    def add(self, send: Send) -> None:
        self._sends.append(send)

    def falls(self, stored: Mapping[str, int]) -> Iterator[Fall]:
        """Each pair once."""
        falls = list(self._told_falls())
        told = {(before.value, after.value) for before, after in falls}
        for before, after in falls:
            yield before, before.offset, after, after.offset
        for before, after in (*self._stored_falls(stored), *self._late(stored)):
            if (before.value, after.value) not in told:
                told.add((before.value, after.value))
                yield before, stored[before.value], after, stored[after.value]

    def _told_falls(self) -> Iterator[tuple[Send, Send]]:
        """Neighbours in a lane, by the offsets that the producer was told. Clients may be told in another order than
        they have sent."""
        last: dict[str, Send] = {}
        for send in sorted(self._sends, key=lambda send: send.begun):
            if send.lane and send.outcome is RequestOutcome.OK and send.offset >= 0:
                before = last.get(send.lane)
                if before is not None and before.offset >= send.offset:
                    yield before, send
                last[send.lane] = send

    def _of_lanes(self) -> Iterator[list[Send]]:
        """The sends of each idempotent lane, in order."""
        found: dict[str, list[Send]] = {}
        for send in self._sends:
            if send.lane and send.once:
                found.setdefault(send.lane, []).append(send)
        for lane in found.values():
            lane.sort(key=lambda send: send.begun)
            yield lane

    def _stored_falls(self, stored: Mapping[str, int]) -> Iterator[tuple[Send, Send]]:
        for lane in self._of_lanes() if stored else ():
            last: Send | None = None
            for send in lane:
                if send.value not in stored:
                    continue
                if last is not None and stored[send.value] < stored[last.value]:
                    yield last, send
                last = send

    def _late(self, stored: Mapping[str, int]) -> Iterator[tuple[Send, Send]]:
        """Sends at an offset below one that had been acknowledged before they were sent."""
        there = [send for send in self._sends if send.value in stored]
        first: Send | None = None
        for send in sorted(there, key=lambda send: stored[send.value], reverse=True):
            if first is not None and first.ended < send.begun:
                yield first, send
            told = send.offset == stored[send.value] or (send.offset < 0 and send.once)
            is_known = send.outcome is RequestOutcome.OK and told
            if is_known and (first is None or send.ended < first.ended):
                first = send

    def gaps(self, stored: Mapping[str, int]) -> Iterator[Gap]:
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
