"""The table of faults: for each kind how it is drawn, injected, noticed and judged, and what it excludes.

A new kind of fault is a member of ``histories.faults.Kind`` and a row here (CONTRIBUTING has the steps). ``Act`` names
what the nemesis does, ``Notice`` how the runner verifies that the fault has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from milena.lab.histories.faults import Fault as Fault
from milena.lab.histories.faults import Kind as Kind
from milena.runtime.randomness import Randomness

SLACK: Final = 5.0
"""Seconds for what has no time limit of its own: detection in rounds, metadata, retries of clients, a busy machine."""
CLIENTS: Final = -1
"""Stands for the clients' machine among the nodes of a fault of links."""
LONGEST_DELAY: Final = 1.5
"""Seconds on a slow link: less than the time-outs of clients."""
CLOCK_JUMPS: Final = (-1200.0, -60.0, -2.0, 2.0, 60.0, 1200.0)
"""Seconds. Brokers refuse records that are an hour ahead of their clock (``message.timestamp.after.max.ms``)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The facts about the cluster that a plan depends on; times in seconds."""

    brokers: Sequence[int]
    controller: int
    session: float
    """``broker.session.timeout.ms``."""
    lag: float
    """``replica.lag.time.max.ms``."""
    odd: Sequence[str] = ()
    """The wrong answers that the tier's store can give."""
    watched: bool = False
    """Whether invariants are watched (``Place.insight``). Then links to clients may be cut, too, and one broker alone
    may lose its tier."""


@dataclass(frozen=True, slots=True)
class Step:
    """One fault. ``nodes``: the nodes that have it; for a one-way cut sender and receiver, for other faults of a link
    its ends; empty: all brokers, or those that the nemesis chooses. ``amount``: seconds of delay or of a jump, or the
    share of objects. ``text``: which wrong answer of the tier's store."""

    kind: Kind
    nodes: tuple[int, ...]
    seconds: float
    amount: float = 0.0
    text: str = ""

    def __str__(self) -> str:
        amount = f" ({self.amount:.2f})" if self.amount else f" ({self.text})" if self.text else ""
        return f"{self.kind.value} {' '.join(map(str, self.nodes))}".rstrip() + f"{amount} for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class ReplicaEffect:
    """What a fault does to the replicas of all partitions while it lasts."""

    gone: frozenset[int] = frozenset()
    """These brokers will be fenced."""
    hung: frozenset[int] = frozenset()
    """These brokers stay in the ISR and answer nothing."""
    apart: frozenset[frozenset[int]] = frozenset()
    """Pairs of brokers that cannot replicate to each other."""
    each: frozenset[int] = frozenset()
    """These brokers are away one after the other."""
    moves: bool = False
    """Replicas are on other brokers than before, as many as are needed."""
    frozen: bool = False
    """The controller changes nothing."""
    all: bool = False
    """No partition has to accept writes."""


class Act(Enum):
    """What the nemesis does for a fault."""

    KILL = auto()
    SHUT_DOWN = auto()
    PAUSE = auto()
    CUT = auto()
    WIPE = auto()
    POWER_OFF = auto()
    FAIL_DISK = auto()
    SLOW_DISK = auto()
    JUMP_CLOCK = auto()
    BREAK_TIER = auto()
    UNMOUNT_TIER = auto()
    ROLL = auto()
    REASSIGN = auto()
    ELECT_UNCLEAN = auto()
    POWER_OFF_ALL = auto()
    DISTURB = auto()
    """What only the simulation can do (``Insight.disturb``)."""


class Notice(Enum):
    """How the effect of a fault is noticed."""

    BY_ACT = auto()
    """By the act, which observes the node while the fault lasts. If it does not, the fault is not observable."""
    DOWN = auto()
    """The node refuses connections."""
    NEW_DIRECTORY = auto()
    """The node has a log directory with another id."""
    CUT = auto()
    """Other brokers report a fenced broker or a smaller ISR, or the broker does not fetch the metadata log."""
    OFFLINE = auto()
    """The node reports an offline log directory, or has ended."""
    CLOCK = auto()
    """The node reports a wall clock that has jumped."""
    MOVED = auto()
    """A reassignment is under way, or partitions have other replicas."""
    STALE_ALONE = auto()
    """All nodes of the fault but the first one are down."""
    COUNTED = auto()
    """The node counts it under ``FaultKind.counted``."""


