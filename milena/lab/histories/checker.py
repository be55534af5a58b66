"""The checker of histories in memory (``files`` checks histories on disk). It finds these anomalies, named as in
Jepsen's workload for Kafka:

- **lost write**: a record was acknowledged or read, its promises hold, and it is not in the final log. Without a final
  log: a higher offset was read, and the record was never read. A record with void promises is also lost if a record
  that was acknowledged after it and before the fault is still in the log: faults remove only the ends of logs.
- **lost in a lane**: a record of an idempotent lane is stored, but an earlier one of the lane, with unknown outcome, is
  not.
- **duplicate**: one record of an idempotent producer is at two offsets, and DeleteRecords has not deleted the first.
- **sent again**: the same, but its client sent it again under a new producer epoch, which no broker can detect, and the
  library is known to do so with Apache Kafka, too (``copies``). It does not fail a run.
- **inconsistent offsets**: two records were acknowledged, read or stored at the same offset of a partition.
- **aborted read** (G1a): a record was read, or is in the log, although it had been rejected with a final error. (It is
  not an anomaly if the record was read while its outcome was unknown, was lost because its promises are void, and was
  then rejected.)
- **phantom**: a record was read, or is in the log, that no client sent.
- **non-monotonic send**: of two records of a lane, the later one was acknowledged, or in an idempotent lane stored, at
  the lower offset; internal if both were in flight at once, external if the outcome of the first was known before the
  second was sent. Also without lanes: a record is below one that was acknowledged before it was sent. (If the later
  record was acknowledged with acks=1, and lost, its offset is that of another log.)
- **non-monotonic poll**: a reader went back, within one poll (internal) or between two of a session (external).
- **poll skip**: a reader skipped an offset that contains a record, likewise internal or external. Offsets at which
  no client ever saw a record do not count: transaction markers leave such gaps. Also external: the readers of one
  series (a group, or a reader and its successors) continued after a record that none of them read, or ended before it.
  (A reader may start, or be reset, where DeleteRecords asked a log to start: only its leader may have deleted records.)
- **unseen**: an acknowledged record is in the log of a partition that was read to its end, and no reader has read it.
  (If its promises are void, or DeleteRecords was to delete it, readers may have been further on in another log.)
- **log start**: a log begins after the offset that an ``AllowedDeletion`` permits.
- **epoch order**: leader epochs decrease along a log. **gap**: offsets are missing in a log that must be dense.
- **topic**: a topic is not as it was acknowledged, or exists although no client created it.

The anomalies of consumer groups are described in ``groups``, those of compacted topics in ``keyed``, those of
transactions in ``transactions.rules``, and lacks of progress in ``progress``.

Promises. A record that was acknowledged with acks=all, or read by a consumer (consumers do not see records above the
high watermark), stays at its offset; an acknowledgement with acks=1 is no promise until a consumer has read the record.
``Void`` ends the promises for records sent to a partition before it, except those below the offset that it names. A
record without promises may disappear, and another may take its offset.

Holes. Objects of a tier may be lost. Reads of records that only lost objects contained may be rejected with an error:
such a record is missing in a final log within its ``holes``, or was not seen by a reader whose read was rejected
(``Hole``). It must never be skipped without an error or replaced by another record, and no other record may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from milena.lab.histories.anomalies import Anomaly as Anomaly
from milena.lab.histories.anomalies import Violation as Violation
from milena.lab.histories.anomalies import counts as counts
from milena.lab.histories.events import Event
from milena.lab.histories.parts import DEFAULT, Demands, Judge, Part, is_shared, part_of


class Checker:
    """Checks a history, which is added event by event. Each event of a log takes constant time."""

    def __init__(self, demands: Demands = DEFAULT) -> None:
        self._demands = demands
        self._parts: dict[Part, Judge] = {}
        self._shared: list[tuple[Part | None, Event]] = []

    def add(self, event: Event) -> None:
        """Add an event, in the order of the history."""
        part = part_of(event)
        if part is not None:
            judge = self._parts.get(part)
            if judge is None:
                judge = self._parts[part] = Judge(part, self._demands)
            judge.add(event)
        if is_shared(event):
            self._shared.append((part, event))

    def finish(self) -> list[Violation]:
        """Return all violations, part by part. Call once, after the last event."""
        violations: list[Violation] = []
        for part, judge in sorted(self._parts.items(), key=lambda item: item[0].sort_key):
            for own, event in self._shared:
                if own != part:
                    judge.add(event)
            violations += judge.finish()
        return violations


def check(events: Iterable[Event], demands: Demands = DEFAULT) -> list[Violation]:
    """Return the violations in a whole history."""
    checker = Checker(demands)
    for event in events:
        checker.add(event)
    return checker.finish()
