"""Meters (counters and timings) by topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, TypeVar

from milena.node.metrics import Counter, Metrics

M = TypeVar("M")


class MetersByTopic(Generic[M]):
    """``make`` creates the meters of a topic on first use; ``remove`` unregisters the metrics of a deleted topic."""

    def __init__(
        self,
        metrics: Metrics,
        make: Callable[[str], M],
        remove: Callable[[str], object],
        counters: Mapping[str, tuple[str, str]],
    ) -> None:
        """``counters``: the metric and help text of each counter, by attribute of the meters. As in Kafka, each also
        has a series without a topic: the sum of all topics, also of deleted ones."""
        self._make = make
        self._remove = remove
        self._topics: dict[str, M] = {}
        self._deleted = dict.fromkeys(counters, 0.0)
        """The last values of deleted topics' counters."""
        for attribute, (name, text) in counters.items():
            metrics.counter_of(name, partial(self._total, attribute), text)

    def of(self, topic: str) -> M:
        """Return the meters of ``topic``."""
        meters = self._topics.get(topic)
        if meters is None:
            meters = self._topics[topic] = self._make(topic)
        return meters

    def forget(self, topic: str) -> None:
        """Remove the meters of a deleted topic."""
        meters = self._topics.pop(topic, None)
        if meters is not None:
            for attribute in self._deleted:
                self._deleted[attribute] += _counted(meters, attribute)
            self._remove(topic)

    def _total(self, attribute: str) -> float:
        return self._deleted[attribute] + sum(_counted(meters, attribute) for meters in self._topics.values())


def _counted(meters: object, attribute: str) -> float:
    counter = getattr(meters, attribute)
    assert isinstance(counter, Counter)
    return counter.value
