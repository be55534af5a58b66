"""The runs of `milena sim`: a simulated cluster of random size, with random topics, whose invariants are watched after
every event, while faults overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from milena.lab.chaos.faults import Kind
from milena.lab.chaos.groups.workload import PATIENCE
from milena.lab.chaos.journal import Recording, TracedJournal
from milena.lab.chaos.load import Load
from milena.lab.chaos.observer import Observer
from milena.lab.chaos.own_clients import Habits
from milena.lab.chaos.plan import TIER, overlaps, stream_of
from milena.lab.chaos.runner import Order, work
from milena.lab.chaos.simulated.place import SETTINGS, SimulatedPlace
from milena.lab.chaos.topics import SOURCE, TARGET, Topic
from milena.lab.histories.anomalies import Violation
from milena.lab.histories.checker import check
from milena.lab.histories.events import AllowedDeletion, Event
from milena.lab.histories.group_events import Expiry
from milena.lab.world.tiering import TIERED, UNLIMITED, tiered
from milena.lab.world.trace import Trace
from milena.lab.world.world import World, simulate
from milena.runtime.randomness import Randomness

KINDS: Final = tuple(kind for kind in Kind if overlaps(kind))
"""The kinds of faults that a run may have."""
BROKERS: Final = (3, 3, 3, 4, 5)
"""One of these, at random."""
REPLICAS: Final = (1, 2, 3)
"""Of the topics that are created during a run."""
FIRM: Final = Topic("firm", 2, {"min.insync.replicas": "2", "internal.segment.bytes": "5000"})
LOOSE: Final = Topic(
    "loose",
    1,
    {"unclean.leader.election.enable": "true", "internal.segment.bytes": "20000"},
    also_weak=True,
)
SHARED: Final = Topic(
    "shared", 2, {"min.insync.replicas": "2", "flush.messages": "1", "internal.segment.bytes": "20000"}
)
"""The topic that groups read; every append is synced before it is answered."""
SMALL: Final = {"min.insync.replicas": "2", "internal.segment.bytes": "5000"}
TRANSACTIONAL: Final = (replace(SOURCE, config=SMALL), replace(TARGET, config=SMALL))
KEYED: Final = Topic(
    "keyed",
    2,
    {
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
        "internal.segment.bytes": "1500",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "8000",
    },
    keyed=True,
    keys=12,
)
KEYED_IN_TIER: Final[Mapping[str, str]] = {
    TIERED: "true",
    "local.retention.bytes": "1",
    "file.delete.delay.ms": "1000",
}
"""Beside that, where the topic is tiered."""
PASSING_TOPIC: Final = "made-again"
"""Groups commit offsets of this topic, which is deleted and created again."""
PACE: Final = 0.3
BURST: Final = 4
OF_CLIENTS: Final = Habits(request_timeout=2.0, deliveries=(4.0, 60.0), batch_bytes=2000)
OF_SEEDS: Final[Mapping[str, str]] = {
    **SETTINGS,
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "log.cleaner.backoff.ms": "700",
    "log.cleaner.threads": "2",
    "log.retention.check.interval.ms": "2000",
    "remote.log.manager.task.interval.ms": "2000",
}
EXPIRY: Final = {"offsets.retention.check.interval.ms": "2000"}
STEPS: Final = 5
"""Number of node faults in one run; as many of links and of the tier are added."""
LONGEST_RUN: Final = 900.0
LONGEST_STEP: Final = 30.0
"""Virtual seconds of a whole run, and of each step."""


@dataclass(frozen=True)
class Report:
    """The result of one run. ``digest`` covers everything delivered and traced: equal for equal seeds."""

    digest: str
    violations: list[str]
    trace: list[str]
    history: list[Event]
    seconds: float
    """Virtual time."""
    found: Sequence[Violation] = ()
    """What ``violations`` describes."""


def has_groups(seed: int) -> bool:
    """Whether the run has members that commit and groups that are deleted, beside the one group of readers."""
    return seed // 2 % 2 == 0


def has_compaction(seed: int) -> bool:
    """Whether the run has a compacted topic, and small segments of the groups' offsets."""
    return seed // 8 % 2 == 1


def compacts_tier(seed: int) -> bool:
    """Whether the compacted topic is tiered, if the run has both: one seed of eight."""
    return seed // 16 % 2 == 0


def has_transactions(seed: int) -> bool:
    """Whether the run has clients with transactions: one seed of three."""
    return seed % 3 == 1


