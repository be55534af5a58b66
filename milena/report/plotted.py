"""Plots as data for ``console/static/plots.js``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from milena.report.colours import colours_of
from milena.report.contents import Plots


def plotted(section: Plots, coloured: Sequence[str] = ()) -> dict[str, object]:
    """Return the plots as JSON values. Texts on the axis are times (UTC) or days. ``coloured``: the names of series
    that have the same colour in all plots."""
    colours = colours_of([series.name for plot in section.plots for series in plot.series], coloured)
    xs = [x for plot in section.plots for series in plot.series for x in series.xs]
    return {
        "title": section.title,
        "axis": section.axis,
        "time": any(isinstance(x, str) for x in xs),
        "bands": [[band.name, band.begun, band.ended, band.text] for band in section.bands],
        "plots": [
            {
                "title": plot.title,
                "unit": plot.unit,
                "logarithmic": plot.logarithmic,
                "series": [
                    {
                        "name": series.name,
                        "shape": series.shape,
                        "colour": colours[series.name],
                        "xs": [_number(x) for x in series.xs],
                        "ys": list(series.ys),
                    }
                    for series in plot.series
                ],
            }
            for plot in section.plots
        ],
    }


def _number(x: float | str) -> float:
    return datetime.fromisoformat(x).replace(tzinfo=UTC).timestamp() if isinstance(x, str) else x
