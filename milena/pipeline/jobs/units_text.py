"""Sizes and times as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime


def bytes_text(size: int) -> str:
    """Return a size such as ``1.5 GiB``."""
    value, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:,.0f} {units[0]}" if units[0] == "bytes" else f"{value:,.1f} {units[0]}"


def remaining_text(not_in_tier: Mapping[str, int] | None) -> str:
    """Return how many records are not in the tier. ``not_in_tier``: the number of offsets by topic; None: unknown."""
    if not_in_tier is None:
        return "unknown without a broker's directory: only records in the tier were read"
    left = {topic: count for topic, count in sorted(not_in_tier.items(), key=lambda one: -one[1]) if count}
    if not left:
        return "nothing"
    largest = ", ".join(f"{topic} {count:,}" for topic, count in list(left.items())[:5])
    more = f", and {len(left) - 5} more topics" if len(left) > 5 else ""
    return f"the newest {sum(left.values()):,} offsets, which only the brokers have: {largest}{more}"


def time_text(time: datetime | None) -> str:
    """Return a time to the minute; "" for None."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M}"
