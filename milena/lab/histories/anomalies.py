"""The names of anomalies, and the checker's description of one (rules: ``checker``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Anomaly(Enum):
    """The anomalies; the values are their names in reports."""

    LOST_WRITE = "lost write"
    LOST_IN_LANE = "lost in a lane"
    DUPLICATE = "duplicate"
    SENT_AGAIN = "sent again"
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
    NEVER_SENT = "assignment that was never sent"
    TWO_IDS = "two ids of one instance"
    NEVER_ANSWERED = "never answered"
    NOT_RECOVERED = "no recovery"
    NO_WRITES = "no progress of writes"
    NO_READS = "no progress of reads"
    NO_COMMITS = "no progress of commits"
    TORN_TRANSACTION = "torn transaction"
    LOST_COMMITTED_WRITE = "lost committed write"
    FENCED_WRITE = "write of a fenced producer"
    SHARED_EPOCH = "two producers with one epoch"
    BEYOND_LAST_STABLE = "read beyond the last stable offset"
    HANGING_TRANSACTION = "hanging transaction"
    STUCK_ID = "stuck transactional id"
    READ_CYCLE = "cycle of reads"
    WITHOUT_OUTPUTS = "offsets without outputs"
    WITHOUT_OFFSETS = "outputs without offsets"
    WRITE_CYCLE = "write cycle"
    DELAYED_REQUEST = "effect of a delayed request"


LEGAL = frozenset({Anomaly.SENT_AGAIN, Anomaly.WRITE_CYCLE, Anomaly.DELAYED_REQUEST})
"""They do not fail a run: a client sent records again under a new epoch, transactions that write to the same
partitions, and delayed requests of clients whose transactions share an epoch. Kafka permits all of them."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One anomaly; ``where`` is a partition, a topic, a group or ``transactions``."""

    anomaly: Anomaly
    where: str
    text: str

    @property
    def fails(self) -> bool:
        """Whether it fails a run."""
        return self.anomaly not in LEGAL

    def __str__(self) -> str:
        return f"{self.anomaly.value}: {self.where}: {self.text}"


def counts(violations: Iterable[Violation]) -> Mapping[Anomaly, int]:
    """Return the number of violations of each anomaly."""
    numbers: dict[Anomaly, int] = {}
    for violation in violations:
        numbers[violation.anomaly] = numbers.get(violation.anomaly, 0) + 1
    return numbers
