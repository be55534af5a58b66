"""Rules for transactions, which are checked together: one transaction writes to several partitions. Anomalies:

- **aborted read** (G1a): read_committed returned a record of a transaction that was aborted, or never committed.
- **torn transaction**: a part of a transaction's records is visible in the end, and a part is not.
- **lost committed write**: the commit was acknowledged, or the record was read, and in the end the record is not
  visible.
- **write of a fenced producer**: a record was sent, or a commit of records or offsets acknowledged, after a newer
  producer with the same transactional id had been initialized.
- **two producers with one epoch**: two producers have begun transactions with the same producer id and epoch.
- **read beyond the last stable offset**: read_committed returned a record at or above the first offset of a transaction
  that was still open.
- **hanging transaction**: in the end, the last stable offset of a partition is below its high watermark, or
  an offset of a group is still pending.
- **stuck transactional id**: after all faults had ended, no transaction of it could be committed.
- **cycle of reads** (G1c without write-write edges): transactions have read each other's records.
- **offsets without outputs**: a group's committed offset is above a record that no transaction has processed.
- **outputs without offsets**: a transaction's outputs are visible, and its offsets are not committed, or another
  transaction has processed the same records.
- **write cycle** (G0, and cycles that need a write-write edge): legal in Kafka, where transactions do not lock
  partitions. It is counted and does not fail a run.
- **effect of a delayed request**: one of these, of a transaction that a late request of an earlier one may
  have changed (``delayed_requests``). It is counted and does not fail a run either.

**phantom**, **duplicate**, **inconsistent offsets**, **poll skip** and **non-monotonic poll** are as for other
partitions (``checker``), among the visible records.

Only definite violations are reported. A commit of unknown outcome may have taken effect. ``Void`` ends the promises for
what was begun before it: that of a partition for its records, that of ``__transaction_state`` for transactions, and
that of ``__consumer_offsets`` for offsets. A coordinator that has lost states may give a producer an epoch that an
earlier one had: as in Kafka, leaders then take its batches for duplicates of the earlier ones, and add others to the
earlier transaction without asking the coordinator. Nothing is promised for transactions with such an epoch.
Memory: constant for each transaction, record and poll.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import inf
from typing import Final, TypeAlias

from milena.lab.histories.events import Event, Void
from milena.lab.histories.group_events import RequestOutcome
from milena.lab.histories.transactions.committed_reads import CommittedReads, OpenFrom
from milena.lab.histories.transactions.cycles import cycles
from milena.lab.histories.transactions.delayed_requests import exposed
from milena.lab.histories.transactions.events import (
    CommittedPoll,
    FinalCommitted,
    FinalOffset,
    InitTimeout,
    ProducerInit,
    TransactionalSend,
    TransactionBegin,
    TransactionEnd,
    TransactionOffsets,
)
from milena.lab.histories.transactions.exactly_once import Processed, disagreements
from milena.protocol.types import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition

Finding: TypeAlias = tuple[str, str, str]
FENCED: Final = "write of a fenced producer"
DELAYED: Final = "effect of a delayed request"
WHERE: Final = "transactions"
"""Where an anomaly is that belongs to no single partition, group or transactional id."""


class Transaction:
    """What is known of one transaction."""

    __slots__ = ("begun", "ends", "has_offsets", "identity", "name", "producer", "writes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.producer = ""
        self.identity = ""
        self.begun = inf
        self.has_offsets = False
        self.writes: list[TransactionalSend] = []
        self.ends: list[TransactionEnd] = []

    @property
    def may_commit(self) -> bool:
        """Whether a commit was requested and not rejected."""
        return any(end.commit and end.outcome is not RequestOutcome.FAILED for end in self.ends)

    @property
    def commit(self) -> TransactionEnd | None:
        """The acknowledged commit."""
        return next((end for end in self.ends if end.commit and end.outcome is RequestOutcome.OK), None)

    @property
    def has_begun_at_brokers(self) -> bool:
        """Whether a broker has accepted a part of the transaction. Otherwise a client may commit it without a request:
        kafka-python does so after all records of a transaction have expired."""
        return self.has_offsets or any(write.outcome is RequestOutcome.OK for write in self.writes)

    @property
    def open_until(self) -> float:
        """The time up to which the transaction was certainly open, once it had begun: that of its acknowledged commit.
        Any other one may have timed out before: with transaction version 2 a client may then abort it with success."""
        return min(end.begun for end in self.ends) if self.commit is not None else -inf


class TransactionRules:
    """Checks all transactions."""

    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self._sends: dict[tuple[TopicPartition, str], TransactionalSend] = {}
        self._partitions: dict[TopicPartition, CommittedReads] = {}
        self._inits: dict[str, list[ProducerInit]] = {}
        self._offsets: dict[tuple[str, TopicPartition], list[TransactionOffsets]] = {}
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._unstable: list[FinalOffset] = []
        self._reads: list[tuple[str, TopicPartition, str]] = []
        """(transaction, partition, value) of each record that a transaction has processed."""
        self._timeouts: list[InitTimeout] = []
        self._voids: list[Void] = []
        self._exposed: frozenset[str] = frozenset()
        """The transactions that a delayed request may have changed."""
        self._repeated: frozenset[str] = frozenset()
        """Identities that two producers had after states were lost."""

    def add(self, event: Event) -> None:
        """Add an event; those of other parts are ignored."""
        match event:
            case ProducerInit():
                self._inits.setdefault(event.transactional_id, []).append(event)
            case InitTimeout():
                self._timeouts.append(event)
            case TransactionBegin():
                one = self._transaction(event.transaction)
                one.producer, one.begun, one.identity = event.producer, event.at, event.identity
            case TransactionalSend():
                self._transaction(event.transaction).writes.append(event)
                self._sends[event.partition, event.value] = event
            case TransactionOffsets():
                self._transaction(event.transaction).has_offsets = True
                self._offsets.setdefault((event.group, event.partition), []).append(event)
            case TransactionEnd():
                self._transaction(event.transaction).ends.append(event)
            case CommittedPoll():
                self._partition(event.partition).polled(event)
                if event.transaction:
                    self._reads += [(event.transaction, event.partition, value) for _, value in event.records]
            case FinalCommitted():
                self._partition(event.partition).ended(event)
            case FinalOffset() if event.stable:
                self._committed[event.group, event.partition] = event.offset
            case FinalOffset():
                self._unstable.append(event)
            case Void():
                self._voids.append(event)

    def _transaction(self, name: str) -> Transaction:
        found = self._transactions.get(name)
        if found is None:
            found = self._transactions[name] = Transaction(name)
        return found

    def _partition(self, partition: TopicPartition) -> CommittedReads:
        return self._partitions.setdefault(partition, CommittedReads())

    def violations(self) -> Iterator[Finding]:
        """Yield the violations: name of the anomaly, where, description. Call once, after the last event."""
        for void in self._voids:
            if void.partition in self._partitions:
                self._partitions[void.partition].voided(void)
        inits = [init for inits in self._inits.values() for init in inits]
        shared = {init.producer for init in inits if not init.own_epochs}
        self._exposed = exposed(self._transactions.values(), shared)
        identities = self._shared_identities()
        self._repeated = frozenset(one for one, names in identities.items() if self._lost_states_repeat(names))
        for identity, names in identities.items():
            if identity not in self._repeated:
                yield "two producers with one epoch", WHERE, f"{' and '.join(names)} had producer id {identity}"
        yield from self._never_sent()
        yield from self._stuck()
        fenced = self._fenced_from()
        for one in self._transactions.values():
            if not self._is_void(one):
                for found in self._of_transaction(one, fenced.get(one.producer, inf)):
                    yield self._finding(one, *found)
        yield from self._gone()
        yield from self._of_partitions()
        yield from self._of_groups()
        yield from self._cycles()

    def _is_void(self, one: Transaction) -> bool:
        begun = min(one.begun, *(write.begun for write in one.writes)) if one.writes else one.begun
        return begun <= self._states_lost_at or one.identity in self._repeated

    def _shared_identities(self) -> dict[str, list[str]]:
        """Return the identities that several producers had, with the names of these."""
        producers: dict[str, dict[str, None]] = {}
        for one in self._transactions.values():
            if one.identity:
                producers.setdefault(one.identity, {})[one.producer] = None
        return {identity: list(names) for identity, names in producers.items() if len(names) > 1}

    def _lost_states_repeat(self, producers: Iterable[str]) -> bool:
        """Whether one of the producers was initialized before states were lost."""
        initialized = {init.producer: init.begun for inits in self._inits.values() for init in inits}
        return min(initialized.get(name, inf) for name in producers) <= self._states_lost_at

    def _offset_of(self, write: TransactionalSend) -> int:
        """The offset at which a record was seen, or acknowledged; -1 if neither."""
        return self._partition(write.partition).seen.get(write.value, write.offset)

    def _is_seen(self, write: TransactionalSend) -> bool:
        reads = self._partitions.get(write.partition)
        return reads is not None and write.value in reads.seen and not reads.is_void(write.begun)

    def _is_missing(self, write: TransactionalSend) -> bool:
        reads = self._partitions.get(write.partition)
        if reads is None or write.outcome is not RequestOutcome.OK or reads.is_void(write.begun):
            return False
        return reads.is_missing(write.value, self._offset_of(write))

    def _never_sent(self) -> Iterator[Finding]:
        for partition, reads in self._partitions.items():
            for value, offset in reads.seen.items():
                if (partition, value) not in self._sends:
                    yield "phantom", _name(partition), f"{value} at {offset} was never sent"

    def _stuck(self) -> Iterator[Finding]:
        for one in () if self._has_lost_states else self._timeouts:
            text = f"{one.transactional_id} committed nothing from {one.begun:.3f} to {one.ended:.3f}"
            yield "stuck transactional id", WHERE, text

    @property
    def _has_lost_states(self) -> bool:
        """Whether states of transactions may be lost: then their markers may never be written, as in Kafka."""
        return self._states_lost_at > -inf

    @property
    def _states_lost_at(self) -> float:
        """The last time at which states of transactions may have been lost; ``-inf`` if never."""
        return max((void.at for void in self._voids if void.partition[0] == TRANSACTION_TOPIC), default=-inf)

    def _fenced_from(self) -> dict[str, float]:
        """Return when each producer was fenced: a newer one with its transactional id had been initialized."""
        found: dict[str, float] = {}
        for inits in self._inits.values():
            earliest = inf
            newer = sorted(inits, key=lambda init: init.begun, reverse=True)
            at = 0
            for init in sorted(inits, key=lambda init: init.ended, reverse=True):
                while at < len(newer) and newer[at].begun > init.ended:
                    earliest = min(earliest, newer[at].ended)
                    at += 1
                found[init.producer] = earliest
        return found

    # -- one transaction

    def _finding(self, one: Transaction, anomaly: str, where: str, text: str) -> Finding:
        """Return the finding. A delayed request can cause it, except for requests of a fenced producer."""
        if one.name in self._exposed and anomaly != FENCED:
            return DELAYED, where, f"{anomaly}: {text}"
        return anomaly, where, text

    def _of_transaction(self, one: Transaction, fenced: float) -> Iterator[Finding]:
        seen = [write for write in one.writes if self._is_seen(write)]
        missing = [write for write in one.writes if self._is_missing(write)] if one.may_commit else []
        commit = one.commit
        if commit is not None and commit.begun > fenced and (seen or one.has_begun_at_brokers):
            text = f"{one.name} was committed at {commit.begun:.3f}; its producer was fenced at {fenced:.3f}"
            yield FENCED, WHERE, text
        for write in seen:
            where, at = _name(write.partition), self._offset_of(write)
            if write.begun > fenced:
                text = f"{write.value} at {at} was sent at {write.begun:.3f}; its producer was fenced at {fenced:.3f}"
                yield FENCED, where, text
            elif not one.may_commit:
                yield "aborted read", where, f"{write.value} at {at}: {one.name} was not committed"
        for write in missing if commit is not None else ():
            text = f"{one.name} was committed, and its record {write.value} is not visible"
            yield "lost committed write", _name(write.partition), text
        if seen and missing:
            text = f"{one.name}: {_at(seen[0])} is visible, and {_at(missing[0])} is not"
            yield "torn transaction", WHERE, text

    def _gone(self) -> Iterator[Finding]:
        for partition, reads in self._partitions.items():
            for value, offset in reads.gone():
                write = self._sends.get((partition, value))
                if write is None or reads.is_void(write.begun):
                    continue
                one = self._transactions[write.transaction]
                unjudged = one.commit is None or write.outcome is not RequestOutcome.OK
                if unjudged and one.may_commit and not self._is_void(one):
                    text = f"{value} was read at {offset} and is not visible"
                    yield self._finding(one, "lost committed write", _name(partition), text)

    # -- partitions

    def _of_partitions(self) -> Iterator[Finding]:
        opens: dict[TopicPartition, list[OpenFrom]] = {}
        for write in self._sends.values():
            one, offset = self._transactions[write.transaction], self._offset_of(write)
            reads = self._partition(write.partition)
            unjudged = one.name in self._exposed or self._is_void(one) or reads.is_void(write.begun)
            if offset >= 0 and one.open_until > -inf and not unjudged:
                opens.setdefault(write.partition, []).append(OpenFrom(offset, one.open_until, one.name))
        for partition, reads in self._partitions.items():
            for name, text in reads.violations():
                if name != "hanging transaction" or not self._has_lost_states:
                    yield name, _name(partition), text
            for name, text in reads.beyond_last_stable(sorted(opens.get(partition, ()))):
                yield name, _name(partition), text

    # -- offsets and outputs

    def _of_groups(self) -> Iterator[Finding]:
        if any(void.partition[0] == OFFSETS_TOPIC for void in self._voids):
            return
        for one in () if self._has_lost_states else self._unstable:
            yield "hanging transaction", one.group, f"an offset of {_name(one.partition)} is still pending"
        for (group, partition), committed in self._committed.items():
            reads = self._partitions.get(partition)
            if reads is None or reads.final is None or any(void.partition == partition for void in self._voids):
                continue
            processed = [
                Processed(one.first, one.next, one.transaction, self._took_effect(one.transaction))
                for one in self._offsets.get((group, partition), ())
            ]
            for name, text in disagreements(processed, committed, reads.visible):
                yield name, group, f"{_name(partition)}: {text}"

    def _took_effect(self, name: str) -> bool | None:
        one = self._transactions[name]
        if self._is_void(one) or name in self._exposed:
            return None
        if one.commit is not None or any(map(self._is_seen, one.writes)):
            return True
        if not one.may_commit or any(map(self._is_missing, one.writes)):
            return False
        return None

    # -- cycles

    def _cycles(self) -> Iterator[Finding]:
        reads: dict[str, set[str]] = {}
        for reader, partition, value in self._reads:
            write = self._sends.get((partition, value))
            if write is not None and write.transaction != reader:
                reads.setdefault(write.transaction, set()).add(reader)
        for cycle in cycles(reads):
            text = f"{' and '.join(cycle[:5])} have read each other's records ({len(cycle)} transactions)"
            yield "cycle of reads", WHERE, text
        writes = self._successors()
        of_writes = sum(map(len, cycles(writes)))
        both = {name: reads.get(name, set()) | writes.get(name, set()) for name in reads.keys() | writes.keys()}
        of_both = sum(map(len, cycles(both)))
        if of_both:
            text = f"{of_writes} transactions are in cycles of writes, {of_both} in cycles of writes and reads"
            yield "write cycle", WHERE, text

    def _successors(self) -> dict[str, set[str]]:
        """Return the write-write edges: whose records directly follow those of a transaction in a partition."""
        logs: dict[TopicPartition, list[tuple[int, str]]] = {}
        for write in self._sends.values():
            if self._is_seen(write):
                logs.setdefault(write.partition, []).append((self._offset_of(write), write.transaction))
        edges: dict[str, set[str]] = {}
        for log in logs.values():
            names = [name for _, name in sorted(log)]
            for name, following in pairwise(names):
                if name != following:
                    edges.setdefault(name, set()).add(following)
        return edges


def _name(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"


def _at(write: TransactionalSend) -> str:
    return f"{write.value} in {_name(write.partition)}"
