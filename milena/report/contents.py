"""The parts of a page: facts, tables, plots with a common axis, and the story of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, such as the settings of a run."""

    title: str
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Table:
    """``bad``: indexes of highlighted rows. ``folded``: shown when its title is clicked. ``halves``: the second half of
    the rows is to the right of the first."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    bad: frozenset[int] = frozenset()
    folded: bool = False
    halves: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """``shape``: ``line``, ``area``, ``stack`` (areas upon each other) or ``bars``. None in ``ys`` is a gap."""

    name: str
    xs: Sequence[float | str]
    ys: Sequence[float | None]
    shape: str = "line"


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    unit: str
    series: Sequence[Series]
    logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """A named period, such as a fault, shaded in the background of all plots. ``text`` is shown on hovering."""

    name: str
    begun: float
    ended: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Plots:
    """Plots below one another with a common axis, and a row of bands above them."""

    title: str
    axis: str
    plots: Sequence[Plot]
    bands: Sequence[Band] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Story:
    """A run on a time axis with its trace. ``data``: as ``console/static/timeline.js`` describes it."""

    data: Mapping[str, object]


Section: TypeAlias = Facts | Table | Plots | Story
