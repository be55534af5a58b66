"""Checks one partition: its log, its keys, and its progress."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from milena.lab.histories.copies import Copies
from milena.lab.histories.events import (
    ACKS_ALL,
    AllowedDeletion,
    Event,
    FinalLog,
    Hole,
    Poll,
    RequestOutcome,
    Send,
    Void,
)
from milena.lab.histories.faults import Fault
from milena.lab.histories.keyed import FullRead, KeyedRules, KeyedWrite
from milena.lab.histories.machine import MachineStall, MachineStalls
from milena.lab.histories.observed import Observed
from milena.lab.histories.progress import (
    AttemptSpans,
    Due,
    LackOfProgress,
    ReaderWaits,
    Stalls,
    Unjudged,
    lacks_of_progress,
)
from milena.protocol.types import TopicPartition


class PartitionRules:
    """Checks the events of one partition. ``promised``: acknowledged writes must stay even if promises are void, also
    those with acks=1."""

    def __init__(self, partition: TopicPartition, patience: float, *, promised: bool = False) -> None:
        self.partition = partition
        self.writes = Stalls()
        self._where = f"{partition[0]}-{partition[1]}"
        self._patience = patience
        self._promised = promised
        self._log = Observed(promised=promised)
        self._keys = KeyedRules()
        self._reads = ReaderWaits()
        self._faults: list[Fault] = []
        self._machine = MachineStalls()
        self.not_judged: list[LackOfProgress] = []
        """Lacks of progress that ``violations`` has not reported because the machine stalled."""

    def add(self, event: Event) -> None:
        """Add an event; those of other parts are ignored."""
        match event:
            case Send():
                self._log.sent(event)
                if event.acks == ACKS_ALL:
                    self._tried(event)
            case Poll():
                self._log.polled(event)
                self._reads.polled(event.at, event.session, max((offset for offset, _ in event.records), default=-1))
            case KeyedWrite():
                self._keys.wrote(event)
                self._tried(event)
            case FullRead():
                self._keys.read(event)
            case Hole():
                self._log.add_hole(event)
            case Void():
                if event.partition == self.partition and not self._promised:
                    self._log.voided(event)
                    self._keys.voided(event.at, event.kept)
            case AllowedDeletion():
                self._log.deleted(event)
            case FinalLog():
                self._log.ended(event)
            case Copies():
                self._log.copied(event)
                self._keys.copied(event)
            case Fault():
                self._faults.append(event)
            case MachineStall():
                self._machine.add(event)

    def _tried(self, write: Send | KeyedWrite) -> None:
        done = write.outcome is RequestOutcome.OK
        self.writes.tried(write.begun, write.ended, done=done)
        if done and write.offset >= 0:
            self._reads.acknowledged(write.ended, write.offset)

    def violations(self) -> Iterator[tuple[str, str, str]]:
        """Yield the violations: name of the anomaly, partition, description. Call once, after the last event."""
        for name, text in (*self._log.violations(), *self._keys.violations()):
            yield name, self._where, text
        for lack in self._progress():
            if lack.stalled:
                self.not_judged.append(lack)
            else:
                yield lack.anomaly, self._where, lack.text

    def unjudged(self) -> Iterator[Unjudged]:
        """Yield the faults during or after which no client tried to write for long enough to check progress."""
        attempts = AttemptSpans(self.writes.spans())
        for fault in self._faults:
            begun = fault.begun + fault.within
            lasted = fault.mended - begun if self.partition in fault.writable else 0.0
            left = attempts.seconds_from_first(begun, fault.mended) if self._patience < lasted < inf else inf
            is_late = self.partition in fault.late and not self._was_attempted(fault, attempts)
            if is_late or left <= self._patience:
                yield Unjudged(fault, is_late or lasted - left >= self._patience)

    def _was_attempted(self, fault: Fault, attempts: AttemptSpans) -> bool:
        """Whether clients tried to write for long enough in the time of recovery after the fault."""
        seconds = attempts.seconds_from_first(fault.mended, fault.mended + fault.recovers)
        return 0 < seconds >= min(self._patience, fault.recovers)

    def doomed(self) -> Iterator[str]:
        """Yield the values of acknowledged writes that must be lost (``Fault.doomed``)."""
        for fault in self._faults:
            if self.partition in fault.doomed:
                yield from self._log.acknowledged_within(fault.doomed_from, fault.doomed_until)

    def _progress(self) -> Iterator[LackOfProgress]:
        if not self._faults:
            return
        attempts, machine, patience = AttemptSpans(self.writes.spans()), self._machine, self._patience
        for fault in self._faults:
            if self.partition in fault.late and self._was_attempted(fault, attempts):
                text = f"no write was acknowledged in the {fault.recovers:.1f} s after {fault.description}"
                yield LackOfProgress(
                    "no recovery", text, machine.seconds_within(fault.begun, fault.mended + fault.recovers)
                )
        due = Due(self._faults, lambda fault: self.partition in fault.writable, machine)
        writes = self.writes.longer_than(patience)
        yield from lacks_of_progress("no progress of writes", writes, due, patience, "no write was acknowledged")
        due = Due(self._faults, lambda fault: self.partition in fault.writable and not fault.stale, machine)
        reads = self._reads.longer_than(patience)
        yield from lacks_of_progress("no progress of reads", reads, due, patience, "nothing was read")
