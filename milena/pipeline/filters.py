"""Filters that the source applies itself: topic, partition, offset, and approximately the timestamp.

Filters on topic, partition and offset are applied completely. For a filter on the timestamp, the source skips whole
segments by their metadata and the beginnings of others by their time indexes; Spark applies the filter to the remaining
rows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from milena.protocol.types import TopicPartition

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARED: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda one, several: one in several,
}
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp"})


@dataclass
class PushedFilters:
    """The filters that were pushed down: read offsets ``first`` to ``end`` (exclusive; None: no bound) of the
    partitions that pass all ``tests``. ``since``: a timestamp in ms; records before it may be left out (None: no such
    bound)."""

    tests: list[tuple[str, Filter]] = field(default_factory=list)
    first: int = 0
    end: int | None = None
    since: int | None = None

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take the filters that the source can apply; yield those that Spark still has to apply."""
        for one in filters:
            if not self._take(one):
                yield one

    def wants(self, partition: TopicPartition) -> bool:
        values = dict(zip(("topic", "partition"), partition, strict=True))
        return all(_COMPARED[type(one)](values[name], one.value) for name, one in self.tests)  # type: ignore[attr-defined]

    def _take(self, one: Filter) -> bool:
        """Take a filter. Returns whether the source applies it completely."""
        path: tuple[str, ...] = getattr(one, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        if isinstance(one, IsNotNull):
            return name in _NEVER_NULL
        if type(one) not in _COMPARED or getattr(one, "value", None) is None:
            return False
        if name in {"topic", "partition"}:
            self.tests.append((name, one))
            return True
        if name == "offset":
            return self._bound_offsets(one)
        if name == "timestamp":
            self._bound_times(one)
        return False

    def _bound_offsets(self, one: Filter) -> bool:
        value: Any = one.value  # type: ignore[attr-defined]
        if isinstance(one, In):
            numbers = [number for number in value if number is not None]
            self._between(min(numbers, default=0), max(numbers, default=-1) + 1)
            return False
        if isinstance(one, EqualTo | EqualNullSafe):
            self._between(value, value + 1)
        elif isinstance(one, GreaterThan | GreaterThanOrEqual):
            self._between(value + isinstance(one, GreaterThan), None)
        else:
            self._between(0, value + isinstance(one, LessThanOrEqual))
        return True

    def _between(self, first: int, end: int | None) -> None:
        self.first = max(self.first, first)
        if end is not None:
            self.end = end if self.end is None else min(self.end, end)

    def _bound_times(self, one: Filter) -> None:
        if isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
            value = one.value
            if isinstance(value, datetime):
                since = (value if value.tzinfo else value.astimezone()) - _EPOCH
                milliseconds = since // timedelta(milliseconds=1)
                self.since = milliseconds if self.since is None else max(self.since, milliseconds)
