"""The faults of a run, from its seed: which, to which nodes, for how long, and which two at once.

With safe settings nothing may be lost by it, so what loses data (a replaced disk, power that goes) takes one broker at
a time, while all replicas are in sync, and only together with faults that take no other broker out of an ISR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from milena.lab.chaos.faults import FAULTS, Draw, Kind, Shape, Step, Trait, has
from milena.lab.histories.progress import PATIENCE
from milena.runtime.randomness import Randomness

UNSAFE_FIRST: Final = (Kind.ISOLATE, Kind.UNCLEAN, Kind.CUT_FOLLOWERS)
"""These lose records where settings are unsafe; a run with ``--unsafe`` injects them first."""
LONGEST_PAUSE: Final = 3.0
OFTEN: Final = 3
"""One round of so many has two faults at once, if two go together."""
LASTING: Final = 3
"""One round of so many lasts long enough for a lack of progress during it to be an anomaly."""


@dataclass(frozen=True, slots=True)
class Round:
    """After ``pause`` seconds without a fault these begin at once; the next round waits until all is in sync."""

    pause: float
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"after {self.pause:.1f} s {' and '.join(map(str, self.steps))}"


def go_together(one: Kind, other: Kind) -> bool:
    """Whether two faults may be injected at once."""

    def either(trait: Trait) -> bool:
        return has(one, trait) or has(other, trait)

    def both(trait: Trait) -> bool:
        return has(one, trait) and has(other, trait)

    if one is other or either(Trait.ALONE) or both(Trait.OF_LINKS) or both(Trait.OF_TIER):
        return False
    return not either(Trait.LOSES) or either(Trait.KEEPS_ISR)


def plan(seed: int, seconds: float, kinds: Collection[Kind], shape: Shape, *, unsafe: bool = False) -> list[Round]:
    """Rounds that last for at least ``seconds``: each kind once, in any order, then again. ``unsafe``: those that lose
    records come first. Raises ValueError without kinds."""
    if not kinds:
        raise ValueError("a plan needs at least one kind of fault")
    random = Randomness(seed)
    drawn = _decks(random, [kind for kind in Kind if kind in kinds], unsafe)
    found: list[Round] = []
    total = 0.0
    while total < seconds:
        steps = _steps(next(drawn), random, shape)
        if random.below(LASTING) == 0:
            steps = _lasting(steps, random, shape)
        found.append(Round(random.uniform(0.5, LONGEST_PAUSE), steps))
        total += found[-1].pause + max(step.seconds for step in steps)
    return found


def _decks(random: Randomness, kinds: list[Kind], unsafe: bool) -> Iterator[list[Kind]]:
    first = [kind for kind in UNSAFE_FIRST if kind in kinds] if unsafe else []
    while True:
        left = first + [kind for kind in random.shuffled(kinds) if kind not in first]
        first = []
        while left:
            kind = left.pop(0)
            mates = [other for other in left if go_together(kind, other)]
            if mates and random.below(OFTEN) == 0:
                mate = random.choice(mates)
                left.remove(mate)
                yield [kind, mate]
            else:
                yield [kind]


def _lasting(steps: tuple[Step, ...], random: Randomness, shape: Shape) -> tuple[Step, ...]:
    seconds = max(within(step, shape) for step in steps) + PATIENCE + random.uniform(1, 4)
    return tuple(
        step if has(step.kind, Trait.BOUNDED) else replace(step, seconds=max(seconds, step.seconds)) for step in steps
    )


def _steps(kinds: list[Kind], random: Randomness, shape: Shape) -> tuple[Step, ...]:
    brokers = random.shuffled(shape.brokers)
    return tuple(_step(kind, brokers, random, shape) for kind in kinds)


def _step(kind: Kind, brokers: list[int], random: Randomness, shape: Shape) -> Step:
    """Its node is taken from ``brokers``, so another step of the round gets another one."""
    fenced = shape.session + random.uniform(1, 4)
    return Step(kind, *FAULTS[kind].draw(Draw(brokers, random, shape, fenced)))


def within(step: Step, shape: Shape) -> float:
    """Seconds after the injection from which on partitions with enough replicas must accept writes."""
    return FAULTS[step.kind].within(shape)
