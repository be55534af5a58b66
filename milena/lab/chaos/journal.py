"""The history of a run. On disk while it runs: one JSON object a line, and nothing of it in memory.

Each operation is there twice: as ``Invoke`` when it begins, and as its event when its outcome is known. One that has
no event when the file ends (the run died) has an unknown outcome.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from milena.lab.chaos.faults import Fault
from milena.lab.chaos.observer import Seen
from milena.lab.histories.events import Event, Invoke, RequestOutcome, Send, from_line, to_line
from milena.lab.histories.invocations import completed
from milena.lab.histories.keyed import KeyedWrite
from milena.lab.world.trace import Trace
from milena.protocol.types import TopicPartition
from milena.runtime.clock import Clock

HISTORY = "history.jsonl"
TRACE = "run.log"


class Journal(ABC):
    """The history, and a log for people."""

    def __init__(self) -> None:
        self.acknowledged: dict[TopicPartition, float] = {}
        """When the last write with acks=all to each partition was acknowledged."""

    @abstractmethod
    def now(self) -> float:
        """The time of the history, in seconds."""

    def note(self, event: Event) -> None:
        match event:
            case Send(outcome=RequestOutcome.OK, acks=-1) | KeyedWrite(outcome=RequestOutcome.OK):
                self.acknowledged[event.partition] = event.ended
            case _:
                pass
        self._keep(event)

    @abstractmethod
    def see(self, event: Seen) -> None:
        """Note what the runner has seen of the cluster."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Write a line of the log for people."""

    @abstractmethod
    def tell(self, text: str) -> None:
        """Like ``say``, and also shown on the terminal."""

    @abstractmethod
    def _keep(self, event: Event) -> None: ...


class FileJournal(Journal):
    """Writes both into a folder. Each line is there as soon as it was noted. Times are since the run began."""

    def __init__(self, folder: Path, clock: Clock, tell: Callable[[str], object] = lambda _: None) -> None:
        """``tell`` shows a line on the terminal while it runs."""
        super().__init__()
        folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._tell = tell
        self._begun = clock.monotonic()
        self._history = (folder / HISTORY).open("w", buffering=1)
        self._trace = (folder / TRACE).open("w", buffering=1)
        self.events = 0

    def now(self) -> float:
        return self._clock.monotonic() - self._begun

    def see(self, event: Seen) -> None:
        self._keep(event)

    def say(self, text: str) -> None:
        self._trace.write(f"{self.now():11.3f} {text}\n")

    def tell(self, text: str) -> None:
        self.say(text)
        self._tell(f"{self.now():8.1f} s  {text}")

    def _keep(self, event: Event) -> None:
        self._history.write(to_line(event) + "\n")
        self.events += 1

    def close(self) -> None:
        for file in (self._history, self._trace):
            file.close()


@dataclass(slots=True)
class Recording:
    """What a run has noted so far, also if it ends with an error."""

    events: list[Event] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)


class TracedJournal(Journal):
    """Keeps the history in memory and the log in a trace. Times are those of the simulation. Operations that have begun
    are left out: a run that ends early has no history."""

    def __init__(self, clock: Clock, trace: Trace, recording: Recording | None = None) -> None:
        super().__init__()
        self._recording = Recording() if recording is None else recording
        self._clock = clock
        self._trace = trace

    @property
    def events(self) -> list[Event]:
        """The history so far."""
        return self._recording.events

    def now(self) -> float:
        return self._clock.monotonic()

    def see(self, event: Seen) -> None:
        self._recording.seen.append(event)

    def say(self, text: str) -> None:
        self._trace.note(text)

    def tell(self, text: str) -> None:
        self._trace.note(text)

    def _keep(self, event: Event) -> None:
        if not isinstance(event, Invoke):
            self._recording.events.append(event)


def faults(path: Path) -> Iterator[Fault]:
    """The faults in a history."""
    return (event for event in _read(path) if isinstance(event, Fault))


def events(path: Path) -> Iterator[Event]:
    """The events in a history, and behind them the ends that are missing. A last line that was cut off is skipped."""
    return completed(_read(path))


def _read(path: Path) -> Iterator[Event]:
    with path.open() as lines:
        yield from (from_line(line) for line in lines if line.endswith("\n"))
