"""The registry of a node's metrics.

Names follow Kafka's MBeans: domain, type and name in lower case joined by underscores
(``kafka_server_brokertopicmetrics_messagesinpersec_total``), the remaining key properties as labels. Other sets of
names are derived from these when the text is rendered (``node.metric_names``, ``node.metrics_text``).

A counter is one attribute of a slotted object: hot paths keep the object and add to it. Gauges are read when they are
rendered; gauges with thousands of series are functions of objects that appear and disappear.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Kind: TypeAlias = Literal["counter", "gauge", "summary"]
Labels: TypeAlias = tuple[tuple[str, str], ...]

RECENT: Final = 1_000
"""The number of recent durations from which the quantiles of a summary are computed."""


class Counter:
    """A number that only grows. Hot paths may add to ``value`` directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount


class Summary(Protocol):
    """Durations in milliseconds."""

    @property
    def count(self) -> int: ...

    @property
    def total_ms(self) -> float: ...

    def recent(self) -> Sequence[float]:
        """The last durations, at most RECENT, in any order."""
        ...


class Timing:
    """Count and sum of durations in milliseconds, and the last of them."""

    __slots__ = ("_recent", "count", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self._recent = array("d")

    def record(self, milliseconds: float) -> None:
        recent = self._recent
        if len(recent) < RECENT:
            recent.append(milliseconds)
        else:
            recent[self.count % RECENT] = milliseconds
        self.count += 1
        self.total_ms += milliseconds

    def recent(self) -> Sequence[float]:
        return self._recent


Source: TypeAlias = Counter | Summary | Callable[[], float]
Each: TypeAlias = Callable[[], Iterable[tuple[Mapping[str, str], float]]]
"""Labels and value of each current series."""


class Objects(Generic[T]):
    """Objects that appear and disappear, each of which has one series in several gauges."""

    def __init__(self, current: Callable[[], Iterable[T]], labels: Callable[[T], Mapping[str, str]]) -> None:
        self.current = current
        self.labels = labels


@dataclass(slots=True)
class Family:
    """The series of one name. The functions ``each``, or ``objects`` with ``read``, take the place of ``series`` in
    gauges of many objects; ``read`` returns None for an object without a value."""

    name: str
    kind: Kind
    help: str
    series: dict[Labels, Source] = field(default_factory=dict)
    each: list[Each] = field(default_factory=list)
    objects: Objects[Any] | None = None
    read: Callable[[Any], float | None] | None = None

    def current(self) -> dict[Labels, Source]:
        """The current series."""
        if self.objects is not None and self.read is not None:
            values = ((self.objects.labels(one), self.read(one)) for one in self.objects.current())
            return {sorted_labels(labels): _constant(value) for labels, value in values if value is not None}
        if self.each:
            return {sorted_labels(labels): _constant(value) for each in self.each for labels, value in each()}
        return self.series


class Metrics:
    """All metrics of one node, in order of registration."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    @property
    def families(self) -> list[Family]:
        return list(self._families.values())

    def counter(self, name: str, help_text: str = "", **labels: str) -> Counter:
        """Return the counter with this name and these labels, created on first use. ``name`` ends in ``_total``."""
        series = self._family(name, "counter", help_text).series
        counter = series.setdefault(sorted_labels(labels), Counter())
        assert isinstance(counter, Counter)
        return counter

    def counter_of(self, name: str, read: Callable[[], float], help_text: str = "", **labels: str) -> None:
        """Register a counter whose value ``read`` returns, such as the CPU time of the process."""
        self._family(name, "counter", help_text).series[sorted_labels(labels)] = read

    def timing(self, name: str, help_text: str = "", **labels: str) -> Timing:
        series = self._family(name, "summary", help_text).series
        timing = series.setdefault(sorted_labels(labels), Timing())
        assert isinstance(timing, Timing)
        return timing

    def summary(self, name: str, make: Callable[[], Summary], help_text: str = "", **labels: str) -> Summary:
        """Return the summary with this name and these labels, made by ``make`` on first use."""
        series = self._family(name, "summary", help_text).series
        key = sorted_labels(labels)
        found = series.get(key)
        if found is None:
            found = series[key] = make()
        assert not isinstance(found, Counter) and not callable(found)
        return found

    def gauge(self, name: str, read: Callable[[], float], help_text: str = "", **labels: str) -> None:
        """Register ``read``; it replaces an earlier gauge of the same name and labels."""
        self._family(name, "gauge", help_text).series[sorted_labels(labels)] = read

    def gauge_part(self, name: str, read: Callable[[], float], help_text: str = "") -> None:
        """Register one part of a gauge, whose value is the sum of its parts: those of the roles of a combined node."""
        series = self._family(name, "gauge", help_text).series
        other = series.get(())
        series[()] = read if other is None else lambda: other() + read()  # type: ignore[operator]

    def gauge_of_each(self, name: str, each: Each, help_text: str = "") -> None:
        """Register a gauge whose series ``each`` yields, for objects that appear and disappear. Several functions of
        one name add to each other."""
        self._family(name, "gauge", help_text).each.append(each)

    def gauge_of_objects(
        self, name: str, objects: Objects[T], read: Callable[[T], float | None], help_text: str = ""
    ) -> None:
        """Register a gauge with one series for each of ``objects`` for which ``read`` does not return None."""
        family = self._family(name, "gauge", help_text)
        family.objects, family.read = objects, read

    def remove(self, name: str, **labels: str) -> None:
        """Remove one series; does nothing if it does not exist."""
        family = self._families.get(name)
        if family is not None:
            family.series.pop(sorted_labels(labels), None)

    def value(self, name: str, **labels: str) -> float:
        """Return the current value; of a summary, its count. Raises KeyError if there is no such series."""
        source = self._families[name].current()[sorted_labels(labels)]
        if isinstance(source, Counter):
            return source.value
        return source() if callable(source) else source.count

    def _family(self, name: str, kind: Kind, help_text: str) -> Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, help_text)
        assert family.kind == kind, f"{name} is registered as {family.kind}"
        return family


def sorted_labels(labels: Mapping[str, str]) -> Labels:
    """Return the labels in the order in which they are rendered."""
    return tuple(sorted(labels.items()))


def _constant(value: float) -> Callable[[], float]:
    return lambda: value
