"""Removes the committed offsets of deleted topics: when a deletion is applied from the metadata log, and for topics
that were deleted while no broker coordinated the group.

An offset belongs to a topic id. If the metadata image lacks the id, either the topic was deleted, or this broker has
not applied its creation yet. The two can be told apart once the image has reached what the controller had committed
after the offsets partition was loaded. Kafka removes the offsets only when it applies the deletion.
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
"""Seconds until a refused write, or a question to the controller that was not answered, is tried again."""


@dataclass(frozen=True, slots=True)
class TopicsView:
    """What this broker knows of topics."""

    exists: Callable[[UUID], bool]
    current: Callable[[], Awaitable[bool]]
    """Returns True once this broker has applied everything that the controller has committed by now; False if that
    cannot be found out at the moment."""


class Cleaning:
    """Removes offsets of one shard, from when it is loaded. Few offsets are removed at once, many in slices."""

    def __init__(
        self,
        shard: Shard,
        topics: TopicsView,
        tasks: Tasks,
        clock: Clock,
        turn: Callable[[], Awaitable[None]],
        failed: Callable[[Exception], object],
    ) -> None:
        """``turn`` is awaited between two slices. ``failed`` hears of unforeseen errors. What they left undone is tried
        again."""
        self._shard = shard
        self._topics = topics
        self._tasks = tasks
        self._clock = clock
        self._turn = turn
        self._failed = failed
        self._deleted: dict[UUID, str] = {}
        """Deleted topics that may still have offsets: names by id."""
        self._unsure = True
        """Whether offsets that were loaded from the log may belong to unknown topics."""
        self._current = False
        """Whether an unknown topic is a deleted one: the image has reached what was committed after the log was
        loaded."""
        self._loaded = False
        self._under_way = False

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Remove the offsets of these topics (names by id). Offsets of later topics with the same names stay."""
        self._deleted.update(topics)
        if self._loaded:
            self._begin()

    def loaded(self) -> None:
        """The shard has loaded its groups."""
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
                await self._turn()
        except Exception as error:
            self._failed(error)

    async def _is_current(self) -> bool:
        try:
            return await self._topics.current()
        except Exception as error:
            self._failed(error)
            return False

    def _pass(self) -> Generator[None, None, None]:
        """One pass over the shard. Yields where other tasks may run."""
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
