"""Which kinds of work were done in a run. A verdict on a run in which a library never worked, or a fault never had an
effect, says little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from milena.lab.chaos.changes import MADE
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import Fault, Kind
from milena.lab.chaos.groups.workload import SOLO, TEAM, kind_of
from milena.lab.chaos.reporting.figures import library_of
from milena.lab.chaos.topics import Topic
from milena.lab.chaos.work.readers import EVERYTHING, FROM_START, MEMBER, TAIL
from milena.lab.chaos.work.single_commits import SINGLE
from milena.lab.histories.events import Event, Poll, RequestOutcome, Send, TopicChange
from milena.lab.histories.faults import Effect
from milena.lab.histories.group_events import OffsetCommit
from milena.lab.histories.keyed import FullRead, KeyedWrite
from milena.lab.histories.machine import MachineStall, SessionTimeout

COMMITS: Final = "commits"
READS: Final = {TAIL: "at the tail", FROM_START: "from the start", EVERYTHING: "of compacted topics"}
"""The readers of a library, and how the verdict names one that never read."""


class Done:
    """Which kinds of work of each library succeeded at least once."""

    def __init__(self) -> None:
        self.writes = 0
        self.stalls: list[MachineStall] = []
        self.timeouts = 0
        self._effects: dict[Kind, list[Effect | None]] = {}
        self._done: set[tuple[str, str]] = set()
        """Of each library: topics that it has written to, readers that have read, and other work."""
        self._changed: set[str] = set()
        self._groups: set[str] = set()
        """Kinds of groups of the raw workload that have committed."""

    def add(self, event: Event) -> None:
        match event:
            case Send(outcome=RequestOutcome.OK):
                self.writes += 1
                self._did(event.value, event.partition[0])
            case KeyedWrite(outcome=RequestOutcome.OK, value=str(value)):
                self._did(value, event.partition[0])
            case Poll() if event.records:
                self._did(event.session, _reader(event.session))
            case FullRead() if event.found:
                self._did(event.reader, _reader(event.reader))
            case OffsetCommit(outcome=RequestOutcome.OK) if kind := kind_of(event.group):
                self._groups.add(kind)
            case OffsetCommit(outcome=RequestOutcome.OK):
                self._did(event.member, SINGLE if _reader(event.member) == SINGLE else COMMITS)
            case TopicChange(outcome=RequestOutcome.OK):
                self._changed.add(event.name.removeprefix(MADE).rpartition("-")[0])
            case MachineStall():
                self.stalls.append(event)
            case SessionTimeout():
                self.timeouts += 1
            case Fault() if event.effect is not Effect.OMITTED:
                self._effects.setdefault(event.kind, []).append(event.effect)
            case _:
                pass

    def _did(self, name: str, what: str) -> None:
        self._done.add((library_of(name), what))

    def idle(self, libraries: Sequence[Clients], topics: Sequence[Topic]) -> list[str]:
        """Return a sentence for each kind of work that was never done."""
        found = [] if self._effects else ["no fault was injected"]
        for kind, effects in self._effects.items():
            if Effect.NOT_SEEN in effects and Effect.SEEN not in effects:
                found.append(f"{kind.value} was injected {len(effects)} times, and no node has noticed it")
        found += [f"the group {kind} has committed nothing" for kind in (TEAM, SOLO) if kind not in self._groups]
        if not libraries:
            found.append("no client library has worked")
        for library in libraries:
            found += [f"{library.name} has {text}" for text in self._lacks(library, topics)]
        return found

    def _lacks(self, library: Clients, topics: Sequence[Topic]) -> Iterator[str]:
        done = {what for name, what in self._done if name == library.name}
        if "produce" in library.can:
            names = [topic.name for topic in topics]
            missing = [name for name in names if name not in done]
            if missing:
                yield "written nothing" if missing == names else f"written nothing to {' and '.join(missing)}"
        if "consume" in library.can:
            wanted = [reader for reader in READS if reader != EVERYTHING or any(topic.keyed for topic in topics)]
            left = [READS[reader] for reader in wanted if reader not in done]
            if left:
                yield "read nothing" if len(left) == len(wanted) else f"read nothing {' and '.join(left)}"
        if "group" in library.can and MEMBER not in done:
            yield "read nothing in its group"
        if "group" in library.can and COMMITS not in done:
            yield "committed nothing"
        if "group" in library.can and SINGLE not in done:
            yield "kept no commit"
        if "admin" in library.can and library.name not in self._changed:
            yield "made, configured and deleted no topic"


def _reader(session: str) -> str:
    """Return the kind of reader of a session: ``LIBRARY/KIND, NUMBER`` or ``LIBRARY/KIND NUMBER, SESSION``."""
    name = session.partition("/")[2].partition(",")[0]
    return next((kind for kind in (MEMBER, SINGLE) if name.startswith(f"{kind} ")), name)
