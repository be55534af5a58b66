"""Valid histories at random, and ways to spoil them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from milena.lab.histories.events import Event, FinalLog, Poll, RequestOutcome, Send

PARTITION = ("t", 0)


@dataclass(frozen=True)
class Parts:
    """A history before it is put together."""

    sends: tuple[Send, ...]
    polls: tuple[Poll, ...]
    log: FinalLog

    def events(self) -> list[Event]:
        return [*self.sends, *self.polls, self.log]

    def with_send(self, index: int, send: Send) -> Parts:
        return replace(self, sends=(*self.sends[:index], send, *self.sends[index + 1 :]))

    def with_poll(self, index: int, *records: tuple[int, str]) -> Parts:
        poll = replace(self.polls[index], records=records)
        return replace(self, polls=(*self.polls[:index], poll, *self.polls[index + 1 :]))

    def with_log(self, *records: tuple[int, str, int]) -> Parts:
        return replace(self, log=replace(self.log, records=records))


def valid(seed: int, records: int = 12) -> Parts:
    """Two producers write in turn, some of it refused or unknown, and go on in other lanes after that; offsets have
    gaps, as of markers; two readers read all, in polls of at least two records and from their own places on. The first
    and last four records are all right."""
    random = Random(seed)
    sends, stored = [], []
    offset = -1
    ids = [0, 0]
    for number in range(records):
        plain = number < 4 or number >= records - 4
        outcome = (
            RequestOutcome.OK
            if plain
            else random.choice((RequestOutcome.OK, RequestOutcome.OK, RequestOutcome.FAILED, RequestOutcome.UNKNOWN))
        )
        is_stored = outcome is RequestOutcome.OK or (outcome is RequestOutcome.UNKNOWN and random.random() < 0.5)
        if is_stored:
            offset += 1 if plain else random.choice((1, 1, 2))
            stored.append((offset, f"v{number}", number // 5))
        acknowledged = offset if outcome is RequestOutcome.OK else -1
        lane = f"p{number % 2}, id {ids[number % 2]}"
        sends.append(Send(PARTITION, f"v{number}", number, number + 0.5, outcome, acknowledged, lane=lane))
        ids[number % 2] += outcome is RequestOutcome.UNKNOWN
    polls: list[Poll] = []
    for reader in range(2):
        index = random.randrange(2) if reader else 0
        while index < len(stored):
            count = max(2, random.randrange(5))
            if len(stored) - index - count == 1:
                count += 1
            batch = tuple((at, value) for at, value, _ in stored[index : index + count])
            polls.append(Poll(PARTITION, f"reader-{reader}", records + len(polls), batch))
            index += count
    return Parts(tuple(sends), tuple(polls), FinalLog(PARTITION, tuple(stored)))
