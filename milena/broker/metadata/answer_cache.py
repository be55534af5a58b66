"""Encoded answers that stay right until something changes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

MAX_BYTES: Final = 8 * 1024 * 1024
_OVERHEAD: Final = 200


class AnswerCache:
    """Answers by request. Full, it is emptied: the requests of a quiet cluster are few and repeat."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._answers: dict[Hashable, bytes] = {}

    def get(self, request: Hashable) -> bytes | None:
        return self._answers.get(request)

    def put(self, request: Hashable, answer: bytes, request_size: int) -> None:
        """Keep an answer. ``request_size``: the bytes of ``request``, which are kept with it."""
        size = request_size + len(answer) + _OVERHEAD
        if size > self._max_bytes // 4:
            return
        if self._size + size > self._max_bytes:
            self.clear()
        self._answers[request] = answer
        self._size += size

    def clear(self) -> None:
        self._answers.clear()
        self._size = 0
