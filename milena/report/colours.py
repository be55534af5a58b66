"""The colours of series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Final
from zlib import crc32

GREY: Final = "#888"
COLOURS: Final = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#d4a017", "#d62728", "#7f7f7f",
)  # fmt: skip
SHADES: Final = (
    *COLOURS[:-1],
    "#0b3d66", "#a34700", "#145214", "#512e73", "#4a2c25", "#94407a", "#0c6b75", "#7a5c0a", "#7d1516",
    "#8fbbdd", "#ffb97a", "#8fd48f", "#c3a9dd", "#bf958c", "#f2b6de", "#88dfe6",
)  # fmt: skip
"""Colours of names that have the same colour on several pages."""
OTHERS: Final = "others"
"""The name of the series that sums up all others."""


def colours_of(names: Iterable[str], coloured: Sequence[str] = ()) -> dict[str, str]:
    """Return a colour for each of ``names``. Those in ``coloured`` have the colour of ``lasting_colours``."""
    every = list(dict.fromkeys(names))
    lasting = lasting_colours(coloured)
    left = [name for name in every if name not in lasting and name != OTHERS]
    found = lasting | {OTHERS: GREY} | dict(zip(left, cycle(COLOURS), strict=False))
    return {name: found[name] for name in every}


def lasting_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name: its hash selects one, or the next free one if an earlier name in the alphabet has
    that colour. The result depends on the set of names, not on their order."""
    found: dict[str, str] = {}
    free: set[str] = set()
    for name in sorted(set(names)):
        free = free or set(SHADES)
        first = crc32(name.encode()) % len(SHADES)
        found[name] = next(one for one in (*SHADES[first:], *SHADES[:first]) if one in free)
        free.discard(found[name])
    return found
