"""A log of group records in memory, whose writes the test refuses, commits or lets time out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from milena.protocol.errors import ErrorCode, KafkaError
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard


class HandLog:
    """Offsets count batches. A write is committed at once unless ``hold`` is set, then by ``commit``."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.high_watermark = 0
        self.error = ErrorCode.NONE
        self.hold = False
        self._waiting: list[tuple[int, Callable[[ErrorCode], None]]] = []

    @property
    def end(self) -> int:
        return len(self.batches)

    def append(self, batch: bytes, guard: VerificationGuard = NO_GUARD, transaction_version: int = 0) -> int:
        if self.error is not ErrorCode.NONE:
            raise KafkaError(self.error)
        self.batches.append(batch)
        if not self.hold:
            self.high_watermark = self.end
        return self.end

    def when_committed(self, end: int, done: Callable[[ErrorCode], None]) -> None:
        if self.high_watermark >= end:
            done(ErrorCode.NONE)
        else:
            self._waiting.append((end, done))

    def pieces(self) -> Iterator[memoryview]:
        return iter([memoryview(b"".join(self.batches))])

    def commit(self, count: int | None = None) -> None:
        """Commit the next ``count`` batches, or all."""
        self.high_watermark = self.end if count is None else min(self.high_watermark + count, self.end)
        ready = [one for one in self._waiting if one[0] <= self.high_watermark]
        self._waiting = [one for one in self._waiting if one[0] > self.high_watermark]
        for _, done in ready:
            done(ErrorCode.NONE)

    def give_up(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Complete all waits with ``error``. The batches stay, and may be committed later."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            done(error)
