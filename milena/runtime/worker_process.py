"""The process of a worker (``runtime.workers``): it runs what it is sent, one work after the other."""

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
REPORT_AT: Final = 1 << 20
REPORT_SECONDS: Final = 0.3
"""What was done is reported when it is so much, or so long ago."""
_READ: Final = 1 << 20
Work = Callable[..., Iterator[object]]


def serve() -> None:
    """Run until the parent closes the pipe or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, too, which ends in order
    os.nice(NICENESS)
    answers = os.dup(1)
    os.dup2(2, 1)  # what anything prints is no answer
    messages: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(messages,), daemon=True).start()
    conversation = _Conversation(messages, answers)
    while True:
        order: tuple[str, tuple[object, ...], dict[str, object]] = pickle.loads(conversation.hear())
        name, arguments, options = order
        try:
            conversation.run(_find(name), arguments, options)
        except Exception as error:
            conversation.say(FAILED, _portable(error))


class _Conversation:
    """Every answer but the last of a work waits for a message: to go on, perhaps with what the work is told."""

    def __init__(self, messages: SimpleQueue[bytes], answers: int) -> None:
        self._messages = messages
        self._answers = answers
        self._amount = 0
        self._reported = 0.0

    def run(self, work: Work, arguments: tuple[object, ...], options: dict[str, object]) -> None:
        self._amount, self._reported = 0, time.monotonic()
        steps = work(RealDisk(), self._report, *arguments, **options)
        value = next(steps, None)
        while value is not None:
            self.say(STEP, value)
            value = advanced(steps, pickle.loads(self.hear()))
        if self._amount:
            self._tell()  # the next work may be as small
        self.say(DONE, None)

    def hear(self) -> bytes:
        return self._messages.get()

    def say(self, kind: str, value: object) -> None:
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
            self._tell()

    def _tell(self) -> None:
        done, self._amount, self._reported = self._amount, 0, time.monotonic()
        self.say(DID, done)
        self.hear()


def _listen(messages: SimpleQueue[bytes]) -> None:
    """Read what the parent says; its end is noticed even while a work is under way."""
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
    found: Work = getattr(import_module(module), function)
    return found


def _portable(error: Exception) -> Exception:
    """``error``, or what can be said of it if the parent could not read it."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
