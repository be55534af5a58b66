"""A cache of encoded responses that are valid until the metadata changes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

MAX_BYTES: Final = 8 * 1024 * 1024
_OVERHEAD: Final = 200


class AnswerCache:
    """Encoded responses by request. A full cache is cleared: the few distinct requests of a cluster's clients repeat
    and fill it again."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._answers: dict[Hashable, bytes] = {}
        self.clears = 0
        """The number of calls of ``clear``. A response that was computed across one may be stale: do not put it."""

    def get(self, request: Hashable) -> bytes | None:
        return self._answers.get(request)

    def put(self, request: Hashable, answer: bytes, request_size: int) -> None:
        """Store a response, unless it exceeds a quarter of the cache. ``request_size``: the bytes of ``request``, which
        is stored too."""
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
        self.clears += 1
