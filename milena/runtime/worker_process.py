"""The main function of a worker's process (``runtime.workers``): runs the work that it receives, one after the
other."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from queue import SimpleQueue
from threading import Thread
from typing import Final

from milena.runtime.files import RealDisk
from milena.runtime.workers import DID, DONE, FAILED, LENGTH, STEP, advanced

NICENESS: Final = 10
"""Of a worker that is not urgent."""
REPORT_AT: Final = 1 << 20
REPORT_SECONDS: Final = 0.3
"""Progress is reported after this many bytes, or seconds."""
_READ: Final = 1 << 20
Work = Callable[..., Iterator[object]]


def serve(*, urgent: bool) -> None:
    """Run until the parent closes the pipe or ends. ``urgent``: with the parent's priority, else with a lower one. It
    is chosen at the start, since a process may not raise its priority later."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, which ends this process
    if not urgent:
        os.nice(NICENESS)
    answers = os.dup(1)
    os.dup2(2, 1)  # standard output carries the answers, so prints go to standard error
    messages: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(messages,), daemon=True).start()
    conversation = _Conversation(messages, answers)
    while True:
        order: tuple[str, tuple[object, ...], dict[str, object]] = pickle.loads(conversation.receive())
        name, arguments, options = order
        try:
            conversation.run(_find(name), arguments, options)
        except Exception as error:
            conversation.send(FAILED, _portable(error))


class _Conversation:
    """Sends answers to the parent. After each answer but the last one of a work it waits for a message."""

    def __init__(self, messages: SimpleQueue[bytes], answers: int) -> None:
        self._messages = messages
        self._answers = answers
        self._amount = 0
        self._reported = self._cpu_reported = 0.0

    def run(self, work: Work, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        self._amount, self._reported = 0, time.monotonic()
        steps = work(RealDisk(), self._report, *arguments, **options)
        value = next(steps, None)
        while value is not None:
            self.send(STEP, value)
            value = advanced(steps, pickle.loads(self.receive()))
        if self._amount:
            self._report_progress()  # so that short works are paced too
        self.send(DONE, None)

    def receive(self) -> bytes:
        return self._messages.get()

    def send(self, kind: str, value: object) -> None:
        data = pickle.dumps((kind, value))
        left = memoryview(len(data).to_bytes(LENGTH, "big") + data)
        try:
            while left:
                written = os.write(self._answers, left)
                left = left[written:]
        except OSError:
            os._exit(0)

    def _report(self, amount: int) -> None:
        self._amount += amount
        now = time.monotonic()
        if self._amount >= REPORT_AT or now - self._reported > REPORT_SECONDS:
            self._report_progress()

    def _report_progress(self) -> None:
        """Report the amount and the CPU seconds since the last report."""
        cpu = time.process_time()
        done = (self._amount, cpu - self._cpu_reported)
        self._amount, self._reported, self._cpu_reported = 0, time.monotonic(), cpu
        self.send(DID, done)
        self.receive()


def _listen(messages: SimpleQueue[bytes]) -> None:
    """Put the parent's messages into the queue. Ends the process at the end of the pipe, even during a work."""
    data = bytearray()
    while True:
        some = os.read(0, _READ)
        if not some:
            os._exit(0)
        data += some
        while len(data) >= LENGTH and len(data) >= (end := LENGTH + int.from_bytes(data[:LENGTH], "big")):
            messages.put(bytes(data[LENGTH:end]))
            del data[:end]


def _find(name: str) -> Work:
    module, _, function = name.partition(":")
    work: Work = getattr(import_module(module), function)
    return work


def _portable(error: Exception) -> Exception:
    """Return ``error``, or a RuntimeError with its text if the parent could not unpickle it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
