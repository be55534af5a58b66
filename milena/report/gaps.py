"""Gaps in series of points at regular intervals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta


def with_gaps(
    times: Sequence[datetime], values: Sequence[float], step: timedelta
) -> tuple[list[datetime], list[float | None]]:
    """Return the points with None between two that are more than ``step`` apart, so that no line connects them.
    ``times``: in order."""
    xs: list[datetime] = []
    ys: list[float | None] = []
    for time, value in zip(times, values, strict=True):
        if xs and time - xs[-1] > step:
            xs.append(xs[-1] + step)
            ys.append(None)
        xs.append(time)
        ys.append(value)
    return xs, ys
