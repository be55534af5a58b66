"""The checker of histories. It finds these anomalies, named as in Jepsen's workload for Kafka:

- **lost write**: a record was acknowledged or read, its promises hold, and it is not in the final log. Without a final
  log: a higher offset was read, and the record never was. Also, although its promises are void, if a record that was
  acknowledged after it and before the fault is still there: logs lose their ends, never their middles.
- **lost in a lane**: a record of an idempotent lane is stored, but not one with unknown outcome that was sent before
  it.
- **duplicate**: one record of an idempotent producer is at two offsets.
- **inconsistent offsets**: two records were acknowledged, read or stored at the same offset of a partition.
- **aborted read** (G1a): a record was read, or is in the log, that had been rejected for good. (It is not an anomaly if
  it was read while the outcome was unknown, was lost since its promises are void, and was then rejected.)
- **phantom**: a record was read, or is in the log, that nobody sent.
- **non-monotonic send**: of two records of a lane, the later one was acknowledged, or in an idempotent lane stored, at
  the lower offset; internal if both were in flight at once, external if the outcome of the first was known before the
  second was sent. Also without lanes: a record is below one that was acknowledged before it was sent.
- **non-monotonic poll**: a reader went back, within one poll (internal) or between two of a session (external).
- **poll skip**: a reader skipped an offset that contains a record, likewise internal or external. Offsets at which
  nobody ever saw a record do not count: transaction markers leave such gaps.
- **unseen**: an acknowledged record is in the log of a partition that was read to its end, and no reader got it. (If
  its promises are void, readers may have been at a higher offset of another log.)
- **log start**: a log begins after the offset that an ``AllowedDeletion`` permits.
- **epoch order**: leader epochs decrease along a log. **gap**: offsets are missing in a log that must be dense.
- **topic**: a topic is not as it was acknowledged, or exists although nobody created it.

The anomalies of consumer groups are in ``groups``, those of compacted topics in ``keyed``.

Promises. A record that was acknowledged with acks=all, or read by anybody (readers see nothing above the high
watermark), stays, at its offset; acks=1 promises nothing before somebody has read the record. ``Void`` ends the
promises for records sent to a partition before it, except those below the offset that it names. A record without
promises may disappear, and another may take its offset.

Holes. Objects of a tier may be lost for good. Reads of records that only they contained may be rejected with an error:
such a record is missing in a final log within its ``holes``, or was not seen by a reader whose read was rejected
(``Hole``). It must never be skipped without an error or replaced by another record, and no other record may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from milena.lab.histories.events import (
    AllowedDeletion,
    Event,
    FinalLog,
    FinalTopic,
    Hole,
    Invoke,
    Poll,
    Send,
    TopicChange,
    TopicPartition,
    Void,
)
from milena.lab.histories.groups import GroupRules
from milena.lab.histories.keyed import FullRead, KeyedRules, KeyedWrite
from milena.lab.histories.metadata import MetadataRules
from milena.lab.histories.observed import Observed


class Anomaly(Enum):
    LOST_WRITE = "lost write"
    LOST_IN_LANE = "lost in a lane"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    ABORTED_READ = "aborted read"
    PHANTOM = "phantom"
    INTERNAL_NONMONOTONIC_SEND = "internal non-monotonic send"
    NONMONOTONIC_SEND = "non-monotonic send"
    INTERNAL_NONMONOTONIC_POLL = "internal non-monotonic poll"
    NONMONOTONIC_POLL = "non-monotonic poll"
    INTERNAL_POLL_SKIP = "internal poll skip"
    POLL_SKIP = "poll skip"
    UNSEEN = "unseen"
    EPOCH_ORDER = "epoch order"
    GAP = "gap"
    LOG_START = "log start"
    TOPIC = "topic"
    LOST_VALUE = "lost value"
    OLDER_VALUE = "older value"
    DELETED_KEY_BACK = "deleted key is back"
    VALUE_FROM_NOWHERE = "value from nowhere"
    LOST_COMMIT = "lost commit"
    COMMIT_BACK = "commit went back"
    OFFSET_FROM_NOWHERE = "group offset from nowhere"
    DELETED_OFFSET_BACK = "deleted offset is back"
    DELETED_GROUP_BACK = "deleted group is back"
    OFFSET_ORDER = "group offsets out of order"
    TWO_OWNERS = "partition with two owners"
    OLD_GENERATION = "commit of an old generation"
    GENERATION_BACK = "generation goes back"
    GENERATION_TWICE = "generation used twice"
    NEVER_SENT = "assignment that nobody sent"
    TWO_IDS = "two ids of one instance"
    NEVER_ANSWERED = "never answered"


@dataclass(frozen=True, slots=True)
class Violation:
    """One anomaly; ``where`` is a partition, a topic or a group."""

    anomaly: Anomaly
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.anomaly.value}: {self.where}: {self.text}"


class Checker:
    """Takes a history event by event; ``finish`` returns the verdict. Each event of a log takes constant time."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, Observed] = {}
        self._keyed: dict[TopicPartition, KeyedRules] = {}
        self._metadata = MetadataRules()
        self._groups = GroupRules()

    def add(self, event: Event) -> None:
        match event:
            case Invoke():
                """Its end is what counts (``lab.chaos.journal.complete`` adds those that are missing)."""
            case Send():
                self._log(event.partition).sent(event)
            case Poll():
                self._log(event.partition).polled(event)
            case Hole():
                self._log(event.partition).passed(event)
            case KeyedWrite():
                self._keys(event.partition).wrote(event)
            case FullRead():
                self._keys(event.partition).read(event)
            case Void():
                self._log(event.partition).voided(event)
                self._keys(event.partition).voided(event.at, event.kept)
                self._groups.voided(event)
            case AllowedDeletion():
                self._log(event.partition).deleted(event)
            case FinalLog():
                self._log(event.partition).ended(event)
            case TopicChange():
                self._metadata.changed(event)
                self._groups.topic_changed(event)
            case FinalTopic():
                self._metadata.ended(event)
            case _:
                self._groups.add(event)

    def finish(self) -> list[Violation]:
        """All violations, partition by partition."""
        found = [
            Violation(Anomaly(name), f"{topic}-{number}", text)
            for (topic, number), log in sorted(self._logs.items())
            for name, text in log.verdict()
        ]
        found += [
            Violation(Anomaly(name), f"{topic}-{number}", text)
            for (topic, number), keys in sorted(self._keyed.items())
            for name, text in keys.verdict()
        ]
        others = (*self._metadata.verdict(), *self._groups.verdict())
        return found + [Violation(Anomaly(name), where, text) for name, where, text in others]

    def _log(self, partition: TopicPartition) -> Observed:
        found = self._logs.get(partition)
        if found is None:
            found = self._logs[partition] = Observed()
        return found

    def _keys(self, partition: TopicPartition) -> KeyedRules:
        return self._keyed.setdefault(partition, KeyedRules())


def check(events: Iterable[Event]) -> list[Violation]:
    """The violations in a whole history: empty if there are none."""
    checker = Checker()
    for event in events:
        checker.add(event)
    return checker.finish()


def counts(violations: Iterable[Violation]) -> Mapping[Anomaly, int]:
    """The number of violations of each anomaly."""
    found: dict[Anomaly, int] = {}
    for violation in violations:
        found[violation.anomaly] = found.get(violation.anomaly, 0) + 1
    return found
