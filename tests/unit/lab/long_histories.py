"""Long histories, generated line by line: logs with producers and readers, compacted partitions, groups, topics and
faults, as a chaos run writes them. The length determines the history. It is valid except for the anomalies planted
at its end."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

from milena.lab.histories.anomalies import Anomaly
from milena.lab.histories.events import AllTopics, Event, FinalLog, FinalTopic, Poll, TopicChange, to_line
from milena.lab.histories.faults import Fault, Kind
from milena.lab.histories.group_events import Join, OffsetCommit, OffsetFetch, RequestOutcome, Sync
from milena.lab.histories.keyed import FullRead
from milena.protocol.types import TopicPartition

LOGS, KEYED, GROUPS = 80, 20, 10
"""The numbers of partitions, compacted partitions and groups."""
LOGS_A_ROUND, KEYED_A_ROUND = 4, 2
"""The turns of partitions for each turn of a group."""
SENDS, WRITES = 5, 5
"""The operations of one turn."""
KEYS: Final = 50
TURNS_A_READ: Final = 100
SECONDS: Final = 0.0002
"""The time from the beginning of an operation to the beginning of the next one."""
LASTS: Final = 0.004
FAULTS: Final = 20
PLANTED: Final = (
    (Anomaly.OLDER_VALUE, "keyed-2"),
    (Anomaly.LOST_WRITE, "log-3"),
    (Anomaly.INTERNAL_POLL_SKIP, "log-5"),
    (Anomaly.PHANTOM, "log-7"),
    (Anomaly.TOPIC, "unknown"),
    (Anomaly.COMMIT_BACK, "group-1"),
)
"""The planted anomalies with their partitions, topics or groups, in the order of verdicts. The history needs about
10,000 operations to contain all of them."""

_OK: Final = RequestOutcome.OK
_BEGIN: Final = (
    '{"event":"invoke","operation":"%s","begun":%.4f,"partition":["%s",%d],"value":%s,"key":"%s","acks":-1}\n'
)
_SEND: Final = (
    '{"event":"send","partition":["log",%d],"value":"v%d","begun":%.4f,"ended":%.4f,"outcome":"%s","offset":%d,'
    '"acks":-1,"lane":"%s","once":true}\n'
)
_POLL: Final = '{"event":"poll","partition":["log",%d],"session":"%s","at":%.4f,"records":[%s],"series":"%s"}\n'
_WRITE: Final = (
    '{"event":"keyed","partition":["keyed",%d],"key":"k%d","value":%s,"begun":%.4f,"ended":%.4f,"outcome":"ok",'
    '"offset":%d,"once":true}\n'
)


def long_history(operations: int) -> Iterator[str]:
    """Yields at least ``operations`` operations (each an event; writes and commits also have an ``invoke`` line), then
    the final events of a run. Each string has several lines."""
    logs = [_Log(number) for number in range(LOGS)]
    keyed = [_Keyed(number) for number in range(KEYED)]
    groups = [_Group(number) for number in range(GROUPS)]
    every: list[_Actor] = [*logs, *keyed, *groups]
    done = turn = faults = 0
    yield _text(TopicChange("log", True, _OK), TopicChange("keyed", True, _OK), *(one.made() for one in groups))
    while done < operations:
        actors: list[_Actor] = [logs[(turn * LOGS_A_ROUND + at) % LOGS] for at in range(LOGS_A_ROUND)]
        actors += [keyed[(turn * KEYED_A_ROUND + at) % KEYED] for at in range(KEYED_A_ROUND)]
        for actor in (*actors, groups[turn % GROUPS]):
            count, text = actor.turn(done * SECONDS)
            done += count
            yield text
        turn += 1
        if done * FAULTS >= operations * (faults + 1):
            faults += 1
            yield _text(_fault(done * SECONDS, operations * SECONDS / FAULTS / 2))
    now = done * SECONDS + LASTS
    for ended in every:
        yield ended.end(now)
    yield _text(FinalTopic("log"), FinalTopic("keyed"), FinalTopic("unknown"), AllTopics(3))


def _text(*events: Event) -> str:
    return "".join([to_line(event) + "\n" for event in events])


def _fault(at: float, lasts: float) -> Fault:
    """A killed broker, during which all partitions and groups must make progress."""
    every: tuple[TopicPartition, ...] = tuple(("log", number) for number in range(LOGS))
    groups = tuple(f"group-{number}" for number in range(GROUPS))
    return Fault(Kind.KILL, (1,), at - lasts, at, every, groups=groups)


class _Actor(Protocol):
    def turn(self, now: float) -> tuple[int, str]:
        """Returns the number of operations and their lines."""
        ...

    def end(self, now: float) -> str: ...


class _Log:
    """A partition with one reader and one producer, which starts a new lane after a write of unknown outcome."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._place: TopicPartition = "log", number
        self._sent = 0
        self._lane = 0
        self._stored = array("q")
        """The value at each offset."""
        self._read = 0

    def turn(self, now: float) -> tuple[int, str]:
        parts: list[str] = []
        for at in range(SENDS):
            parts += self._send(now + at * SECONDS)
        now += SENDS * SECONDS + LASTS
        middle = (self._read + len(self._stored)) // 2
        return SENDS + 2, "".join([*parts, self._poll(middle, now), self._poll(len(self._stored), now + SECONDS)])

    def _send(self, begun: float) -> tuple[str, str]:
        number, self._sent = self._sent, self._sent + 1
        lane = f"librdkafka/p{self._number}, id {self._lane}"
        outcome, offset = "ok", len(self._stored)
        if number % 389 == 388:
            outcome, offset = "failed", -1
        else:
            self._stored.append(number)
            if number % 97 == 96:
                outcome, offset = "unknown", -1
                self._lane += 1
        begin = _BEGIN % ("send", begun, "log", self._number, f'"v{number}"', "")
        return begin, _SEND % (self._number, number, begun, begun + LASTS, outcome, offset, lane)

    def _poll(self, end: int, at: float) -> str:
        records = ",".join([f'[{offset},"v{self._stored[offset]}"]' for offset in range(self._read, end)])
        self._read = end
        return _POLL % (self._number, f"librdkafka/r{self._number}", at, records, f"r{self._number}")

    def end(self, now: float) -> str:
        """Returns the final log, with planted anomalies: log-3 lacks an acknowledged record that was read, log-7 has a
        record that no client sent, and another reader of log-5 skips a record."""
        log = [(offset, f"v{number}", 0) for offset, number in enumerate(self._stored)]
        more: list[Event] = []
        if self._number == 3:
            del log[1]
        if self._number == 5:
            more = [Poll(self._place, "sarama/late", now, (log[0][:2], log[2][:2]))]
        if self._number == 7:
            log.append((len(log), "never sent", 0))
        return _text(*more, FinalLog(self._place, tuple(log)))


