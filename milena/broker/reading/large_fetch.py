"""A fetch of so many partitions that they are read in slices, with other work in between.

Between two slices anything may change: each partition is read as it is then, and from that moment on the fetch hears of
its changes, through its session. If the client has none, it gets one for itself that ends with the fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from milena.broker.reading.fetching import Fetch
from milena.broker.reading.found import Found
from milena.broker.replica.fetch_sessions import NO_SESSION, FetchPlan, Session, Wanted
from milena.node.serving.sliced_work import Place


def with_session(plan: FetchPlan, now_ms: int) -> FetchPlan:
    """The plan in slices; that of a fetch without a session gets one of its own. A partition that stands twice is read
    once."""
    session = plan.session
    if session is None and plan.wanted:
        session = Session(NO_SESSION, plan.wanted, privileged=False, uses_topic_ids=True, now_ms=now_ms)
        session.visits.note(now_ms)
    return FetchPlan(session, plan.wanted, incremental=plan.incremental, in_slices=True)


class LargeFetch(Fetch):
    """``run`` takes the place of ``begin``."""

    __slots__ = ("_woken",)

    async def run(self, place: Place, wait: Callable[[tuple[Hashable, ...]], None]) -> list[Found]:
        """Read; if that is not enough, ``wait`` for more with what to watch and read again. Returns what was found."""
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session = self._plan.session
        if session is not None:
            session.take_changed()
        found = await place.result(self._read_in_steps(first=True))
        if session is None or not session.partitions or self._limits.max_wait_ms <= 0 or self._is_enough(found):
            return found
        for entry in found:
            self._count(entry)
        if not self.ready(session):
            wait((session,))
            await place.wait_outside(self._woken)
        return await place.result(self._read_in_steps(first=False))

    def _read_partition(self, wanted: Wanted, remaining: int, min_one: bool, *, notes: bool = False) -> Found:
        entry = super()._read_partition(wanted, remaining, min_one, notes=notes)
        if entry.partition is not None and self._plan.session is not None:
            self._plan.session.note_read(wanted, entry.partition, self._plan)
        return entry

    def from_tier(self, found: list[Found]) -> bool:
        """Whether some of it is in the tier. It is read there then, and ``done`` is called."""
        tier = self._limits.tier
        return tier is not None and tier.read(self, self._limits, found, self._done, self._asker)

    def complete(self) -> None:
        self._wake()

    def expire(self) -> None:
        self._wake()

    def abandon(self) -> None:
        self._wake()

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)
