"""Topics that a chaos run creates do not accumulate if answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from milena.lab.chaos.changes import MOST, Changes
from milena.lab.histories.events import Event, RequestOutcome, TopicChange
from milena.runtime.randomness import Randomness

ROUNDS = 60


class Admin:
    """A cluster that loses, in turns, requests for deletion and answers to them."""

    def __init__(self, *, silent: bool = False, unsure: bool = False) -> None:
        """``unsure``: answers to creations are lost, too. ``silent``: topics cannot be listed."""
        self.there: dict[str, None] = {}
        self.asked: list[str] = []
        self.of_unlisted: list[str] = []
        self.created = 0
        self._silent = silent
        self._unsure = unsure

    async def create_topic(
        self, name: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> RequestOutcome:
        self.there[name] = None
        self.created += 1
        return RequestOutcome.UNKNOWN if self._unsure else RequestOutcome.OK

    async def delete_topic(self, name: str) -> RequestOutcome:
        if name not in self.there:
            self.of_unlisted.append(name)
        self.asked.append(name)
        if len(self.asked) % 2:
            return RequestOutcome.UNKNOWN
        self.there.pop(name, None)
        return RequestOutcome.UNKNOWN if len(self.asked) % 4 else RequestOutcome.OK

    async def set_config(self, topic: str, config: Mapping[str, str]) -> RequestOutcome:
        return RequestOutcome.OK

    async def topics(self) -> Sequence[str] | None:
        return None if self._silent else list(self.there)

    async def close(self) -> None:
        return


class Run:
    """A fake that is journal, clock and library."""

    name = "one"

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._stopping = asyncio.Event()
        self.noted: list[Event] = []

    async def admin(self) -> Admin:
        return self._admin

    def now(self) -> float:
        return 0.0

    def note(self, event: Event) -> None:
        self.noted.append(event)

    async def sleep(self, seconds: float) -> None:
        if self._admin.created >= ROUNDS:
            self._stopping.set()

    def run(self) -> None:
        ports: Any = self
        asyncio.run(Changes(ports, ports, ports, Randomness(1), [3]).make(self._stopping))


def test_a_deletion_of_unknown_outcome_is_repeated_while_the_topic_exists() -> None:
    admin = Admin()
    Run(admin).run()
    assert len(set(admin.asked)) < len(admin.asked), "some more than once"
    assert len(admin.there) <= MOST + 2
    assert admin.of_unlisted == []


def test_a_topic_whose_creation_was_not_confirmed_is_deleted() -> None:
    admin = Admin(unsure=True)
    Run(admin).run()
    assert admin.asked, "those that are there after all are deleted"
    assert len(admin.there) <= 2
    assert admin.of_unlisted == []


def test_all_attempts_are_in_the_history() -> None:
    admin = Admin()
    run = Run(admin)
    run.run()
    deleted = [one.name for one in run.noted if isinstance(one, TopicChange) and not one.exists]
    assert deleted == admin.asked


def test_no_deletion_is_repeated_while_topics_cannot_be_listed() -> None:
    admin = Admin(silent=True)
    Run(admin).run()
    assert len(set(admin.asked)) == len(admin.asked)
