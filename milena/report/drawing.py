"""Draws plots with plotly."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from milena.report.colours import GREY, colours_of
from milena.report.contents import Band, Plot, Plots, Series
from milena.report.gaps import lone_points

LINE = "rgba(128,128,128,.25)"
SHADE = "rgba(214,39,40,.09)"
BAR = "rgba(214,39,40,.65)"
ROW = 210
"""Pixels of a plot's height."""
BAND_ROW = 24


def figure(section: Plots, coloured: Sequence[str] = (), *, with_library: bool) -> str:
    """Return an element of a page. ``coloured``: the names of series that have the same colour in all figures.
    ``with_library``: include the script that draws it, needed once in a page."""
    text: str = drawn(section, coloured).to_html(
        full_html=False,
        include_plotlyjs=with_library,
        config={"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]},
    )
    return text


def drawn(section: Plots, coloured: Sequence[str] = ()) -> go.Figure:
    """Return the figure of a section."""
    names = list(dict.fromkeys(band.name for band in section.bands))
    heights = ([BAND_ROW * len(names) + 20] if names else []) + [ROW] * len(section.plots)
    titles = ([""] if names else []) + [f"{plot.title} ({plot.unit})" for plot in section.plots]
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        subplot_titles=titles,
        vertical_spacing=46 / (sum(heights) + 46 * len(heights)),
    )
    first = 1
    if names:
        _add_bands(figure, section.bands, names)
        first = 2
    colours = colours_of([series.name for plot in section.plots for series in plot.series], coloured)
    for row, plot in enumerate(section.plots, first):
        _add(figure, plot, row, colours)
    _arrange(figure, section.axis, len(heights), sum(heights) + 46 * len(heights) + 60)
    return figure


def _add_bands(drawn: go.Figure, bands: Sequence[Band], names: list[str]) -> None:
    drawn.add_trace(
        go.Bar(
            base=[band.begun for band in bands],
            x=[max(band.ended - band.begun, 0.001) for band in bands],
            y=[band.name for band in bands],
            orientation="h",
            marker={"color": BAR, "line": {"width": 0}},
            customdata=[[band.begun, band.ended, band.text] for band in bands],
            hovertemplate="%{y}: %{customdata[0]:.1f} to %{customdata[1]:.1f}<br>%{customdata[2]}<extra></extra>",
            showlegend=False,
        ),
        row=1,
        col=1,
    )
    drawn.update_yaxes(categoryorder="array", categoryarray=names[::-1], automargin=True, row=1, col=1)
    for band in bands:
        # Rectangles of the whole height, behind everything, are cheaper than one for each plot.
        drawn.add_shape(
            type="rect",
            xref="x",
            yref="paper",
            x0=band.begun,
            x1=band.ended,
            y0=0,
            y1=1,
            fillcolor=SHADE,
            line_width=0,
            layer="below",
        )


def _add(drawn: go.Figure, plot: Plot, row: int, colours: dict[str, str]) -> None:
    seen = {trace.name for trace in drawn.data}
    for series in plot.series:
        drawn.add_trace(_trace(series, row, colours[series.name], legend=series.name not in seen), row=row, col=1)
    drawn.update_yaxes(type="log" if plot.logarithmic else "linear", row=row, col=1)
    if not plot.logarithmic:
        drawn.update_yaxes(rangemode="tozero", row=row, col=1)


def _trace(series: Series, row: int, colour: str, *, legend: bool) -> go.Bar | go.Scatter:
    common = {"name": series.name, "x": list(series.xs), "y": list(series.ys), "legendgroup": series.name}
    if series.shape == "bars":
        return go.Bar(**common, marker={"color": colour}, showlegend=legend)
    # A point between two gaps is no line: it is drawn as a point.
    points = lone_points(series.ys)
    mode = (
        {"mode": "lines+markers", "marker": {"size": [4 * one for one in points]}} if any(points) else {"mode": "lines"}
    )
    fill: dict[str, str] = {}
    if series.shape == "stack":
        fill = {"stackgroup": f"row {row}"}
    elif series.shape == "area":
        fill = {"fill": "tozeroy"}
    return go.Scatter(
        **common, **fill, **mode, line={"color": colour, "width": 1.2}, showlegend=legend, connectgaps=False
    )


def _arrange(drawn: go.Figure, axis: str, rows: int, height: int) -> None:
    drawn.update_layout(
        height=height,
        hovermode="x",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"color": GREY, "size": 12},
        margin={"l": 70, "r": 20, "t": 30, "b": 50},
        # Beside the plots: above them it would cover the title of the first one, with its unit.
        legend={"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top"},
        bargap=0.25,
    )
    drawn.update_xaxes(gridcolor=LINE, zeroline=False)
    drawn.update_yaxes(gridcolor=LINE, zeroline=False)
    drawn.update_xaxes(title_text=axis, row=rows, col=1)
    for title in drawn.layout.annotations:
        title.update(x=0, xanchor="left", font={"size": 13, "color": GREY})
