"""The faults of a run, from its seed: which, to which nodes, for how long, and which two at once.

With safe settings nothing may be lost by it, so what loses data (a replaced disk, power that goes) takes one broker at
a time, while all replicas are in sync, and only together with faults that take no other broker out of an ISR.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from milena.lab.chaos.faults import Kind
from milena.lab.histories.progress import PATIENCE
from milena.runtime.randomness import Randomness

LOSING: Final = frozenset({Kind.WIPE, Kind.POWER_LOSS})
OF_TIER: Final = frozenset({Kind.TIER_AWAY, Kind.TIER_UNMOUNTED, Kind.ODD_TIER, Kind.SLOW_OBJECTS, Kind.LOST_OBJECTS})
QUIET: Final = OF_TIER | {Kind.CONTROLLER, Kind.CLOCK}
"""They take no broker out of an ISR."""
OF_LINKS: Final = frozenset({Kind.ISOLATE, Kind.CUT_CONTROLLER, Kind.CUT_FOLLOWERS, Kind.CUT_ONE_WAY})
"""One of them at a time: all links are healed together."""
ALONE: Final = frozenset({Kind.ROLLING, Kind.UNCLEAN})
"""They end every broker, or nearly so."""
TELLING: Final = (Kind.ISOLATE, Kind.UNCLEAN, Kind.CUT_FOLLOWERS)
"""What loses records where settings are unsafe."""
BOUNDED: Final = frozenset({Kind.HANG, Kind.ROLLING, Kind.UNCLEAN})
"""They last as long as they are what they are."""
LONGEST_PAUSE: Final = 3.0
OFTEN: Final = 3
"""One round of so many has two faults at once, if two go together."""
LASTING: Final = 3
"""One round of so many lasts for so long that a lack of progress meanwhile is an anomaly."""
SLACK: Final = 5.0
"""Seconds for what has no bound of its own: detection in rounds, metadata, retries of clients, a busy machine."""
CLOCK_JUMPS: Final = (-1200.0, -60.0, -2.0, 2.0, 60.0, 1200.0)
"""Seconds. Brokers refuse records that are an hour ahead of their clock (``message.timestamp.after.max.ms``)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan needs to know of the cluster; times in seconds."""

    brokers: Sequence[int]
    controller: int
    session: float
    lag: float
    odd: Sequence[str] = ()
    """The wrong answers that the tier's store can give."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. ``nodes``: those that it befalls; for a one-way cut sender and receiver; empty: all brokers, or the
    nemesis chooses. ``amount``: seconds of delay or of a jump, or the share of objects. ``text``: which wrong answer of
    the tier's store."""

    kind: Kind
    nodes: tuple[int, ...]
    seconds: float
    amount: float = 0.0
    text: str = ""

    def __str__(self) -> str:
        amount = f" ({self.amount:.2f})" if self.amount else f" ({self.text})" if self.text else ""
        return f"{self.kind.value} {' '.join(map(str, self.nodes))}".rstrip() + f"{amount} for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Round:
    """After ``pause`` seconds without a fault these begin at once; the next round waits until all is in sync."""

    pause: float
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"after {self.pause:.1f} s {' and '.join(map(str, self.steps))}"


def go_together(one: Kind, other: Kind) -> bool:
    """Whether two faults may be there at once."""
    both = {one, other}
    if one is other or both & ALONE or both <= OF_LINKS or both <= OF_TIER:
        return False
    return not both & LOSING or bool(both & QUIET)


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
    first = [kind for kind in TELLING if kind in kinds] if unsafe else []
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
    return tuple(step if step.kind in BOUNDED else replace(step, seconds=max(seconds, step.seconds)) for step in steps)


def _steps(kinds: list[Kind], random: Randomness, shape: Shape) -> tuple[Step, ...]:
    brokers = random.shuffled(shape.brokers)
    return tuple(_step(kind, brokers, random, shape) for kind in kinds)


def _step(kind: Kind, brokers: list[int], random: Randomness, shape: Shape) -> Step:
    """It takes its broker from ``brokers``: another step of the round has another one."""
    session, lag = shape.session, shape.lag
    fenced = session + random.uniform(1, 4)
    match kind:
        case Kind.KILL | Kind.RESTART | Kind.WIPE | Kind.POWER_LOSS:
            return Step(kind, (brokers.pop(),), random.choice((random.uniform(0, session), fenced)))
        case Kind.STOP | Kind.ISOLATE | Kind.CUT_CONTROLLER | Kind.FULL_DISK | Kind.LOST_DIRECTORY:
            return Step(kind, (brokers.pop(),), fenced)
        case Kind.HANG:
            return Step(kind, (brokers.pop(),), session * random.uniform(0.2, 0.5))
        case Kind.CUT_FOLLOWERS:
            return Step(kind, (brokers.pop(),), 1.5 * lag + random.uniform(1, 4))
        case Kind.CUT_ONE_WAY:
            ends = random.shuffled([brokers.pop(), random.choice((shape.controller, brokers[0]))])
            return Step(kind, tuple(ends), max(session, 1.5 * lag) + random.uniform(1, 4))
        case Kind.SLOW_DISK:
            return Step(kind, (brokers.pop(),), random.uniform(3, 8), random.uniform(0.02, 0.3))
        case Kind.CLOCK:
            nodes = (random.choice((brokers.pop(), shape.controller)),)
            return Step(kind, nodes, random.uniform(3, 8), random.choice(CLOCK_JUMPS))
        case Kind.SLOW_OBJECTS:
            return Step(kind, (), random.uniform(3, 8), random.uniform(0.1, 2))
        case Kind.LOST_OBJECTS:
            return Step(kind, (), random.uniform(3, 8), random.uniform(0.1, 0.5))
        case Kind.CONTROLLER:
            return Step(kind, (shape.controller,), random.choice((random.uniform(0, session), fenced)))
        case Kind.ROLLING:
            return Step(kind, (*brokers, shape.controller), len(brokers) * session)
        case Kind.UNCLEAN:
            return Step(kind, tuple(brokers), 3 * session)
        case Kind.ODD_TIER:
            return Step(kind, (), random.uniform(3, 8), text=random.choice(shape.odd or ("page",)))
        case Kind.TIER_AWAY | Kind.TIER_UNMOUNTED | Kind.REASSIGN:
            return Step(kind, (), random.uniform(3, 8))


def within(step: Step, shape: Shape) -> float:
    """Seconds after the injection from which on they must be writable."""
    match step.kind:
        case Kind.CUT_FOLLOWERS | Kind.CUT_ONE_WAY:
            return max(shape.session, 1.5 * shape.lag) + SLACK
        case (
            Kind.KILL
            | Kind.STOP
            | Kind.ISOLATE
            | Kind.CUT_CONTROLLER
            | Kind.WIPE
            | Kind.POWER_LOSS
            | Kind.FULL_DISK
            | Kind.LOST_DIRECTORY
        ):
            return shape.session + SLACK
        case _:
            return SLACK
