"""Sizes and times as text."""

from __future__ import annotations

from datetime import datetime


def bytes_text(size: int) -> str:
    """Return a size such as ``1.5 GiB``."""
    value, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:,.0f} {units[0]}" if units[0] == "bytes" else f"{value:,.1f} {units[0]}"


def time_text(time: datetime | None) -> str:
    """Return a time to the minute; "" for None."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M}"