class Trait(Enum):
    """What distinguishes kinds of faults from each other, for the plan and for the verdict."""

    LOSES = auto()
    """A broker loses data. Only one at a time, with all replicas in sync."""
    OF_TIER = auto()
    """A fault of the tier's store; one at a time."""
    OF_LINKS = auto()
    """A fault of links. One at a time, because all links are healed together."""
    KEEPS_ISR = auto()
    """It takes no broker out of an ISR."""
    ALONE = auto()
    """It ends all or nearly all brokers, so it is never injected together with another fault."""
    BOUNDED = auto()
    """Its duration is part of what it is, so that it is never extended."""
    OWN_SESSIONS = auto()
    """It can end the sessions of its own nodes only."""
    STALE_LEADER = auto()
    """It leaves a leader that was replaced, does not know it, and answers clients."""
    ENDS_IN_TIME = auto()
    """It is mended at its time, even if it has not been noticed yet. Others last a little longer in that case."""
    NEEDS_CONTROLLER = auto()
    """It cannot be noticed while the controller is away."""
    NEEDS_NODE = auto()
    """It cannot be noticed if another fault ends its node."""
    WATCHED = auto()
    """It is for places that watch invariants (``Place.insight``) only: they know which records it may lose, or can
    inject it. It comes in overlapping plans only."""


class Drawn(NamedTuple):
    """The random choices of one fault: see ``Step``."""

    nodes: tuple[int, ...]
    seconds: float
    amount: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True)
