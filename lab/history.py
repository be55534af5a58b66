"""What clients did and what became of it, and the rules that both must keep: a pure checker.

A partition of these histories has one replica and one writer, whose values are all different. Then, whatever was
killed, cut off or out of order:

- what is in a log was sent, at most once, in the order of sending, at offsets without gaps, in growing leader epochs;
- what was refused for good is not in the log; what has no known outcome may be, and may come late;
- what was acknowledged is in the log at its offset. A broker that lost power after it was sent may have lost it, unless
  each append was synced; but then it lost all that followed it up to then too;
- what a reader saw at an offset is there, under the same exception.

Topics, once acknowledged, survive everything; so do commits of groups, but for power losses of brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Write:
    """A partition's record of this number: when the producer got it, when its outcome was known (virtual seconds)."""

    partition: TopicPartition
    number: int
    value: bytes
    sent_at: float
    ended_at: float
    outcome: Outcome
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a reader got it."""

    partition: TopicPartition
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Stored:
    """A record as the log holds it at the end."""

    offset: int
    value: bytes
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic was created, with a configuration, or deleted."""

    name: str
    exists: bool
    outcome: Outcome
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's offset, acknowledged at ``at``."""

    partition: TopicPartition
    offset: int
    at: float


@dataclass
class History:
    """Everything that was noted during one run."""

    writes: list[Write] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    topics: list[TopicChange] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    power_losses: list[tuple[float, int]] = field(default_factory=list)
    """Virtual time and broker."""


@dataclass(frozen=True)
class Ending:
    """What is found when everything is mended."""

    logs: Mapping[TopicPartition, Sequence[Stored]]
    hosts: Mapping[TopicPartition, int]
    """The broker that holds a partition."""
    synced: frozenset[str]
    """Topics whose every append is synced before it is acknowledged."""
    topics: Mapping[str, Mapping[str, str]]
    """Those that exist, with what was set for them."""
    commits: Mapping[TopicPartition, int]


def violations(history: History, ending: Ending) -> list[str]:
    """Every rule that was broken, as a sentence."""
    found: list[str] = []
    for partition, log in ending.logs.items():
        writes = sorted((one for one in history.writes if one.partition == partition), key=lambda one: one.number)
        seen = [one for one in history.seen if one.partition == partition]
        name = f"{partition[0]}-{partition[1]}"
        losses = _losses(history, ending, partition)
        found += [f"{name}: {text}" for text in _of_log(log, writes)]
        found += [f"{name}: {text}" for text in _of_acknowledged(log, writes, losses)]
        found += [f"{name}: {text}" for text in _of_readers(log, seen, writes, losses)]
    return found + list(_of_topics(history.topics, ending.topics)) + list(_of_commits(history, ending.commits))


def _losses(history: History, ending: Ending, partition: TopicPartition) -> list[float]:
    """When this partition may have lost what was not synced."""
    if partition[0] in ending.synced:
        return []
    return [at for at, broker in history.power_losses if broker == ending.hosts[partition]]


def _of_log(log: Sequence[Stored], writes: Sequence[Write]) -> Iterator[str]:
    sent = {write.value: write for write in writes}
    previous: Stored | None = None
    present: set[bytes] = set()
    last = -1
    for record in log:
        if previous is not None and record.offset != previous.offset + 1:
            yield f"offset {record.offset} follows {previous.offset}"
        if previous is not None and record.leader_epoch < previous.leader_epoch:
            yield f"leader epoch {record.leader_epoch} at {record.offset} follows {previous.leader_epoch}"
        previous = record
        write = sent.get(record.value)
        if write is None:
            yield f"{record.value!r} at {record.offset} was never sent"
            continue
        if record.value in present:
            yield f"{record.value!r} is at {record.offset} again"
        present.add(record.value)
        if write.outcome is Outcome.FAILED:
            yield f"{record.value!r} at {record.offset} had been refused"
        elif write.outcome is Outcome.OK:
            if write.number < last:
                yield f"{record.value!r} at {record.offset} is out of order"
            last = max(last, write.number)


def _of_acknowledged(log: Sequence[Stored], writes: Sequence[Write], losses: Sequence[float]) -> Iterator[str]:
    stored = {record.offset: record.value for record in log}
    missing: Write | None = None
    for write in writes:
        if write.outcome is not Outcome.OK:
            continue
        if stored.get(write.offset) == write.value:
            if missing is not None and not any(missing.sent_at <= at <= write.ended_at for at in losses):
                yield f"{missing.value!r} is lost, but {write.value!r}, which followed it, is not"
            continue
        missing = write
        if not any(at >= write.sent_at for at in losses):
            yield f"{write.value!r} was acknowledged at {write.offset}, where {stored.get(write.offset)!r} is"


def _of_readers(
    log: Sequence[Stored], seen: Sequence[Seen], writes: Sequence[Write], losses: Sequence[float]
) -> Iterator[str]:
    stored = {record.offset: record.value for record in log}
    sent_at = {write.value: write.sent_at for write in writes}
    for one in seen:
        # It may have travelled for long, so that the time of reading says little.
        lost = any(at >= sent_at.get(one.value, 0.0) for at in losses)
        if stored.get(one.offset) != one.value and not lost:
            yield f"{one.value!r} was read at {one.offset}, where {stored.get(one.offset)!r} is"


def _of_topics(changes: Sequence[TopicChange], existing: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    last: dict[str, TopicChange] = {}
    for change in changes:
        if change.outcome is not Outcome.FAILED:
            last[change.name] = change
    for name, change in last.items():
        config = existing.get(name)
        if change.outcome is Outcome.UNKNOWN:
            continue
        if change.exists != (config is not None):
            yield f"topic {name}: it should {'' if change.exists else 'not '}exist"
        elif config is not None and dict(config) != dict(change.config):
            yield f"topic {name} has {dict(config)}, it was created with {dict(change.config)}"


def _of_commits(history: History, committed: Mapping[TopicPartition, int]) -> Iterator[str]:
    last_loss = max((at for at, _ in history.power_losses), default=-1.0)
    for commit in history.commits:
        if commit.at > last_loss and committed.get(commit.partition, -1) < commit.offset:
            topic, number = commit.partition
            found = committed.get(commit.partition)
            yield f"{topic}-{number}: {commit.offset} was committed for the group, which has {found}"
