"""Reads the state of a cluster's nodes while a client wants it: one task per node, and one that publishes.

Without a client, nothing is asked. The pause between two rounds at a node grows with the time that it takes, so that
the node spends at most a twentieth of its time on answers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from milena.console.model import Delta, Model
from milena.console.node_link import CommandError, NodeAway
from milena.console.places import Place, Watched

SHORTEST: Final = 0.5
LONGEST: Final = 10.0
"""Seconds between two rounds at a node."""
SHARE: Final = 20.0
"""The pause is this many times as long as the round took."""
GROUPS_SECONDS: Final = 2.0
"""The shortest pause between two looks at the groups."""
LOOKED_AT: Final = 10.0
"""Seconds for which nodes are asked after the last request for the state."""
FRESH_SECONDS: Final = 3.0
"""The longest time for which a request for the state waits for nodes that do not answer."""
QUEUED: Final = 32
"""Deltas that wait for a slow client; then it loses them and gets the whole state again."""
MOST_SUBSCRIBERS: Final = 32


class TooManySubscribers(Exception):
    """There are as many event streams as the server allows."""


class Subscriber:
    """A client of the event stream."""

    def __init__(self) -> None:
        self.sending: MemoryObjectSendStream[Delta]
        self.receiving: MemoryObjectReceiveStream[Delta]
        self.sending, self.receiving = anyio.create_memory_object_stream[Delta](QUEUED)
        self.lost = False
        """Whether a delta did not fit into the queue. It is emptied before the client is
        notified to read the whole state again."""

    def close(self) -> None:
        self.sending.close()
        self.receiving.close()

    def offer(self, delta: Delta) -> None:
        """Put a delta into the queue, unless that is full."""
        if self.lost:
            return
        try:
            self.sending.send_nowait(delta)
        except anyio.WouldBlock:
            self.lost = True


class NodeWatch:
    """One node as it is watched."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.rounds = 0
        """Complete rounds, with or without an answer."""
        self.asking = False
        self.pause = SHORTEST
        self.due = anyio.Event()
        """Ends the pause before the next round."""
        self.scope = anyio.CancelScope()


class Watch:
    """The watch of one cluster. ``run`` is its task; the other methods are called by requests."""

    def __init__(
        self, place: Place, model: Model, monotonic: Callable[[], float], note: Callable[[str, Exception], object]
    ) -> None:
        """``note`` logs an unexpected error of the place that is named. The watch continues."""
        self._place = place
        self._note = note
        self.model = model
        self._monotonic = monotonic
        self._nodes: dict[str, NodeWatch] = {}
        self._subscribers: set[Subscriber] = set()
        self._looked_at = 0.0
        self._wanted = anyio.Event()
        self._done = anyio.Event()
        """Set at the end of each round of a node."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow_groups)
            while True:
                await self._until_wanted()
                try:
                    self._note_nodes(tasks)
                    self.publish()
                except Exception as error:
                    self._note("the list of nodes", error)
                await anyio.sleep(SHORTEST / 2)

    # -- what requests call

    async def fresh(self) -> None:
        """Return when all nodes that answer have answered a question that is asked now."""
        self._look()
        self._describe_nodes()
        with anyio.move_on_after(FRESH_SECONDS):
            while not self._nodes:
                await self._done.wait()
            # a round that has begun may have passed what the client wants to see
            awaited = [
                (watch, watch.rounds + 1 + watch.asking)
                for watch in self._nodes.values()
                if watch.watched.is_answering()
            ]
            self.soon()
            while any(watch.rounds < count and watch.watched.is_answering() for watch, count in awaited):
                await self._done.wait()
        self._describe_nodes()
        self.publish()

    def soon(self) -> None:
        """Ask all nodes at once: something was changed."""
        for watch in self._nodes.values():
            watch.due.set()

    @asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Subscriber]:
        """Yield a subscriber that gets all deltas from now on. Raises TooManySubscribers."""
        if len(self._subscribers) >= MOST_SUBSCRIBERS:
            raise TooManySubscribers(f"there are {MOST_SUBSCRIBERS} event streams; close one")
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        self._look()
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            subscriber.close()

    def publish(self) -> None:
        """Publish the changes since the last call."""
        self.model.interval_ms = round(1000 * max([SHORTEST, *(watch.pause for watch in self._nodes.values())]))
        delta = self.model.publish()
        if delta is not None:
            for subscriber in self._subscribers:
                subscriber.offer(delta)

    # -- groups

    async def _follow_groups(self) -> None:
        while True:
            await self._until_wanted()
            begin = self._monotonic()
            try:
                await self._place.read_groups(self.model)
            except Exception as error:
                self._note("reading the groups", error)
            await anyio.sleep(max((self._monotonic() - begin) * SHARE, GROUPS_SECONDS))

    # -- nodes

    def _look(self) -> None:
        self._looked_at = self._monotonic()
        wanted, self._wanted = self._wanted, anyio.Event()
        wanted.set()

    def _is_wanted(self) -> bool:
        return bool(self._subscribers) or self._monotonic() - self._looked_at < LOOKED_AT

    async def _until_wanted(self) -> None:
        while not self._is_wanted():
            await self._wanted.wait()

    def _describe_nodes(self) -> Mapping[str, Watched]:
        """Enter the nodes and their processes into the model as they are now, and return them."""
        listed = self._place.nodes()
        for watched in listed.values():
            self._place.describe(watched, self.model)
        return listed

    def _note_nodes(self, tasks: TaskGroup) -> None:
        """Take over the nodes as they are listed now, and begin to watch new ones."""
        listed = self._describe_nodes()
        for name, watched in listed.items():
            if name not in self._nodes:
                self._nodes[name] = watch = NodeWatch(watched)
                tasks.start_soon(self._follow, watch)
        for name in [name for name in self._nodes if name not in listed]:
            self._nodes.pop(name).scope.cancel()
            self.model.set_node(name, None)

    async def _follow(self, watch: NodeWatch) -> None:
        """Ask one node again and again, over one connection while that holds."""
        with watch.scope:
            while True:
                await self._until_wanted()
                if watch.watched.is_answering():
                    try:
                        await self._follow_connection(watch)
                    except (NodeAway, CommandError):
                        pass
                    except Exception as error:
                        self._note(f"reading {watch.watched.name}", error)
                self._round_ended(watch, SHORTEST)
                await self._pause(watch)

    async def _follow_connection(self, watch: NodeWatch) -> None:
        """Raises NodeAway, CommandError."""
        async with watch.watched.session(self.model) as session:
            while self._is_wanted():
                begin = self._monotonic()
                watch.due, watch.asking = anyio.Event(), True
                await session.round()
                took = self._monotonic() - begin
                self._note_duration(watch, took * 1000)
                self._round_ended(watch, min(max(took * SHARE, SHORTEST), LONGEST))
                await self._pause(watch)

    def _note_duration(self, watch: NodeWatch, ms: float) -> None:
        """Enter the duration of a round into the model if it is quite another one than before."""
        known = self.model.nodes.get(watch.watched.name, {}).get("poll_ms")
        if known is None or not known / 4 < ms < known * 4:
            self.model.update_node(watch.watched.name, poll_ms=round(ms, 1))

    def _round_ended(self, watch: NodeWatch, pause: float) -> None:
        watch.pause, watch.asking = pause, False
        watch.rounds += 1
        done, self._done = self._done, anyio.Event()
        done.set()

    @staticmethod
    async def _pause(watch: NodeWatch) -> None:
        with anyio.move_on_after(watch.pause):
            await watch.due.wait()