def run_seed(
    seed: int,
    *,
    steps: int = STEPS,
    faults: Collection[Kind] = KINDS,
    tier: bool | None = None,
    groups: bool | None = None,
    compaction: bool | None = None,
    transactions: bool | None = None,
    listener: Callable[[str], object] | None = None,
    recording: Recording | None = None,
) -> Report:
    """Run one seed to its end. ``tier``: whether some topics are tiered; None: in odd seeds. ``groups``: as returned by
    ``has_groups``; None: in two seeds of four, one of them with a tier. ``compaction``: as by ``has_compaction``.
    ``transactions``: as by ``has_transactions``.
    ``recording``: gets the history and the cluster's changes, also if the run ends with an error.

    Raises InvariantBroken, and any error that ends a node unexpectedly; violations found in the history are in the
    report.
    """
    has_tier = seed % 2 == 1 if tier is None else tier
    more_groups = has_groups(seed) if groups is None else groups
    compacts = has_compaction(seed) if compaction is None else compaction
    random = Randomness(seed)
    topics = _topics(random, tier=has_tier, compacts=compacts, in_tier=has_tier and compacts_tier(seed))
    load = load_of(topics, groups=more_groups, expires=more_groups and not random.below(3))
    if has_transactions(seed) if transactions is None else transactions:
        load = replace(load, transactional=TRANSACTIONAL)
    kinds = [kind for kind in faults if has_tier or stream_of(kind) != TIER]
    order = Order(seed, 0.0, kinds, pace=load.pace, faults=steps)
    brokers, trace = random.choice(BROKERS), Trace(listener)

    async def run(world: World) -> Report:
        async with asyncio.timeout(LONGEST_RUN + LONGEST_STEP * steps):
            return await _run(world, brokers, order, load, trace, recording or Recording())

    return simulate(run, seed=seed)


def _topics(random: Randomness, *, tier: bool, compacts: bool, in_tier: bool) -> list[Topic]:
    """Return the topics of a run, of which one at least is tiered with ``tier``."""
    topics = [FIRM, LOOSE, SHARED]
    if tier:
        sure = random.choice(topics)
        chosen = [one is sure or bool(random.below(2)) for one in topics]
        topics = [
            replace(one, config={**one.config, **tiered(random)}) if is_tiered else one
            for one, is_tiered in zip(topics, chosen, strict=True)
        ]
    if compacts:
        topics.append(replace(KEYED, config={**KEYED.config, **KEYED_IN_TIER}) if in_tier else KEYED)
    return topics


def load_of(topics: Sequence[Topic], *, groups: bool, expires: bool) -> Load:
    """Return the load of a run."""
    committed = [place for topic in topics if topic.name in (FIRM.name, SHARED.name) for place in topic.places]
    return Load(
        topics=topics,
        shared=next(topic for topic in topics if topic.name == SHARED.name),
        pace=PACE,
        burst=BURST,
        read_again=[place for topic in topics if topic.is_tiered and not topic.keyed for place in topic.places],
        made_replicas=REPLICAS,
        resting=6.0,
        groups=groups,
        committed=[*committed, (PASSING_TOPIC, 0)],
        expires=expires,
        patience=PATIENCE,
        moves=True,
        deletions=True,
    )


async def _run(world: World, brokers: int, order: Order, load: Load, trace: Trace, recording: Recording) -> Report:
    settings = {**OF_SEEDS, **(EXPIRY if load.expires else {})}
    spared = [topic.name for topic in load.topics if topic.keyed]
    place = SimulatedPlace(world, brokers, settings, habits=OF_CLIENTS, note=trace.note, spared=spared)
    journal = TracedJournal(place.runtime.clock, trace, recording)
    assert place.insight is not None
    place.insight.observe(Observer(journal.see, journal.now))
    await place.open()
    trace.note(f"{brokers} brokers are ready; tiered topics: {_names(load) or 'none'}")
    for topic in load.topics:
        if topic.config.get("retention.bytes", UNLIMITED) != UNLIMITED:
            for partition in topic.places:
                journal.note(AllowedDeletion(partition, None, "retention.bytes"))
    if load.expires:
        journal.note(Expiry(0.0))
    await work(order, place, load, journal)
    history = [*journal.events, *place.insight.check()]
    violations = [one for one in check(history) if one.fails]
    found = [str(violation) for violation in violations]
    for text in found:
        trace.note(f"violation: {text}")
    await place.stop()
    trace.note(f"{len(history)} client events; all nodes are shut down")
    digest = f"{world.digest()}-{trace.digest()}"
    return Report(digest, found, trace.lines, history, world.loop.time(), violations)


def _names(load: Load) -> str:
    return ", ".join(topic.name for topic in load.topics if topic.is_tiered)
