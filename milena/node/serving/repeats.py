"""What one answer may say again.

A request that names one of a node's groups, topics or partitions a thousand times would get what there is to say of it
a thousand times, as from Kafka: an answer so much longer than the request takes a node's memory and its time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from milena.protocol.errors import ErrorCode, KafkaError

MAX_REPEATED: Final = 100_000
"""Elements of what is told a second time; what is told once is bounded by what there is."""


class Repeats:
    """Counts, for one answer, the elements of what is told again."""

    __slots__ = ("_left", "_told")

    def __init__(self, limit: int = MAX_REPEATED) -> None:
        self._left = limit
        self._told: set[Hashable] = set()

    def note(self, what: Hashable, elements: int) -> None:
        """``what`` is told with so many elements. Raises KafkaError INVALID_REQUEST where too much is told again."""
        if what not in self._told:
            self._told.add(what)
            return
        self._left -= elements
        if self._left < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the same things too often")
