"""Offsets of topics that are no more: those that the metadata delete, and those that went while nobody coordinated.

A topic's offsets are known by its id. An id that the metadata do not have may be of a topic that was deleted, or of one
that this broker has not heard of yet: which of them it is can be told once the metadata are those that the controller
had committed after the log was read. Kafka cleans when it hears of the deletion, and else never.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.broker.groups import offsets
from milena.broker.groups.shard import Shard
from milena.runtime.clock import Clock
from milena.runtime.tasks import Tasks

AGAIN: Final = 5.0
"""Seconds until what could not be written, or not be told, is tried again."""


@dataclass(frozen=True, slots=True)
class TopicsView:
    """What this broker knows of topics."""

    exists: Callable[[UUID], bool]
    current: Callable[[], Awaitable[bool]]
    """Return True once all that the controller has committed by now is known here; False if that is not to be
    found out for now."""


class Cleaning:
    """Of one shard, from the moment that it is loaded. What is little is done at once, the rest in slices."""

    def __init__(
        self, shard: Shard, topics: TopicsView, tasks: Tasks, clock: Clock, failed: Callable[[Exception], object]
    ) -> None:
        """``failed`` hears of unforeseen errors. What they left undone is tried again."""
        self._shard = shard
        self._topics = topics
        self._tasks = tasks
        self._clock = clock
        self._failed = failed
        self._deleted: dict[UUID, str] = {}
        """Topics whose offsets may be left, names by id."""
        self._unsure = True
        """Whether there may be offsets of unknown topics that were in the log when it was read."""
        self._current = False
        """Unknown means deleted: the metadata have reached what was committed after the log was read."""
        self._loaded = False
        self._under_way = False

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Remove the offsets of topics, names by id; those of later topics of their names stay."""
        self._deleted.update(topics)
        if self._loaded:
            self._begin()

    def loaded(self) -> None:
        """The shard has its groups."""
        self._loaded = True
        self._begin()

    def _begin(self) -> None:
        if self._under_way:
            return
        work = self._pass()
        try:
            next(work)
        except StopIteration:
            if not self._is_left():
                return
        except Exception as error:
            self._failed(error)
        self._under_way = True
        self._tasks.attempt(self._go_on(work), name="group-offset-cleaning")

    def _is_left(self) -> bool:
        return bool(self._deleted or self._unsure) and not self._shard.closed

    async def _go_on(self, work: Generator[None, None, None]) -> None:
        try:
            await self._finish(work)
            while self._is_left():
                if self._unsure and not self._current:
                    self._current = await self._is_current()
                await self._finish(self._pass())
                if self._is_left():
                    await self._clock.sleep(AGAIN)
        finally:
            self._under_way = False

    async def _finish(self, work: Generator[None, None, None]) -> None:
        try:
            for _ in work:
                await self._clock.sleep(0)
        except Exception as error:
            self._failed(error)

    async def _is_current(self) -> bool:
        try:
            return await self._topics.current()
        except Exception as error:
            self._failed(error)
            return False

    def _pass(self) -> Generator[None, None, None]:
        """Yields where other work may have its turn."""
        if self._deleted:
            topics, self._deleted = self._deleted, {}
            removed = False
            try:
                removed = yield from self._shard.remove_offsets_where(offsets.of_topics(topics))
            finally:
                if not removed:
                    self._deleted = topics | self._deleted
        if self._unsure:
            unknown = offsets.of_unknown(self._topics.exists)
            if self._current:
                self._unsure = not (yield from self._shard.remove_offsets_where(unknown))
            else:
                self._unsure = yield from self._shard.any_offset(unknown)
