"""Runs requests whose work yields: the first step at once, the rest in a slot of the scheduler.

While such a request runs, later requests of its connection wait. A request takes effect even if its connection has been
closed, unless its handler decides otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from milena.node.api import Fields, RequestContext
from milena.node.serving.scheduler import Scheduler
from milena.protocol.cooperative import Cooperative
from milena.protocol.schemas.undecodable import DecodeError
from milena.runtime.tasks import Tasks

Pending: TypeAlias = "Awaitable[Fields | None] | None"
"""An awaitable of the response's fields; None if the response was sent, or another callback will send it."""
MEMORY_PER_BYTE: Final = 16
"""Estimated memory of a decoded request and its answer, per byte of the encoded request."""


class CooperativeRequests:
    """Runs the cooperative work of one dispatcher's requests."""

    def __init__(self, scheduler: Scheduler, tasks: Tasks, refuse: Callable[[RequestContext, Exception], None]) -> None:
        """``refuse`` answers a request with an error."""
        self.scheduler = scheduler
        self._tasks = tasks
        self._refuse = refuse

    def start(self, ctx: RequestContext, work: Cooperative[Pending], size: int) -> None:
        """Run the first step of ``work``, which handles a request of ``size`` bytes, now. If it yields, queue the rest.
        Raises what the first step raises."""
        try:
            next(work)
        except StopIteration:
            return
        self.queue(ctx, work, size)

    def queue(self, ctx: RequestContext, work: Cooperative[Pending], size: int) -> None:
        """Run ``work`` in a slot. If too many bytes of requests wait already, close the connection. Later requests of
        the connection wait, unless the first step has answered: then nothing would release them."""
        if not self.scheduler.reserve(size):
            ctx.disconnect(f"{self.scheduler.reserved} bytes of requests wait to be handled")
            with suppress(StopIteration):
                next(work)  # one more step: the work sees that the client has disconnected, and releases its resources
            return
        ctx.is_large = True
        if not ctx.answered:
            ctx.hold()
        self._tasks.attempt(self._run(ctx, work, size), name=f"large {ctx.api.name}")

    def resume(self, ctx: RequestContext, work: Cooperative[None]) -> None:
        """Run ``work``, which answers a request that had to wait: its first step now, the rest in a slot. Raises what
        the first step raises."""
        try:
            next(work)
        except StopIteration:
            return
        ctx.is_large = True
        self._tasks.attempt(self._run_answer(ctx, work), name=f"large answer {ctx.api.name}")

    def wait(self, ctx: RequestContext, size: int) -> bool:
        """Hold the connection of a request that waits for another node, and reserve its bytes until ``proceed``. If too
        many bytes of requests wait already, close the connection and return False."""
        if not self.scheduler.reserve(size):
            ctx.disconnect(f"{self.scheduler.reserved} bytes of requests wait to be handled")
            return False
        ctx.hold()
        return True

    def proceed(self, ctx: RequestContext, work: Cooperative[None], size: int) -> None:
        """Run ``work``, which handles a request after its ``wait``, as ``start`` does. Answers with its error."""
        self.scheduler.release(size)
        try:
            self.start(ctx, work, size)
        except Exception as error:
            self._refuse(ctx, error)

    async def _run(self, ctx: RequestContext, work: Cooperative[Pending], size: int) -> None:
        scheduler = self.scheduler
        try:
            try:
                async with scheduler.slot(ctx.memory or MEMORY_PER_BYTE * size) as slot:
                    pending = await slot.run(_with_answer(ctx, work))
            finally:
                scheduler.release(size)
            fields = None if pending is None else await pending
            if fields is not None and not ctx.closed:
                ctx.respond_fields(**fields)
        except DecodeError as error:
            ctx.disconnect(f"undecodable request body: {error}")
        except Exception as failure:
            self._refuse(ctx, failure)

    async def _run_answer(self, ctx: RequestContext, work: Cooperative[None]) -> None:
        try:
            async with self.scheduler.answer_slot() as slot:
                await slot.run(work)
        except Exception as error:
            self._refuse(ctx, error)


def _with_answer(ctx: RequestContext, work: Cooperative[Pending]) -> Cooperative[Pending]:
    """Run ``work`` to its end, then the work that it has passed to ``ctx.resume``, so that the answer is encoded in the
    same slot. Returns the result of ``work``."""
    ctx.deferred = deferred = list[Cooperative[None]]()
    try:
        pending = yield from work
    except Exception:  # no "finally": compiled, it would not run if the generator is left
        ctx.deferred = None
        raise
    ctx.deferred = None
    for answer in deferred:
        yield
        yield from answer
    return pending
