"""Long work that needs the CPU: a generator that runs in another process, outside of the event loop and its GIL.

A worker is a process that is started with its first work, killed by ``end``, and ends with its parent. It has a low
priority unless its work is urgent.
Arguments and values are pickled. It reports its progress, and its owner decides how fast it continues. In the
simulation, and on a disk that records the writes of each file, the work runs in this process (``PlainWorker``).
"""

from __future__ import annotations

import os
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
"""Length in bytes of the prefix of each message, which holds the message's length."""
_LONGEST: Final = 16 << 20
"""Maximum length of an answer in bytes."""
STEP: Final = "step"
DONE: Final = "done"
DID: Final = "did"
FAILED: Final = "failed"
GO: Final = pickle.dumps(None)
"""The message to continue without an answer for the work."""
_CODE: Final = "import sys; from milena.runtime.worker_process import serve; serve(urgent='urgent' in sys.argv)"


def advanced(iterator: Iterator[T], answer: object) -> T | None:
    """Advance a generator with ``answer`` as the result of its ``yield``. Return its next value, None at its end."""
    if answer is None:
        return next(iterator, None)
    try:
        return cast("Generator[T, object]", iterator).send(answer)
    except StopIteration:
        return None


def _answer_in(data: bytes) -> tuple[str, object]:
    """Decode an answer. Raises WorkerEnded: the worker runs the package on disk, which may be newer than this
    process."""
    try:
        kind, value = pickle.loads(data)
    except Exception as error:
        raise WorkerEnded(f"the answer of a worker process cannot be read: {type(error).__name__}: {error}") from error
    return kind, value


class PlainSteps(Generic[T]):
    """The work of a PlainWorker."""

    def __init__(self, disk: Disk, paced: Paced, running: Lock) -> None:
        self._disk = disk
        self._paced = paced
        self._running = running
        self._amount = 0
        self.iterator: Iterator[T] | None = None

    def report(self, amount: int) -> None:
        self._amount += amount

    async def next(self, answer: object = None) -> T | None:
        found = await self._disk.offload(self._next, answer)
        if self._amount:
            amount, self._amount = self._amount, 0
            await self._paced(amount)
        return found

    def _next(self, answer: object) -> T | None:
        assert self.iterator is not None
        with self._running:
            return advanced(self.iterator, answer)


class PlainWorker:
    """Implements ``Worker``: each step is one offloaded call on its disk. Reported progress is paced after the step."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._iterator: Iterator[object] | None = None
        self._running = Lock()
        """Held during a step: a step in a thread continues even if its caller was cancelled."""
        self.urgent = False

    @property
    def cpu_seconds(self) -> float | None:
        return None

    def set_urgent(self, urgent: bool) -> None:
        self.urgent = urgent

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
            with suppress(OSError, ValueError):  # the node has ended while a step runs
                close()

    async def ended(self) -> None:
        if self._running.locked():
            await self._disk.offload(self._wait)

    def _wait(self) -> None:
        with self._running:
            pass


class ProcessSteps(Generic[T]):
    """The work of a ProcessWorker."""

    def __init__(self, worker: ProcessWorker, paced: Paced, first: bytes) -> None:
        self._worker = worker
        self._paced = paced
        self._message = first

    async def next(self, answer: object = None) -> T | None:
        if answer is not None:
            self._message = pickle.dumps(answer)
        while True:
            kind, value = await self._worker.ask(self._message)
            self._message = GO
            if kind == DONE:
                return None
            if kind == STEP:
                return cast("T", value)
            if isinstance(value, Exception):
                raise value
            amount, cpu_seconds = cast("tuple[int, float]", value)
            self._worker.add_cpu_seconds(cpu_seconds)
            await self._paced(amount)


class ProcessWorker:
    """Implements ``Worker`` with a process that runs the same build of the same package."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._dying: list[Process] = []
        self._at_work = False
        self._urgent = False
        self._cpu_seconds = 0.0

    @property
    def cpu_seconds(self) -> float | None:
        return self._cpu_seconds

    def add_cpu_seconds(self, seconds: float) -> None:
        """Note the CPU time that the process has used since its last report."""
        self._cpu_seconds += seconds

    def set_urgent(self, urgent: bool) -> None:
        if urgent is not self._urgent:
            self._urgent = urgent
            self.end()

    @property
    def pid(self) -> int | None:
        """The process id; None if it is not running."""
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
            self.end()  # it waits for the next step of its former work
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
            if size > _LONGEST:
                raise WorkerEnded(f"the worker process sent an invalid answer of {size} bytes")
            data = await process.stdout.readexactly(size)
        except (OSError, IncompleteReadError) as error:
            raise WorkerEnded(f"the worker process has ended: {error}") from error
        kind, value = _answer_in(data)
        self._at_work = kind in (STEP, DID)
        return kind, value

    async def _start(self) -> Process:
        from asyncio.subprocess import PIPE, create_subprocess_exec

        drawn = os.environ | {"PYTHONHASHSEED": "random"}  # a cleaning identifies keys by hashes with this seed
        self._process = await create_subprocess_exec(
            sys.executable, "-P", "-c", _CODE, "urgent" if self._urgent else "", stdin=PIPE, stdout=PIPE, env=drawn
        )
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
