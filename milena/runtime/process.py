"""One node as an operating-system process: its event loop, signals, parent process and exit."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn

from milena.runtime.clock import SystemClock
from milena.runtime.containment import Containment
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.logging import get_logger
from milena.runtime.loop_idle import MeasuredLoop
from milena.runtime.randomness import Randomness
from milena.runtime.tasks import TaskScope
from milena.runtime.tcp.sockets import TcpNetwork

PARENT_FD: Final = "MILENA_PARENT_FD"
"""Environment variable: the read end of a pipe. End of file means that the parent process has ended."""
LOOP: Final = "MILENA_LOOP"
"""Environment variable: ``asyncio`` (the default: smaller, faster to start and here no slower, see docs/performance.md)
or ``uvloop``."""
ORPHAN_GRACE: Final = 10.0
"""Seconds that a node may take to shut down cleanly after its parent has ended."""
PARENT_GONE: Final = "parent process ended"
"""The reason of a stop."""
FATAL_EXIT: Final = 1
TIER_THREADS: Final = 32
"""The number of threads for the tier: they mostly wait for the store. Threads are created on demand."""


class Stop:
    """The request to stop: wait for ``requested``, then read ``reason``."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.reason = ""

    def request(self, reason: str) -> None:
        """The first reason is kept."""
        if not self.requested.is_set():
            self.reason = reason
            self.requested.set()


Main = Callable[[Runtime, Stop], Coroutine[object, object, int]]


def real_runtime(fatal: Callable[[str, BaseException | None], None] | None = None) -> Runtime:
    """The ports on the real machine. Call it inside the running loop."""
    ending = fatal or end_process
    clock = SystemClock()
    contained = Containment(clock)
    return Runtime(
        clock=clock,
        random=Randomness(),
        network=TcpNetwork(clock),
        disk=RealDisk(),
        tier_disk=RealDisk(TIER_THREADS),
        new_tasks=lambda name: TaskScope(name, ending, contained),
        contained=contained,
        fatal=ending,
    )


def end_process(description: str, error: BaseException | None) -> NoReturn:
    """Handle a broken invariant or a failed disk: log it and exit immediately, so that nothing is written on top of it.
    The last line on standard error is one sentence with the cause. An error of the system has no traceback."""
    get_logger("process").critical(description, exc_info=None if isinstance(error, OSError) else error)
    with contextlib.suppress(OSError):  # the disk with the log may be full, too
        sys.stderr.write(f"milena: {': '.join(filter(None, (description, _reason(error))))}\n")
        sys.stderr.flush()
    os._exit(FATAL_EXIT)


def _reason(error: BaseException | None) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    return "" if error is None else str(error) or type(error).__name__


def settle_memory() -> None:
    """Call once after start-up: objects alive now are excluded from garbage collection. A collection of 400,000 objects
    takes 20 to 150 ms, so the middle generation holds at most 100,000."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 5, 400)


def run_node(main: Main) -> int:
    """Run ``main`` until it returns its exit code. SIGTERM, SIGINT and the end of the parent process request the stop;
    a second signal ends the process immediately."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_guarded(main))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if os.environ.get(LOOP) != "uvloop":
        return MeasuredLoop
    import uvloop

    return uvloop.new_event_loop


async def _guarded(main: Main) -> int:
    loop = asyncio.get_running_loop()
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, stop, number)
    _watch_parent(loop, stop)
    runtime = real_runtime()
    loop.set_exception_handler(functools.partial(_unhandled, runtime.contained))
    try:
        return await main(runtime, stop)
    except Exception as error:
        end_process("the node failed", error)
    finally:
        for disk in (runtime.disk, runtime.tier_disk):
            assert isinstance(disk, RealDisk)
            disk.close()


def _unhandled(contained: Containment, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A callback raised an exception. It may concern one connection only: a peer's input must not end the process."""
    message = str(context.get("message", "a callback failed"))
    contained.note("call-back", context.get("exception") or RuntimeError(message), message=message)


def _signalled(stop: Stop, number: int) -> None:
    if stop.requested.is_set():
        os._exit(128 + number)
    stop.request(signal.Signals(number).name)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: Stop) -> None:
    text = os.environ.get(PARENT_FD)
    if text is None:
        return
    fd = int(text)
    os.set_inheritable(fd, False)

    def readable() -> None:
        if not os.read(fd, 64):
            loop.remove_reader(fd)
            stop.request(PARENT_GONE)
            loop.call_later(ORPHAN_GRACE, os._exit, FATAL_EXIT)

    loop.add_reader(fd, readable)
