"""The work of all client libraries on the topics of a run, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from typing import Final

from milena.lab.chaos.changes import MADE, Changes
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.ending import Ends
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.journal import Journal
from milena.lab.chaos.load import Load
from milena.lab.chaos.topics import Topic
from milena.lab.chaos.work.readers import Readers
from milena.lab.chaos.work.single_commits import SingleCommits
from milena.lab.chaos.work.writers import Writer
from milena.runtime.clock import Clock
from milena.runtime.randomness import Randomness

MEMBERS: Final = 2
"""Of each group."""


class Workload:
    """``stopping`` ends all work except the readers at the tail and in groups; ``finish`` sets how far these read."""

    def __init__(
        self,
        libraries: Sequence[Clients],
        load: Load,
        journal: Journal,
        clock: Clock,
        random: Randomness,
        *,
        kinds: Collection[Kind],
    ) -> None:
        self.stopping = asyncio.Event()
        self._libraries = libraries
        self._load = load
        self._journal = journal
        self._clock = clock
        self._random = random
        stay = {topic.name: topic.tombstones_stay for topic in load.topics if topic.keyed}
        jump = Kind.CLOCK in kinds
        self.readers = [
            Readers(library, journal, clock, random, stay, clocks_jump=jump, resting=load.resting)
            for library in libraries
            if "consume" in library.can
        ]
        sharing = [library for library in libraries if "group" in library.can]
        self._sharing = {group_of(library.name): Readers(library, journal, clock, random, stay) for library in sharing}
        self._single_commits = [
            SingleCommits(library, journal, clock, random) for library in (sharing if load.groups else ())
        ]
        self.logs = load.logs
        self.keyed = load.keyed

    @property
    def groups(self) -> list[str]:
        """Also those that have committed once and never again."""
        return [*self._sharing, *(group for single in self._single_commits for group in single.groups)]

    def tails(self) -> list[Coroutine[object, object, None]]:
        """Return the readers that read up to the ends of the logs: each library alone, and the members of groups."""
        alone = [reader.follow(self.logs) for reader in self.readers]
        return alone + [
            of.share(group, self._load.shared.places) for group, of in self._sharing.items() for _ in range(MEMBERS)
        ]

    def work(self) -> list[Coroutine[object, object, None]]:
        found: list[Coroutine[object, object, None]] = []
        for library in self._libraries:
            if "produce" in library.can:
                found += [
                    writer.write(self.stopping)
                    for topic in self._load.topics
                    for writer in self._writers(library, topic)
                ]
            if "admin" in library.can:
                changes = Changes(library, self._journal, self._clock, self._random, self._load.made_replicas)
                found.append(changes.make(self.stopping))
                passing = {name for name, _ in self._load.committed if name.startswith(MADE)}
                found += [changes.come_and_go(name, self.stopping) for name in sorted(passing) if self._load.groups]
        found += [single.work(self._load.shared.places, self.stopping) for single in self._single_commits]
        for reader in self.readers:
            if self._load.read_again:
                found.append(reader.read_again(self._load.read_again, self.stopping))
            if self.keyed:
                found.append(reader.read_keys(self.keyed, self.stopping))
        return found

    def finish(self, ends: Ends) -> None:
        """All writers have stopped: readers read up to the ends of the logs."""
        for reader in (*self.readers, *self._sharing.values()):
            reader.finish(ends.ends, ends.holes)

    def behind(self) -> list[str]:
        """Return a text for each reader that has not reached the ends yet."""
        return [text for reader in (*self.readers, *self._sharing.values()) for text in reader.behind()]

    def _writers(self, library: Clients, topic: Topic) -> list[Writer]:
        load = self._load
        return [
            Writer(library, topic, self._journal, self._clock, self._random, load.pace, burst=load.burst, weak=weak)
            for weak in ((False, True) if topic.also_weak else (False,))
        ]


def group_of(library: str) -> str:
    """Return the group name of a library."""
    return f"readers-{library}"
