"""Removes the committed offsets of deleted topics: when a deletion is applied from the metadata log, and for topics
that were deleted while no broker coordinated the group.

An offset belongs to a topic id. If the metadata image lacks the id, either the topic was deleted, or this broker has
not applied its creation yet. The offset is removed only once the image contains everything that the controller had
committed when the offsets partition was loaded: the topic was deleted then. Kafka removes offsets only when it applies
the deletion.
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

RETRY_SECONDS: Final = 5.0
"""Seconds until a refused write, or a request to the controller that failed, is tried again."""


@dataclass(frozen=True, slots=True)
class TopicsView:
    """The topics in this broker's metadata image."""

    exists: Callable[[UUID], bool]
    current: Callable[[], Awaitable[bool]]
    """Returns True once this broker has applied everything that the controller had committed at the call; False if the
    controller does not answer or the broker does not catch up in time."""


class OffsetCleaner:
    """Removes offsets of deleted topics from one shard, once the shard is loaded. A small number of offsets is removed
    within the call; otherwise a task removes them and yields in between."""

    def __init__(
        self,
        shard: Shard,
        topics: TopicsView,
        tasks: Tasks,
        clock: Clock,
        turn: Callable[[], Awaitable[None]],
        failed: Callable[[Exception], object],
    ) -> None:
        """``turn`` is awaited wherever the work yields. ``failed`` is called with each unexpected error; the work that
        it interrupted is tried again."""
        self._shard = shard
        self._topics = topics
        self._tasks = tasks
        self._clock = clock
        self._turn = turn
        self._failed = failed
        self._deleted: dict[UUID, str] = {}
        """Deleted topics that may still have offsets: names by id."""
        self._may_have_unknown = True
        """Whether loaded offsets may have topic ids that the image lacks."""
        self._image_current = False
        """Whether the image contains everything that was committed when the log was loaded. A topic id that the image
        lacks is then that of a deleted topic."""
        self._loaded = False
        self._running = False

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Remove the offsets of these topics (names by id). Offsets of later topics with the same names stay."""
        self._deleted.update(topics)
        if self._loaded:
            self._start()

    def loaded(self) -> None:
        """Start removing offsets: the shard has loaded its groups."""
        self._loaded = True
        self._start()

    def _start(self) -> None:
        if self._running:
            return
        work = self._pass()
        # The first step runs now: it suffices for a shard with a few offsets.
        try:
            next(work)
        except StopIteration:
            if not self._has_work():
                return
        except Exception as error:
            self._failed(error)
        self._running = True
        self._tasks.attempt(self._run(work), name="group-offset-cleaning")

    def _has_work(self) -> bool:
        return bool(self._deleted or self._may_have_unknown) and not self._shard.closed

    async def _run(self, work: Generator[None, None, None]) -> None:
        try:
            await self._finish(work)
            while self._has_work():
                if self._may_have_unknown and not self._image_current:
                    self._image_current = await self._ask_controller()
                await self._finish(self._pass())
                if self._has_work():
                    await self._clock.sleep(RETRY_SECONDS)
        finally:
            self._running = False

    async def _finish(self, work: Generator[None, None, None]) -> None:
        try:
            for _ in work:
                await self._turn()
        except Exception as error:
            self._failed(error)

    async def _ask_controller(self) -> bool:
        try:
            return await self._topics.current()
        except Exception as error:
            self._failed(error)
            return False

    def _pass(self) -> Generator[None, None, None]:
        """Remove what can be removed now. Yields where other tasks may run."""
        if self._deleted:
            topics, self._deleted = self._deleted, {}
            removed = False
            try:
                removed = yield from self._shard.remove_offsets_where(offsets.has_deleted_topic(topics))
            finally:
                # A write was refused, or this generator was closed: the same topics are due in the next pass.
                if not removed:
                    self._deleted = topics | self._deleted
        if self._may_have_unknown:
            unknown = offsets.has_unknown_topic(self._topics.exists)
            if self._image_current:
                self._may_have_unknown = not (yield from self._shard.remove_offsets_where(unknown))
            else:
                self._may_have_unknown = yield from self._shard.any_offset(unknown)
