"""The history of a run, on disk while it runs: one JSON object a line, and nothing of it in memory.

Each operation is there twice: as ``Invoke`` when it begins, and as its event when its outcome is known. One that has
no event when the file ends (the run died) has an unknown outcome: ``complete`` says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from milena.lab.chaos.faults import Fault, Kind
from milena.lab.histories.events import Event, Invoke, RequestOutcome, Send, TopicChange, from_line, to_line
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.keyed import KeyedWrite
from milena.runtime.clock import Clock

HISTORY = "history.jsonl"
TRACE = "run.log"


class Journal:
    """Writes the history and a log for people into a folder. Each line is there as soon as it was noted."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._begun = clock.monotonic()
        self._history = (folder / HISTORY).open("w", buffering=1)
        self._trace = (folder / TRACE).open("w", buffering=1)
        self.events = 0

    def now(self) -> float:
        """The time of the history: seconds since the run began."""
        return self._clock.monotonic() - self._begun

    def note(self, event: Event) -> None:
        self._write(to_line(event))

    def fault(self, fault: Fault) -> None:
        self._write(json.dumps({"event": "fault", **asdict(fault), "kind": fault.kind.value}, separators=(",", ":")))

    def say(self, text: str) -> None:
        """A line of the log for people."""
        self._trace.write(f"{self.now():11.3f} {text}\n")

    def _write(self, line: str) -> None:
        self._history.write(line + "\n")
        self.events += 1

    def close(self) -> None:
        for file in (self._history, self._trace):
            file.close()


def faults(path: Path) -> Iterator[Fault]:
    """The faults in a history."""
    with path.open() as lines:
        for line in lines:
            if line.startswith('{"event":"fault"'):
                values = json.loads(line)
                del values["event"]
                places = tuple((topic, number) for topic, number in values.pop("writable"))
                kind, nodes = Kind(values.pop("kind")), tuple(values.pop("nodes"))
                yield Fault(kind, nodes, writable=places, **values)


def events(path: Path) -> Iterator[Event]:
    """The events in a history, without beginnings and faults."""
    with path.open() as lines:
        for line in lines:
            if not line.startswith(('{"event":"fault"', '{"event":"invoke"')):
                yield from_line(line)


def complete(path: Path) -> int:
    """Add an event of unknown outcome for each operation that has begun and not ended, after a last line that was cut
    off is removed. Returns how many. Memory: what was under way at once."""
    missing: dict[tuple[object, ...], Invoke] = {}
    whole = 0
    with path.open("rb+") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            if line.startswith(b'{"event":"fault"'):
                continue
            event = from_line(line.decode())
            if isinstance(event, Invoke):
                missing[_name(event)] = event
            else:
                missing.pop(_name(event), None)
        file.truncate(whole)
    with path.open("a") as adding:
        adding.writelines(to_line(_unknown(invoke)) + "\n" for invoke in missing.values())
    return len(missing)


def _name(event: Event) -> tuple[object, ...]:
    """The same for an operation's beginning and its end."""
    match event:
        case Invoke():
            return event.operation, event.partition, event.key, event.value, event.begun
        case Send():
            return "send", event.partition, "", event.value, event.begun
        case KeyedWrite():
            return "keyed", event.partition, event.key, event.value, event.begun
        case OffsetCommit():
            return "offset commit", event.partition, event.group, str(event.offset), event.begun
        case TopicChange():
            return "change", ("", 0), "", event.name, event.begun
        case _:
            return ()


def _unknown(invoke: Invoke) -> Event:
    outcome, begun = RequestOutcome.UNKNOWN, invoke.begun
    match invoke.operation:
        case "send":
            return Send(invoke.partition, invoke.value or "", begun, begun, outcome, acks=invoke.acks)
        case "keyed":
            return KeyedWrite(invoke.partition, invoke.key, invoke.value, begun, begun, outcome)
        case "offset commit":
            offset = int(invoke.value or 0)
            return OffsetCommit(
                invoke.key, "", begun, begun, outcome, "", -1, partition=invoke.partition, offset=offset, retried=True
            )
        case _:
            return TopicChange(invoke.value or "", bool(invoke.acks), outcome, begun=begun)
