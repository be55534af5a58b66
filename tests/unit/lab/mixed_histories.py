"""Random histories of several partitions, groups and topics, mixed."""

from __future__ import annotations

from random import Random

from milena.lab.histories.events import AllTopics, Event, FinalTopic, Send, TopicChange, Void, from_line, to_line
from milena.lab.histories.faults import Fault, Kind
from milena.lab.histories.group_events import RequestOutcome
from milena.lab.histories.keyed import FullRead, KeyedWrite
from tests.unit.lab import group_histories
from tests.unit.lab.histories import PLANTS, Parts, valid

OK = RequestOutcome.OK
KEYED = ("keyed", 0)
DELETED = [KeyedWrite(KEYED, "k", "old", 3, 4, OK, 3), KeyedWrite(KEYED, "k", None, 9, 10, OK, 9)]
BACK = FullRead(KEYED, 100, 101, 100, (("k", 3, "old"),), tombstones_stay=8)


def moved(parts: Parts, number: int) -> list[Event]:
    """The events of ``parts``, with partition ``number``."""
    lines = [to_line(event).replace('["t",0]', f'["t",{number}]') for event in parts.events()]
    return [from_line(line) for line in lines]


def mixed(seed: int) -> list[Event]:
    """Events of several partitions (some with a planted anomaly), groups, keys, topics and faults. The events of each
    stay in order and are interleaved with those of the others."""
    random = Random(seed)
    lines: list[list[Event]] = [[*DELETED, BACK]]
    for number in range(3):
        parts = valid(random.randrange(1 << 30))
        if random.random() < 0.7:
            parts = random.choice(PLANTS)[0](parts)
        lines.append(moved(parts, number))
    lines.append(list(group_histories.valid(random.randrange(1 << 30)).events))
    lines.append([TopicChange("made", True, OK), TopicChange("gone", False, OK), FinalTopic("gone"), AllTopics(1)])
    lines.append([Fault(Kind.KILL, (1,), 0.0, 1.0), Void(("__consumer_offsets", 0), 3.0, "unclean")])
    lines.append([Send(("t", 0), "late", 20.0, 60.0, RequestOutcome.UNKNOWN)])
    found = []
    while lines := [line for line in lines if line]:
        found.append(random.choice(lines).pop(0))
    return found
