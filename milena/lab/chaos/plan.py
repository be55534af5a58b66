"""The faults of a run, from its seed: which, to which nodes, for how long, and which two at once.

There are two styles of plans. **Rounds**: one or two faults at once, then a wait until all replicas are in sync;
progress is judged. **Overlapping**: streams of faults of nodes, links and the tier that do not wait for each other, for
places that watch invariants and know which records may be lost; only recovery at the end is judged.

With safe settings nothing may be lost by a plan of rounds, so what loses data (a replaced disk, power that goes) takes
one broker at a time, while all replicas are in sync, and only together with faults that take no other broker out of an
ISR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from milena.lab.chaos.faults import FAULTS, Draw, Kind, Shape, Step, Trait, has
from milena.lab.histories.progress import PATIENCE
from milena.runtime.randomness import Randomness

UNSAFE_FIRST: Final = (Kind.ISOLATE, Kind.UNCLEAN, Kind.CUT_FOLLOWERS)
"""These lose records where settings are unsafe; a run with ``--unsafe`` injects them first."""
LONGEST_PAUSE: Final = 3.0
NODES, LINKS, TIER = "nodes", "links", "tier"
LONGEST_PAUSES: Final = {NODES: 2.0, LINKS: 4.0, TIER: 4.0}
"""The streams of an overlapping plan, and the most seconds before each fault."""
SESSIONS: Final = 4.0
"""A fault of an overlapping plan lasts for at most so many broker sessions, if it needs a fenced broker."""
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


class Stream(NamedTuple):
    """The faults of one stream, one after the other, each after a pause."""

    name: str
    rounds: tuple[Round, ...]


def stream_of(kind: Kind) -> str:
    """Return in which stream of an overlapping plan a kind of fault comes."""
    return LINKS if has(kind, Trait.OF_LINKS) else TIER if has(kind, Trait.OF_TIER) else NODES


def in_rounds(kind: Kind) -> bool:
    """Return whether plans of rounds have a kind of fault."""
    return not has(kind, Trait.WATCHED)


def overlaps(kind: Kind) -> bool:
    """Return whether overlapping plans have a kind of fault."""
    return FAULTS[kind].weight > 0


def overlapping(seed: int, count: int, kinds: Collection[Kind], shape: Shape) -> list[Stream]:
    """Return a plan with ``count`` faults in each stream for which there are kinds. Kinds that do not overlap are left
    out."""
    random = Randomness(seed)
    found: list[Stream] = []
    for name, longest in LONGEST_PAUSES.items():
        drawn = [kind for kind in Kind if kind in kinds and stream_of(kind) == name]
        weighted = [kind for kind in drawn for _ in range(FAULTS[kind].weight)]
        number = count if weighted else 0
        found.append(Stream(name, tuple(_overlapping(weighted, longest, random, shape) for _ in range(number))))
    return found


def _overlapping(weighted: Sequence[Kind], longest_pause: float, random: Randomness, shape: Shape) -> Round:
    """Return one fault of a stream. It may end before it has consequences."""
    pause, kind = random.uniform(0, longest_pause), random.choice(weighted)
    draw = Draw(random.shuffled(shape.brokers), random, shape, SESSIONS * shape.session)
    step = Step(kind, *FAULTS[kind].draw(draw))
    return Round(pause, (replace(step, seconds=random.uniform(0, step.seconds)),))


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
