"""Limits the repetition in one answer.

A request may name one group, topic or partition thousands of times, and Kafka answers each time: such an answer is much
longer than the request and takes the node's memory and time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from milena.protocol.errors import ErrorCode, KafkaError

MAX_REPEATED: Final = 100_000
"""The maximum number of repeated elements; first mentions are bounded by what exists."""


class Repeats:
    """Counts the repeated elements of one answer."""

    __slots__ = ("_left", "_told")

    def __init__(self, limit: int = MAX_REPEATED) -> None:
        self._left = limit
        self._told: set[Hashable] = set()

    def note(self, what: Hashable, elements: int) -> None:
        """``what`` is answered with this many elements. Raises KafkaError INVALID_REQUEST if too many are repeated."""
        if what not in self._told:
            self._told.add(what)
            return
        self._left -= elements
        if self._left < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the same things too often")
