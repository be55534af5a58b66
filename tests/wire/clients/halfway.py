"""Actions that run once, when a client is halfway: in another thread for a producer, in the consumer's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Halfway:
    """Calls ``action`` in a thread when half of ``count`` is reached. ``join`` waits and raises its exception."""

    def __init__(self, count: int, action: Callable[[], None]) -> None:
        self._wanted = max(count // 2, 1)
        self._action = action
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        return self._thread is not None

    def reached(self, acknowledged: int) -> None:
        if self._thread is None and acknowledged >= self._wanted:
            self._thread = threading.Thread(target=self._run, name="halfway")
            self._thread.start()

    def _run(self) -> None:
        try:
            self._action()
        except BaseException as error:  # raised in the test's thread by join
            self._error = error

    def join(self) -> None:
        assert self._thread is not None, "the client never reached the half of its records"
        self._thread.join()
        if self._error is not None:
            raise self._error


class HalfRead:
    """Calls ``action`` once, in the consumer's thread, when half of ``count`` records have been read."""

    def __init__(self, count: int, action: Callable[[], None]) -> None:
        self._wanted = max(count // 2, 1)
        self._action: Callable[[], None] | None = action

    def reached(self, read: int) -> None:
        if read >= self._wanted and self._action is not None:
            action, self._action = self._action, None
            action()
