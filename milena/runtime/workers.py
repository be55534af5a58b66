"""Work that is long and needs the processor: a generator that runs beside the event loop and outside of its GIL.

A worker is a process of low priority that is started for its first work, killed by ``end``, and ends with its parent.
It gets plain values, which are pickled, and reports what it has done; its owner decides how fast it goes on. In the
simulation, and on a disk that watches each of its files, the work is a plain call (``PlainWorker``).
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Concatenate, Final, Generic, cast

from milena.runtime.disk import Disk, P, Paced, Report, Steps, T, WorkerEnded

if TYPE_CHECKING:
    from asyncio.subprocess import Process

LENGTH: Final = 8
"""Bytes in front of each message: its length."""
STEP: Final = "step"
DONE: Final = "done"
DID: Final = "did"
FAILED: Final = "failed"
GO: Final = pickle.dumps(None)
"""To go on, and nothing is told."""
_CODE: Final = "from milena.runtime.worker_process import serve; serve()"


def advanced(iterator: Iterator[T], told: object) -> T | None:
    """What a generator yields when it is told that; None at its end."""
    if told is None:
        return next(iterator, None)
    try:
        return cast("Generator[T, object]", iterator).send(told)
    except StopIteration:
        return None


class PlainSteps(Generic[T]):
    """The steps of a PlainWorker."""

    def __init__(self, disk: Disk, paced: Paced, running: Lock) -> None:
        self._disk = disk
        self._paced = paced
        self._running = running
        self._amount = 0
        self.iterator: Iterator[T] | None = None

    def report(self, amount: int) -> None:
        self._amount += amount

    async def next(self, told: object = None) -> T | None:
        found = await self._disk.offload(self._next, told)
        if self._amount:
            amount, self._amount = self._amount, 0
            await self._paced(amount)
        return found

    def _next(self, told: object) -> T | None:
        assert self.iterator is not None
        with self._running:
            return advanced(self.iterator, told)


class PlainWorker:
    """Implements ``Worker``: each step is one offloaded call on its disk. What was reported is paced after the
    step."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._iterator: Iterator[object] | None = None
        self._running = Lock()
        """Held during a step: in a thread it goes on even if nobody waits for it."""

    def run(
        self,
        work: Callable[Concatenate[Disk, Report, P], Iterator[T]],
        paced: Paced,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Steps[T]:
        steps: PlainSteps[T] = PlainSteps(self._disk, paced, self._running)
        steps.iterator = self._iterator = work(self._disk, steps.report, *args, **kwargs)
        return steps

    def end(self) -> None:
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            with suppress(OSError, ValueError):  # the node is dead; a step is under way
                close()

    async def ended(self) -> None:
        if self._running.locked():
            await self._disk.offload(self._wait)

    def _wait(self) -> None:
        with self._running:
            pass


class ProcessSteps(Generic[T]):
    """The steps of a ProcessWorker."""

    def __init__(self, worker: ProcessWorker, paced: Paced, first: bytes) -> None:
        self._worker = worker
        self._paced = paced
        self._message = first

    async def next(self, told: object = None) -> T | None:
        if told is not None:
            self._message = pickle.dumps(told)
        while True:
            kind, value = await self._worker.ask(self._message)
            self._message = GO
            if kind == DONE:
                return None
            if kind == STEP:
                return cast("T", value)
            if isinstance(value, Exception):
                raise value
            assert isinstance(value, int)
            await self._paced(value)


class ProcessWorker:
    """Implements ``Worker``: a process that runs the same form of the same package."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._dying: list[Process] = []
        self._at_work = False

    @property
    def pid(self) -> int | None:
        """None if it does not run."""
        return None if self._process is None else self._process.pid

    def run(
        self,
        work: Callable[Concatenate[Disk, Report, P], Iterator[T]],
        paced: Paced,
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Steps[T]:
        if self._at_work:
            self.end()  # it waits to go on with its former work
        self._at_work = True
        name = f"{work.__module__}:{work.__qualname__}"
        return ProcessSteps(self, paced, pickle.dumps((name, args, kwargs)))

    async def ask(self, message: bytes) -> tuple[str, object]:
        """Send a message and wait for the answer. Raises WorkerEnded."""
        from asyncio import IncompleteReadError

        try:
            process = self._process or await self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(len(message).to_bytes(LENGTH, "big"))
            process.stdin.write(message)
            await process.stdin.drain()
            size = int.from_bytes(await process.stdout.readexactly(LENGTH), "big")
            answer: tuple[str, object] = pickle.loads(await process.stdout.readexactly(size))
        except (OSError, IncompleteReadError) as error:
            raise WorkerEnded(f"the worker process has ended: {error}") from error
        self._at_work = answer[0] in (STEP, DID)
        return answer

    async def _start(self) -> Process:
        from asyncio.subprocess import PIPE, create_subprocess_exec

        self._process = await create_subprocess_exec(sys.executable, "-P", "-c", _CODE, stdin=PIPE, stdout=PIPE)
        return self._process

    def end(self) -> None:
        process, self._process = self._process, None
        self._at_work = False
        if process is not None:
            if process.returncode is None:
                process.kill()
            self._dying.append(process)

    async def ended(self) -> None:
        dying, self._dying = self._dying, []
        for process in dying:
            await process.wait()