class _Keyed:
    """A compacted partition. Every tenth write is a tombstone."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._place: TopicPartition = "keyed", number
        self._turns = 0
        self._offset = 0
        self._last: dict[str, tuple[int, str | None]] = {}
        self._former: tuple[str, int, str] | None = None
        """Key, offset and value of a record that a later one has replaced."""

    def turn(self, now: float) -> tuple[int, str]:
        parts: list[str] = []
        for at in range(WRITES):
            parts += self._write(now + at * SECONDS)
        self._turns += 1
        if self._turns % TURNS_A_READ:
            return WRITES, "".join(parts)
        return WRITES + 1, "".join([*parts, _text(self._whole(now + WRITES * SECONDS + LASTS))])

    def _write(self, begun: float) -> tuple[str, str]:
        offset, self._offset = self._offset, self._offset + 1
        key = offset * 7 % KEYS
        name, value = f"k{key}", None if offset % 10 == 9 else f"w{offset}"
        before = self._last.get(name)
        if before is not None and before[1] is not None and value is not None:
            self._former = name, before[0], before[1]
        self._last[name] = offset, value
        shown = "null" if value is None else f'"{value}"'
        begin = _BEGIN % ("keyed", begun, "keyed", self._number, shown, name)
        return begin, _WRITE % (self._number, key, shown, begun, begun + LASTS, offset)

    def _whole(self, now: float, *, final: bool = False) -> FullRead:
        found = tuple((name, offset, value) for name, (offset, value) in self._last.items())
        return FullRead(self._place, now, now + LASTS, self._offset, found, 86400.0, final, reader="java/whole")

    def end(self, now: float) -> str:
        """Returns a read of all keys; for keyed-2 one has a value that was replaced."""
        if self._number == 2 and self._former is not None:
            name, offset, value = self._former
            self._last[name] = offset, value
        return _text(self._whole(now, final=True))


class _Group:
    """A group of one member, which commits and fetches offsets of some partitions."""

    def __init__(self, number: int) -> None:
        self._name = f"group-{number}"
        self._places: list[TopicPartition] = [("log", at) for at in range(number, LOGS, GROUPS)]
        self._turns = 0
        self._committed: dict[TopicPartition, deque[int]] = {place: deque(maxlen=2) for place in self._places}

    def made(self) -> Event:
        head = self._name, "1", 0.0, LASTS, _OK, "m", 1
        return Join(*head, leader="m", members=(("m", ""),))

    def turn(self, now: float) -> tuple[int, str]:
        self._turns += 1
        first = self._synced(now) if self._turns == 1 else ""
        place, other = (self._places[(2 * self._turns + at) % len(self._places)] for at in (0, 1))
        commits = self._commit(place, now) + self._commit(other, now + SECONDS)
        return 3, first + commits + self._fetch(place, self._committed[place][-1], now + 2 * LASTS)

    def _synced(self, now: float) -> str:
        share = tuple(self._places)
        return _text(Sync(self._name, "1", now - LASTS, now, _OK, "m", 1, sent=(("m", share),), share=share))

    def _commit(self, place: TopicPartition, begun: float) -> str:
        offset, begun = self._turns, round(begun, 4)  # as in the invoke line
        self._committed[place].append(offset)
        topic, number = place
        head = self._name, "1", begun, begun + LASTS, _OK, "m", 1, "", place, offset
        begin = _BEGIN % ("offset commit", begun, topic, number, f'"{offset}"', self._name)
        return begin + _text(OffsetCommit(*head))

    def _fetch(self, place: TopicPartition, offset: int, begun: float) -> str:
        return _text(OffsetFetch(self._name, "1", begun, begun + LASTS, _OK, place, offset))

    def end(self, now: float) -> str:
        """Returns fetches of the last committed offsets; for one partition of group-1, of the one before."""
        asked = [(place, known) for place, known in self._committed.items() if known]
        behind = asked[0][0] if asked and self._name == "group-1" else None
        return "".join(self._fetch(place, known[0 if place == behind else -1], now) for place, known in asked)
