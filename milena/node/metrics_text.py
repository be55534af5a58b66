"""Renders metrics as Prometheus' text format 0.0.4, under a chosen set of names.

A broker with 10,000 partitions has 100,000 series. So the text is made cooperatively: other work of the loop runs after
every SERIES_PER_YIELD series, and gauges are read when their line is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from milena.node.metrics import Counter, Family, Kind, Labels, Metrics, Objects, Source, Summary, sorted_labels
from milena.protocol.cooperative import Cooperative, YieldBudget, run_now

SERIES_PER_YIELD: Final = 500
"""Series between two yields: about a millisecond."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms."""
SUMMARY_COST: Final = 20
"""The cost of a summary in simple series: its recent durations are sorted."""


@dataclass(frozen=True, slots=True)
class ShownAs:
    """The name of a family in a set of names, and its type if it is not the usual one of its kind."""

    name: str
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Names:
    """A set of names. Families that ``shown`` does not list keep their name and kind."""

    shown: Mapping[str, ShownAs | None] = field(default_factory=dict)
    """By the family's name; None if this set has no name for the family."""
    types: Mapping[Kind, str] = field(default_factory=dict)
    """The kinds whose type has another name in this set."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that have another name in this set."""
    count_suffix: str | None = None
    """The suffix of the count of a summary, which is then a series of its own and has no sum, as with the JMX exporter;
    None for a summary of Prometheus."""
    quantile_digits: int = 1
    """The minimum number of decimals of the label ``quantile``."""

    def of(self, family: Family) -> ShownAs | None:
        """Return how a family is shown; None if it is not."""
        shown = self.shown.get(family.name, ShownAs(family.name))
        return shown and ShownAs(shown.name, shown.type or self.type_of(family.kind))

    def type_of(self, kind: Kind) -> str:
        """Return the usual type of a kind."""
        return self.types.get(kind, kind)


OWN_NAMES: Final = Names()
"""The names under which families are registered."""


def render(metrics: Metrics, names: Names = OWN_NAMES) -> str:
    """Return the text at once."""
    return run_now(rendering(metrics, names))


def rendering(metrics: Metrics, names: Names = OWN_NAMES) -> Cooperative[str]:
    """Return the text of all metrics."""
    page = _Page(names)
    for family in metrics.families:
        shown = names.of(family)
        if shown is not None:
            yield from page.add(family, shown)
    return page.text()


class _Page:
    """The text under construction."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._lines: list[str] = []
        self._parts: list[str] = []
        """The text of the steps before: to join all lines at once would be a long step."""
        self._budget = YieldBudget(SERIES_PER_YIELD)
        self._objects: dict[int, list[tuple[Any, str]]] = {}
        """The objects and label texts of each group of objects: the same for all their gauges."""

    def text(self) -> str:
        self._end_step()
        return "".join(self._parts)

    def _end_step(self) -> None:
        if self._lines:
            self._parts.append("\n".join(self._lines) + "\n")
            self._lines.clear()

    def add(self, family: Family, shown: ShownAs) -> Cooperative[None]:
        if family.kind == "summary":
            yield from self._add_summary(family, shown)
            return
        lines, budget, name = self._lines, self._budget, shown.name
        is_first = True
        for labels, value in self._values(family):
            if is_first:
                is_first = False
                lines += header(shown, family.help)
            lines.append(f"{name}{labels} {number(value)}")
            if budget.spend(1):
                self._end_step()
                yield

    def _values(self, family: Family) -> Iterator[tuple[str, float]]:
        """The label text and value of each series."""
        if family.objects is not None and family.read is not None:
            read = family.read
            for one, text in self._texts(family.objects):
                value = read(one)
                if value is not None:
                    yield text, value
        elif family.each:
            for each in family.each:
                for labels, each_value in each():
                    yield self._text_of(sorted_labels(labels)), each_value
        else:
            for key, source in list(family.series.items()):
                yield self._text_of(key), _value(source)

    def _texts(self, objects: Objects[Any]) -> Iterator[tuple[Any, str]]:
        known = self._objects.get(id(objects))
        if known is not None:
            yield from known
            return
        known = []
        for one in list(objects.current()):
            entry = one, self._text_of(sorted_labels(objects.labels(one)))
            known.append(entry)
            yield entry
        self._objects[id(objects)] = known

    def _add_summary(self, family: Family, shown: ShownAs) -> Cooperative[None]:
        series: list[tuple[Labels, Summary]] = [
            (key, source)
            for key, source in list(family.series.items())
            if not isinstance(source, Counter) and not callable(source)
        ]
        if not series:
            return
        names, name, suffix = self._names, shown.name, self._names.count_suffix
        self._lines += header(shown, family.help)
        for key, summary in series:
            for share, value in quantiles(summary.recent()):
                quantile = ("quantile", f"{share:.{max(names.quantile_digits, len(str(share)) - 2)}f}")
                self._lines.append(f"{name}{self._text_of((*key, quantile))} {number(value)}")
            if suffix is None:
                labels = self._text_of(key)
                self._lines.append(f"{name}_count{labels} {summary.count}")
                self._lines.append(f"{name}_sum{labels} {number(summary.total_ms)}")
            if self._budget.spend(SUMMARY_COST):
                self._end_step()
                yield
        if suffix is not None:
            if suffix:
                self._lines += header(ShownAs(name + suffix, names.type_of("counter")), family.help)
            self._lines += [f"{name}{suffix}{self._text_of(key)} {summary.count}" for key, summary in series]

    def _text_of(self, key: Labels) -> str:
        renamed = self._names.labels
        pairs = [f'{renamed.get(label, label)}="{_quoted(value)}"' for label, value in key]
        return f"{{{','.join(pairs)}}}" if pairs else ""


def header(shown: ShownAs, help_text: str) -> list[str]:
    """Return the comment lines of a family."""
    lines = [f"# HELP {shown.name} {_escape(help_text)}"] if help_text else []
    return [*lines, f"# TYPE {shown.name} {shown.type}"]


def quantiles(recent: Iterable[float]) -> list[tuple[float, float]]:
    """Return the QUANTILES of these values by nearest rank; none if there are no values."""
    ordered = sorted(recent)
    last = len(ordered) - 1
    return [] if last < 0 else [(share, ordered[min(last, int(share * len(ordered)))]) for share in QUANTILES]


def number(value: float) -> str:
    """Return a value as Prometheus writes it."""
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    return str(int(value)) if value == int(value) else repr(float(value))


def _value(source: Source) -> float:
    if isinstance(source, Counter):
        return source.value
    return source() if callable(source) else source.count


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(value: str) -> str:
    return _escape(value).replace('"', '\\"') if '"' in value or "\\" in value or "\n" in value else value
