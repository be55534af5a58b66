"""Meters (counters and timings) by topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

M = TypeVar("M")


class MetersByTopic(Generic[M]):
    """``make`` creates the meters of a topic on first use; ``remove`` unregisters the metrics of a deleted topic."""

    def __init__(self, make: Callable[[str], M], remove: Callable[[str], object]) -> None:
        self._make = make
        self._remove = remove
        self._topics: dict[str, M] = {}

    def of(self, topic: str) -> M:
        """Return the meters of ``topic``."""
        meters = self._topics.get(topic)
        if meters is None:
            meters = self._topics[topic] = self._make(topic)
        return meters

    def forget(self, topic: str) -> None:
        """Remove the meters of a deleted topic."""
        if self._topics.pop(topic, None) is not None:
            self._remove(topic)
