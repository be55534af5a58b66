"""The work of all client libraries on the topics of a run, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence

from milena.lab.chaos.changes import Changes
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.ending import Ends
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.readers import Readers
from milena.lab.chaos.topics import PLAIN, REPLICAS, TOMBSTONES_STAY, Topic
from milena.lab.chaos.writers import Writer
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness


class Workload:
    """``stopping`` ends all but the readers at the tail; ``finish`` tells them how far they have to read."""

    def __init__(
        self,
        libraries: Sequence[Clients],
        topics: Sequence[Topic],
        journal: Journal,
        clock: Clock,
        random: Randomness,
        *,
        pace: float,
        kinds: Collection[Kind],
    ) -> None:
        self.stopping = asyncio.Event()
        self._libraries = libraries
        self._topics = topics
        self._journal = journal
        self._clock = clock
        self._random = random
        self._pace = pace
        stay = 0.0 if Kind.CLOCK in kinds else TOMBSTONES_STAY
        self.readers = [
            Readers(library, journal, clock, random, stay) for library in libraries if "consume" in library.can
        ]
        self.logs = [place for topic in topics if not topic.keyed for place in topic.places]
        self.keyed = [place for topic in topics if topic.keyed for place in topic.places]

    @property
    def groups(self) -> list[str]:
        return [_group(library) for library in self._libraries if "group" in library.can]

    def tails(self) -> list[Coroutine[object, object, None]]:
        return [reader.follow(self.logs) for reader in self.readers]

    def work(self) -> list[Coroutine[object, object, None]]:
        found: list[Coroutine[object, object, None]] = []
        for library in self._libraries:
            of_it = Readers(library, self._journal, self._clock, self._random, 0.0)
            if "produce" in library.can:
                found += [self._writer(library, topic).write(self.stopping) for topic in self._topics]
            if "group" in library.can:
                found += [of_it.share(_group(library), [PLAIN.name], self.stopping) for _ in range(2)]
            if "admin" in library.can:
                changes = Changes(library, self._journal, self._clock, self._random, REPLICAS)
                found.append(changes.make(self.stopping))
        for reader in self.readers:
            found.append(reader.read_again(self.logs, self.stopping))
            if self.keyed:
                found.append(reader.read_keys(self.keyed, self.stopping))
        return found

    def finish(self, ends: Ends) -> None:
        for reader in self.readers:
            reader.finish(ends.ends, ends.holes)

    def _writer(self, library: Clients, topic: Topic) -> Writer:
        return Writer(library, topic, self._journal, self._clock, self._random, self._pace)


def _group(library: Clients) -> str:
    return f"readers-{library.name}"
