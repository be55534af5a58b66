"""What is compared is measured in turns, so that what comes and goes on the machine meets all alike."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Generator, Mapping
from statistics import median

from benchmarks.sizes import Figures

Rounds = Generator[Figures, None, None]
"""The figures of one round after the other; none where a round only warms up. What it holds open ends with it."""


class NotMeasured(Exception):
    """Why a stage says nothing of a peer."""


def in_turns(stage: str, rounds: Mapping[str, Rounds]) -> dict[str, dict[str, float]]:
    """By peer the median of all its rounds for each figure. Who is not to be measured is said on standard error."""
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