class Draw:
    """What choices are made from. ``brokers``: those without a fault in this round, in random order. ``fenced``: a
    random number of seconds after which a broker without heartbeats has been fenced."""

    brokers: list[int]
    random: Randomness
    shape: Shape
    fenced: float


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A row of the table. ``within``: seconds after the injection from which on partitions with enough replicas must
    accept writes. ``counted``: the name of a counter in ``Place.troubles``. ``weight``: how often it is drawn for an
    overlapping plan, beside the others of its stream; 0: never, for the reason beside ``_ROUNDS_ONLY``."""

    draw: Callable[[Draw], Drawn]
    act: Act
    notice: Notice
    effect: Callable[[Step, Shape], ReplicaEffect]
    within: Callable[[Shape], float]
    traits: frozenset[Trait] = frozenset()
    counted: str = ""
    weight: int = 0


# -- how a fault is drawn


def _short_or_fenced(draw: Draw) -> Drawn:
    node = draw.brokers.pop()
    return Drawn((node,), draw.random.choice((draw.random.uniform(0, draw.shape.session), draw.fenced)))


def _fenced(draw: Draw) -> Drawn:
    return Drawn((draw.brokers.pop(),), draw.fenced)


def _hanging(draw: Draw) -> Drawn:
    return Drawn((draw.brokers.pop(),), draw.shape.session * draw.random.uniform(0.2, 0.5))


def _lagging(draw: Draw) -> Drawn:
    return Drawn((draw.brokers.pop(),), 1.5 * draw.shape.lag + draw.random.uniform(1, 4))


def _one_way(draw: Draw) -> Drawn:
    shape, random = draw.shape, draw.random
    node = draw.brokers.pop()
    ends = random.shuffled([node, random.choice((shape.controller, draw.brokers[0], *_clients(shape)))])
    return Drawn(tuple(ends), max(shape.session, 1.5 * shape.lag) + random.uniform(1, 4))


def _clients(shape: Shape) -> tuple[int, ...]:
    return (CLIENTS,) if shape.watched else ()


def _isolated(draw: Draw) -> Drawn:
    """Where links to clients can be cut, sometimes these, too. While clients reach the broker, it may continue to lead
    without knowing that it was replaced."""
    node = draw.brokers.pop()
    with_clients = draw.shape.watched and draw.random.below(2)
    return Drawn((node, CLIENTS) if with_clients else (node,), draw.fenced)


def _link(draw: Draw) -> Drawn:
    node = draw.brokers.pop()
    other = draw.random.choice((draw.shape.controller, *_clients(draw.shape), *draw.brokers))
    return Drawn((node, other), draw.fenced, draw.random.uniform(0, LONGEST_DELAY))


def _all_brokers(draw: Draw) -> Drawn:
    return Drawn(tuple(draw.brokers), draw.random.uniform(0, draw.shape.session))


def _any_node(draw: Draw) -> Drawn:
    node = draw.random.choice((draw.brokers.pop(), draw.shape.controller))
    return Drawn((node,), draw.random.uniform(0, draw.shape.session))


def _mount(draw: Draw) -> Drawn:
    nodes = (draw.brokers.pop(),) if draw.shape.watched and draw.random.below(2) else ()
    return Drawn(nodes, draw.random.uniform(3, 8))


def _at_once(draw: Draw) -> Drawn:
    return Drawn((), 0.0)


def _slow_disk(draw: Draw) -> Drawn:
    return Drawn((draw.brokers.pop(),), draw.random.uniform(3, 8), draw.random.uniform(0.02, 0.3))


def _clock(draw: Draw) -> Drawn:
    nodes = (draw.random.choice((draw.brokers.pop(), draw.shape.controller)),)
    return Drawn(nodes, draw.random.uniform(3, 8), draw.random.choice(CLOCK_JUMPS))


def _slow_objects(draw: Draw) -> Drawn:
    return Drawn((), draw.random.uniform(3, 8), draw.random.uniform(0.1, 2))


def _lost_objects(draw: Draw) -> Drawn:
    return Drawn((), draw.random.uniform(3, 8), draw.random.uniform(0.1, 0.5))


def _odd_tier(draw: Draw) -> Drawn:
    return Drawn((), draw.random.uniform(3, 8), text=draw.random.choice(draw.shape.odd or ("page",)))


def _of_no_node(draw: Draw) -> Drawn:
    return Drawn((), draw.random.uniform(3, 8))


def _controller(draw: Draw) -> Drawn:
    seconds = draw.random.choice((draw.random.uniform(0, draw.shape.session), draw.fenced))
    return Drawn((draw.shape.controller,), seconds)


def _rolling(draw: Draw) -> Drawn:
    return Drawn((*draw.brokers, draw.shape.controller), len(draw.brokers) * draw.shape.session)


def _unclean(draw: Draw) -> Drawn:
    return Drawn(tuple(draw.brokers), 3 * draw.shape.session)


# -- what it does to replicas


def _nothing(step: Step, shape: Shape) -> ReplicaEffect:
    return ReplicaEffect()


def _gone(step: Step, shape: Shape) -> ReplicaEffect:
    return ReplicaEffect(gone=frozenset(step.nodes))


def _hung(step: Step, shape: Shape) -> ReplicaEffect:
    return ReplicaEffect(hung=frozenset(step.nodes))


def _apart(step: Step, shape: Shape) -> ReplicaEffect:
    leader = step.nodes[0]
    return ReplicaEffect(apart=frozenset(frozenset((leader, one)) for one in shape.brokers if one != leader))


def _apart_one_way(step: Step, shape: Shape) -> ReplicaEffect:
    if shape.controller in step.nodes:
        return ReplicaEffect(gone=frozenset(step.nodes) - {shape.controller})
    return ReplicaEffect(apart=frozenset({frozenset(step.nodes)}))


def _frozen(step: Step, shape: Shape) -> ReplicaEffect:
    return ReplicaEffect(frozen=True)


def _each(step: Step, shape: Shape) -> ReplicaEffect:
    return ReplicaEffect(each=frozenset(shape.brokers))


def _moves(step: Step, shape: Shape) -> ReplicaEffect:
    return ReplicaEffect(moves=True)


def _all(step: Step, shape: Shape) -> ReplicaEffect:
    return ReplicaEffect(all=True)


# -- from when on partitions must accept writes


def _soon(shape: Shape) -> float:
    return SLACK


def _after_session(shape: Shape) -> float:
    return shape.session + SLACK


def _after_lag(shape: Shape) -> float:
    return max(shape.session, 1.5 * shape.lag) + SLACK


def _traits(*traits: Trait) -> frozenset[Trait]:
    return frozenset(traits)


_OF_TIER: Final = _traits(Trait.OF_TIER, Trait.KEEPS_ISR, Trait.OWN_SESSIONS)
_OF_LINKS: Final = _traits(Trait.OF_LINKS, Trait.NEEDS_CONTROLLER)
_OF_NODE: Final = _traits(Trait.OWN_SESSIONS)
_WATCHED: Final = _traits(Trait.WATCHED)
_ROUNDS_ONLY: Final = 0
"""These move the clocks by which retention is judged, wait for healthy replicas, need a tier that counts its losses, or
are a part of what the administrators of an overlapping run do all the time."""


def _watched(
    draw: Callable[[Draw], Drawn], weight: int, act: Act = Act.DISTURB, traits: frozenset[Trait] = frozenset()
) -> FaultKind:
    """A row of a fault that no round has: nothing but recovery at the end is judged."""
    return FaultKind(draw, act, Notice.BY_ACT, _all, _soon, traits | _WATCHED, weight=weight)


FAULTS: Final[Mapping[Kind, FaultKind]] = {
    Kind.KILL: FaultKind(_short_or_fenced, Act.KILL, Notice.DOWN, _gone, _after_session, _OF_NODE, weight=6),
    Kind.STOP: FaultKind(
        _fenced, Act.PAUSE, Notice.BY_ACT, _gone, _after_session, _OF_NODE | {Trait.ENDS_IN_TIME}, weight=3
    ),
    Kind.HANG: FaultKind(
        _hanging, Act.PAUSE, Notice.BY_ACT, _hung, _soon, _OF_NODE | {Trait.BOUNDED, Trait.ENDS_IN_TIME}, weight=1
    ),
    Kind.RESTART: FaultKind(_short_or_fenced, Act.SHUT_DOWN, Notice.DOWN, _gone, _soon, _OF_NODE, weight=3),
    Kind.ISOLATE: FaultKind(
        _isolated, Act.CUT, Notice.CUT, _gone, _after_session, _OF_LINKS | {Trait.STALE_LEADER}, weight=2
    ),
    Kind.CUT_CONTROLLER: FaultKind(
        _fenced, Act.CUT, Notice.CUT, _gone, _after_session, _OF_LINKS | {Trait.STALE_LEADER}, weight=1
    ),
    Kind.CUT_FOLLOWERS: FaultKind(_lagging, Act.CUT, Notice.CUT, _apart, _after_lag, _OF_LINKS, weight=1),
    Kind.CUT_ONE_WAY: FaultKind(_one_way, Act.CUT, Notice.CUT, _apart_one_way, _after_lag, _OF_LINKS, weight=2),
    Kind.WIPE: FaultKind(
        _short_or_fenced,
        Act.WIPE,
        Notice.NEW_DIRECTORY,
        _gone,
        _after_session,
        _OF_NODE | {Trait.LOSES, Trait.NEEDS_CONTROLLER},
        weight=2,
    ),
    Kind.POWER_LOSS: FaultKind(
        _short_or_fenced,
        Act.POWER_OFF,
        Notice.DOWN,
        _gone,
        _after_session,
        _OF_NODE | {Trait.LOSES, Trait.ENDS_IN_TIME},
        weight=4,
    ),
    Kind.FULL_DISK: FaultKind(_fenced, Act.FAIL_DISK, Notice.OFFLINE, _gone, _after_session, _OF_NODE, weight=1),
    Kind.LOST_DIRECTORY: FaultKind(_fenced, Act.FAIL_DISK, Notice.OFFLINE, _gone, _after_session, _OF_NODE, weight=1),
    Kind.SLOW_DISK: FaultKind(
        _slow_disk, Act.SLOW_DISK, Notice.COUNTED, _nothing, _soon, _OF_NODE | {Trait.NEEDS_NODE}, "slowed", weight=1
    ),
    Kind.TIER_AWAY: FaultKind(
        _of_no_node, Act.BREAK_TIER, Notice.COUNTED, _nothing, _soon, _OF_TIER, "tier_failed", weight=1
    ),
    Kind.TIER_UNMOUNTED: FaultKind(_mount, Act.UNMOUNT_TIER, Notice.BY_ACT, _nothing, _soon, _OF_TIER, weight=2),
    Kind.ODD_TIER: FaultKind(
        _odd_tier, Act.BREAK_TIER, Notice.COUNTED, _nothing, _soon, _OF_TIER, "tier_odd", weight=_ROUNDS_ONLY
    ),
    Kind.SLOW_OBJECTS: FaultKind(
        _slow_objects, Act.BREAK_TIER, Notice.COUNTED, _nothing, _soon, _OF_TIER, "tier_slowed", weight=2
    ),
    Kind.LOST_OBJECTS: FaultKind(
        _lost_objects, Act.BREAK_TIER, Notice.COUNTED, _nothing, _soon, _OF_TIER, "tier_lost", weight=_ROUNDS_ONLY
    ),
    Kind.CONTROLLER: FaultKind(_controller, Act.KILL, Notice.DOWN, _frozen, _soon, _traits(Trait.KEEPS_ISR), weight=2),
    Kind.CLOCK: FaultKind(
        _clock,
        Act.JUMP_CLOCK,
        Notice.CLOCK,
        _nothing,
        _soon,
        _OF_NODE | {Trait.KEEPS_ISR, Trait.ENDS_IN_TIME, Trait.NEEDS_NODE},
        weight=_ROUNDS_ONLY,
    ),
    Kind.ROLLING: FaultKind(
        _rolling,
        Act.ROLL,
        Notice.BY_ACT,
        _each,
        _soon,
        _traits(Trait.ALONE, Trait.BOUNDED, Trait.ENDS_IN_TIME),
        weight=_ROUNDS_ONLY,
    ),
    Kind.REASSIGN: FaultKind(
        _of_no_node,
        Act.REASSIGN,
        Notice.MOVED,
        _moves,
        _soon,
        _OF_NODE | {Trait.NEEDS_CONTROLLER},
        weight=_ROUNDS_ONLY,
    ),
    Kind.UNCLEAN: FaultKind(
        _unclean,
        Act.ELECT_UNCLEAN,
        Notice.STALE_ALONE,
        _all,
        _soon,
        _traits(Trait.ALONE, Trait.BOUNDED, Trait.ENDS_IN_TIME),
        weight=_ROUNDS_ONLY,
    ),
    Kind.BLACKOUT: _watched(_all_brokers, 1, Act.POWER_OFF_ALL),
    Kind.CONTROLLER_POWER_LOSS: _watched(_controller, 2, Act.POWER_OFF),
    Kind.DISK_ERRORS: _watched(_fenced, 3),
    Kind.FLIPPED_BIT: _watched(_any_node, 4),
    Kind.CUT_LINK: _watched(_link, 2, Act.CUT, _OF_LINKS),
    Kind.SLOW_LINK: _watched(_link, 2, traits=_OF_LINKS),
    Kind.TIER_ERRORS: _watched(_of_no_node, 2, traits=_OF_TIER),
    Kind.TIER_FULL: _watched(_of_no_node, 2, traits=_OF_TIER),
    Kind.MISSING_OBJECTS: _watched(_of_no_node, 2, traits=_OF_TIER),
    Kind.LOST_OBJECT: _watched(_at_once, 2, traits=_OF_TIER),
}


def has(kind: Kind, trait: Trait) -> bool:
    """Whether all faults of a kind have a trait."""
    return trait in FAULTS[kind].traits
