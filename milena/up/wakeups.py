"""Signals as bytes in a pipe, so that one poll waits for all events."""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set

ENDING = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class Wakeups:
    """SIGTERM, SIGINT, SIGHUP and SIGCHLD of this process. One per process."""

    def __init__(self) -> None:
        self.fd, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it
                signal.signal(number, lambda *_: None)

    def received(self) -> Set[int]:
        """Return the signals received since the last call."""
        try:
            return set(os.read(self.fd, 4096))
        except BlockingIOError:
            return set()

    def wait(self, seconds: float) -> Set[int]:
        """Wait for a signal for at most ``seconds``; return the signals received."""
        select.select([self.fd], [], [], seconds)
        return self.received()
