"""Limits how often one answer repeats the same elements.

A request may name one group, topic or partition thousands of times, and Kafka answers each occurrence. Such an answer
would be much longer than the request, and cost much memory and time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from milena.protocol.errors import ErrorCode, KafkaError

MAX_REPEATED: Final = 100_000
"""The maximum number of repeated elements. The elements of first occurrences are not limited: no more can exist than
the node has."""


class Repeats:
    """Counts the repeated elements of one answer."""

    __slots__ = ("_left", "_seen")

    def __init__(self, limit: int = MAX_REPEATED) -> None:
        self._left = limit
        self._seen: set[Hashable] = set()

    def note(self, key: Hashable, elements: int) -> None:
        """Count the elements of the answer for ``key``. Raises KafkaError INVALID_REQUEST if too many are repeated."""
        if key not in self._seen:
            self._seen.add(key)
            return
        self._left -= elements
        if self._left < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the same things too often")
