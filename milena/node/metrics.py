"""The registry of a node's metrics and its Prometheus text.

Names follow jmx_exporter's form of Kafka's MBeans: domain, type and name in lower case joined by underscores
(``kafka_server_brokertopicmetrics_messagesinpersec_total``), the remaining key properties as labels. A counter is one
attribute of a slotted object: hot paths keep the object and add to it. Gauges are read when they are rendered; gauges
with thousands of series are one function that yields all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Labels: TypeAlias = tuple[tuple[str, str], ...]


class Counter:
    """A number that only grows. Hot paths may add to ``value`` directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0.0

    def add(self, amount: float = 1.0) -> None:
        self.value += amount


class Timing:
    """Count and sum of durations in milliseconds."""

    __slots__ = ("count", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0

    def record(self, milliseconds: float) -> None:
        self.count += 1
        self.total_ms += milliseconds


Source: TypeAlias = Counter | Timing | Callable[[], float]
Each: TypeAlias = Callable[[], Iterable[tuple[Mapping[str, str], float]]]
"""Labels and value of each current series."""


@dataclass(slots=True)
class _Family:
    kind: Literal["counter", "gauge", "summary"]
    help: str
    series: dict[Labels, Source] = field(default_factory=dict)
    each: Each | None = None

    def current(self) -> dict[Labels, Source]:
        """The current series."""
        if self.each is None:
            return self.series
        return {_key(labels): _constant(value) for labels, value in self.each()}


class Metrics:
    """All metrics of one node, in order of registration."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def counter(self, name: str, help_text: str = "", **labels: str) -> Counter:
        """Return the counter with this name and these labels, created on first use. ``name`` ends in ``_total``."""
        series = self._family(name, "counter", help_text).series
        counter = series.setdefault(_key(labels), Counter())
        assert isinstance(counter, Counter)
        return counter

    def counter_of(self, name: str, read: Callable[[], float], help_text: str = "") -> None:
        """Register a counter whose value ``read`` returns, such as the CPU time of the process."""
        self._family(name, "counter", help_text).series[()] = read

    def timing(self, name: str, help_text: str = "", **labels: str) -> Timing:
        series = self._family(name, "summary", help_text).series
        timing = series.setdefault(_key(labels), Timing())
        assert isinstance(timing, Timing)
        return timing

    def gauge(self, name: str, read: Callable[[], float], help_text: str = "", **labels: str) -> None:
        """Register ``read``; it replaces an earlier gauge of the same name and labels."""
        self._family(name, "gauge", help_text).series[_key(labels)] = read

    def gauge_of_each(self, name: str, each: Each, help_text: str = "") -> None:
        """Register a gauge whose series ``each`` yields, for objects that appear and disappear."""
        self._family(name, "gauge", help_text).each = each

    def remove(self, name: str, **labels: str) -> None:
        """Remove one series; does nothing if it does not exist."""
        family = self._families.get(name)
        if family is not None:
            family.series.pop(_key(labels), None)

    def remove_where(self, label: str, value: str) -> None:
        """Remove every series with this label, for example of a deleted topic."""
        for family in self._families.values():
            for key in [key for key in family.series if (label, value) in key]:
                del family.series[key]

    def value(self, name: str, **labels: str) -> float:
        """Return the current value; of a timing, its count. Raises KeyError if there is no such series."""
        source = self._families[name].current()[_key(labels)]
        match source:
            case Counter():
                return source.value
            case Timing():
                return source.count
            case _:
                return source()

    def render(self) -> str:
        """Return all metrics in Prometheus text format 0.0.4."""
        lines: list[str] = []
        for name, family in self._families.items():
            present = family.current()
            if not present:
                continue
            if family.help:
                lines.append(f"# HELP {name} {_escape(family.help)}")
            lines.append(f"# TYPE {name} {family.kind}")
            for key, source in present.items():
                labels = _render_labels(key)
                match source:
                    case Counter():
                        lines.append(f"{name}{labels} {_number(source.value)}")
                    case Timing():
                        lines.append(f"{name}_count{labels} {source.count}")
                        lines.append(f"{name}_sum{labels} {_number(source.total_ms)}")
                    case _:
                        lines.append(f"{name}{labels} {_number(source())}")
        return "\n".join(lines) + "\n" if lines else ""

    def _family(self, name: str, kind: Literal["counter", "gauge", "summary"], help_text: str) -> _Family:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = _Family(kind, help_text)
        assert family.kind == kind, f"{name} is registered as {family.kind}"
        return family


def _key(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _constant(value: float) -> Callable[[], float]:
    return lambda: value


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _render_labels(key: Labels) -> str:
    if not key:
        return ""
    rendered = []
    for label, value in key:
        escaped = _escape(value).replace('"', '\\"')
        rendered.append(f'{label}="{escaped}"')
    return "{" + ",".join(rendered) + "}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return str(int(value)) if value == int(value) else repr(float(value))
