"""Compared systems are measured in turns, so that background load affects all of them equally."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator, Mapping
from statistics import median

from benchmarks.sizes import Figures

Rounds = Generator[Figures, None, None]
"""Returns the figures of one round after the other; none for a warm-up round. Closing it releases what it holds."""


class NotMeasured(Exception):
    """A stage cannot measure a peer; the message says why."""


def in_turns(stage: str, rounds: Mapping[str, Rounds]) -> dict[str, dict[str, float]]:
    """Return by peer the median of each figure. Peers that cannot be measured are named on standard error."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in rounds}
    left = dict(rounds)
    try:
        while left:
            for name in list(left):
                try:
                    for figure, value in next(left[name]).items():
                        found[name][figure].append(value)
                except StopIteration:
                    del left[name]
                except NotMeasured as reason:
                    print(f"{stage}: {name} is not measured: {reason}", file=sys.stderr, flush=True)
                    del left[name]
    finally:
        for unfinished in left.values():
            unfinished.close()
    return {name: {figure: median(values) for figure, values in of.items()} for name, of in found.items()}
