"""Random valid histories, and functions that plant anomalies in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from milena.lab.histories.anomalies import Anomaly
from milena.lab.histories.events import Event, FinalLog, Poll, RequestOutcome, Send

PARTITION = ("t", 0)


@dataclass(frozen=True)
class Parts:
    """The events of a history by kind."""

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
    """Two producers write in turn. Some writes fail or have an unknown outcome, after which the producer starts a new
    lane. Offsets have gaps, as if of transaction markers. Two readers read all records from their start offsets, in
    polls of at least two records. The first and last four writes are acknowledged."""
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


def lost_write(parts: Parts) -> Parts:
    return replace(parts.with_log(*parts.log.records[:-1]), polls=())


def lost_after_it_was_read(parts: Parts) -> Parts:
    last = replace(parts.sends[-1], outcome=RequestOutcome.UNKNOWN, offset=-1)
    return parts.with_send(len(parts.sends) - 1, last).with_log(*parts.log.records[:-1])


def duplicate(parts: Parts) -> Parts:
    offset, _, epoch = parts.log.records[-1]
    return parts.with_log(*parts.log.records, (offset + 1, parts.log.records[0][1], epoch))


def inconsistent_offsets(parts: Parts) -> Parts:
    """One reader read a record that differs from that of the other reader and of the log."""
    (offset, _), *rest = parts.polls[-1].records
    parts = replace(parts, sends=(*parts.sends, Send(PARTITION, "other", 0, 1, RequestOutcome.UNKNOWN)))
    return parts.with_poll(len(parts.polls) - 1, (offset, "other"), *rest)


def aborted_read(parts: Parts) -> Parts:
    return parts.with_send(0, replace(parts.sends[0], outcome=RequestOutcome.FAILED, offset=-1))


def phantom(parts: Parts) -> Parts:
    return replace(parts, sends=parts.sends[1:])


def swapped_sends(parts: Parts, gap: float) -> Parts:
    """A lane's first two records are acknowledged, stored and read in the wrong order."""
    one, two = parts.sends[0], parts.sends[2]
    new = {one.value: two.value, two.value: one.value}
    parts = parts.with_send(0, replace(one, offset=two.offset, ended=two.begun - gap))
    parts = parts.with_send(2, replace(two, offset=one.offset))
    polls = tuple(
        replace(p, records=tuple((at, new.get(value, value)) for at, value in p.records)) for p in parts.polls
    )
    log = replace(parts.log, records=tuple((at, new.get(value, value), e) for at, value, e in parts.log.records))
    return Parts(parts.sends, polls, log)


def nonmonotonic_send(parts: Parts) -> Parts:
    return swapped_sends(parts, 0.5)


def internal_nonmonotonic_send(parts: Parts) -> Parts:
    return swapped_sends(parts, -0.2)


def nonmonotonic_poll(parts: Parts) -> Parts:
    return replace(parts, polls=(*parts.polls, replace(parts.polls[-1], records=parts.polls[-1].records[-1:])))


def internal_nonmonotonic_poll(parts: Parts) -> Parts:
    first, *rest = parts.polls[0].records
    return parts.with_poll(0, first, first, *rest)


def poll_skip(parts: Parts) -> Parts:
    return replace(parts, polls=(*parts.polls[:1], *of_next_session(parts)))


def of_next_session(parts: Parts) -> tuple[Poll, ...]:
    """The first reader's second poll lacks its first record."""
    second = parts.polls[1]
    return (replace(second, records=second.records[1:]), *parts.polls[2:])


def internal_poll_skip(parts: Parts) -> Parts:
    return parts.with_poll(0, parts.polls[0].records[0], *parts.polls[0].records[2:], parts.polls[1].records[0])


def unseen(parts: Parts) -> Parts:
    last = parts.log.records[-1][:2]
    polls = tuple(replace(p, records=tuple(one for one in p.records if one != last)) for p in parts.polls)
    return replace(parts, polls=polls)


def epoch_order(parts: Parts) -> Parts:
    (offset, value, _), *rest = parts.log.records
    return parts.with_log((offset, value, 9), *rest)


PLANTS: list[tuple[Callable[[Parts], Parts], Anomaly]] = [
    (lost_write, Anomaly.LOST_WRITE),
    (lost_after_it_was_read, Anomaly.LOST_WRITE),
    (duplicate, Anomaly.DUPLICATE),
    (inconsistent_offsets, Anomaly.INCONSISTENT_OFFSETS),
    (aborted_read, Anomaly.ABORTED_READ),
    (phantom, Anomaly.PHANTOM),
    (nonmonotonic_send, Anomaly.NONMONOTONIC_SEND),
    (internal_nonmonotonic_send, Anomaly.INTERNAL_NONMONOTONIC_SEND),
    (nonmonotonic_poll, Anomaly.NONMONOTONIC_POLL),
    (internal_nonmonotonic_poll, Anomaly.INTERNAL_NONMONOTONIC_POLL),
    (poll_skip, Anomaly.POLL_SKIP),
    (internal_poll_skip, Anomaly.INTERNAL_POLL_SKIP),
    (unseen, Anomaly.UNSEEN),
    (epoch_order, Anomaly.EPOCH_ORDER),
]
