"""The state of a partition's producers, like Kafka's ``ProducerStateManager`` (docs/kafka-semantics.md: Idempotence,
KIP-98).

It has for each producer id its epoch, its last five batches (to detect duplicates), and the first offset of an open
transaction. The open transactions determine the first unstable offset. It does no I/O: the state is stored as a
snapshot (``storage.files.producer_snapshot``), and later batches are replayed.

Before the first batch of a transaction is appended, the leader asks the transaction coordinator whether the transaction
is open (KIP-890). In the meantime the state has a ``Verification`` for the producer. The append presents its guard, and
is refused if a marker or another first batch has come in between. Verifications are neither stored nor replicated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import EPOCH_BUMP_VERSION
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.batch import NO_SEQUENCE
from milena.protocol.types import LAST_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, Offset, ProducerEpoch, ProducerId

BATCHES_KEPT: Final = 5
_SEQUENCES: Final = 1 << 31


class VerificationGuard:
    """Shows that a transaction was verified after the last marker of its producer. Guards are compared by identity."""

    __slots__ = ()


NO_GUARD: Final = VerificationGuard()
"""The guard of appends without a verification: there was no need for one, or it is disabled."""


class Verification:
    """The state between the start of a verification and the append, like Kafka's ``VerificationStateEntry``."""

    __slots__ = ("began_ms", "bumps_epoch", "epoch", "guard", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, began_ms: int, *, bumps_epoch: bool) -> None:
        """``bumps_epoch``: the client uses transaction.version 2, where each transaction has an epoch of its own."""
        self.guard: Final = VerificationGuard()
        self.began_ms: Final = began_ms
        self.bumps_epoch: Final = bumps_epoch
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The first sequence of the earliest batch that waits: no later batch may be appended before it."""

    def include(self, epoch: int, sequence: int) -> None:
        """A batch of the producer begins its verification."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class OpenTransaction(NamedTuple):
    """The oldest open transaction of a partition. ``timestamp``: that of its producer's last batch, in ms."""

    producer_id: ProducerId
    first_offset: Offset
    timestamp: int


class ProducerBatch(Protocol):
    """The part of a batch's header that concerns producers."""

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset_delta(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...

    @property
    def base_sequence(self) -> int: ...

    @property
    def is_transactional(self) -> bool: ...


class EndMarker(NamedTuple):
    """The record that ends a transaction in a partition."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    offset: Offset
    timestamp: int
    coordinator_epoch: int
    aborted: bool


class CompletedTxn(NamedTuple):
    """A transaction that was ended by a marker at ``last_offset``."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    aborted: bool


class KeptBatch(NamedTuple):
    """One appended batch of a producer."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def first_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


class ProducerEntry:
    """One producer. ``txn_first_offset`` is None outside of a transaction."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "txn_first_offset")

    def __init__(
        self,
        epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        txn_first_offset: Offset | None = None,
        batches: Iterable[KeptBatch] = (),
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.txn_first_offset = txn_first_offset
        self.batches = list(batches)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset of the last data batch; -1 for none."""
        return self.batches[-1].last_offset if self.batches else -1

    def duplicate_of(self, batch: ProducerBatch) -> KeptBatch | None:
        """Return the kept batch with the same epoch, first sequence and last sequence, None if there is none."""
        if batch.producer_epoch != self.epoch:
            return None
        last = (batch.base_sequence + batch.last_offset_delta) % _SEQUENCES
        for kept in self.batches:
            if kept.last_sequence == last and kept.offset_delta == batch.last_offset_delta:
                return kept
        return None

    def enter_epoch(self, epoch: ProducerEpoch) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class ProducerState:
    """All producers of one partition, owned by its log."""

    __slots__ = ("_open", "_producers", "_undecided", "_verifications")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] | None = None
        self._verifications: dict[int, Verification] | None = None
        self._open: dict[Offset, ProducerId] | None = None
        """The first offsets of open transactions with their producers, ascending."""
        self._undecided: dict[Offset, Offset] | None = None
        """The first and last offset of transactions whose marker is not below the high watermark yet."""

    def __len__(self) -> int:
        return len(self._producers) if self._producers else 0

    def __iter__(self) -> Iterator[tuple[ProducerId, ProducerEntry]]:
        for producer_id, entry in (self._producers or {}).items():
            yield ProducerId(producer_id), entry

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id) if self._producers else None

    @property
    def first_unstable(self) -> Offset | None:
        """The first offset of the oldest transaction that is open, or whose marker is not replicated yet."""
        first = next(iter(self._open)) if self._open else None
        if self._undecided:
            undecided = min(self._undecided)
            return undecided if first is None else min(first, undecided)
        return first

    @property
    def oldest_open(self) -> OpenTransaction | None:
        """The open transaction with the lowest first offset."""
        if not self._open:
            return None
        first, producer_id = next(iter(self._open.items()))
        entry = self.get(producer_id)
        return OpenTransaction(producer_id, first, -1 if entry is None else entry.last_timestamp)

    # Verification of transactions (KIP-890)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard:
        """Return the guard with which the first batch of a transaction may be appended after the coordinator has
        confirmed the transaction; NO_GUARD if the transaction has batches in this partition already.

        ``sequence``: the first one of the batch. Raises KafkaError INVALID_PRODUCER_EPOCH."""
        entry = self.get(producer_id)
        if entry is not None:
            _check_epoch(entry, producer_id, epoch)
            if entry.txn_first_offset is not None and entry.epoch == epoch:
                return NO_GUARD
        if self._verifications is None:
            self._verifications = {}
        verification = self._verifications.get(producer_id)
        if verification is None:
            verification = Verification(epoch, sequence, now_ms, bumps_epoch=bumps_epoch)
            self._verifications[producer_id] = verification
        else:
            verification.include(epoch, sequence)
        return verification.guard

    def end_verification(self, producer_id: int, guard: VerificationGuard) -> None:
        """Forget a verification whose producer the coordinator does not know."""
        verification = self._verification(producer_id)
        if verification is not None and verification.guard is guard:
            self._forget_verification(producer_id)

    def continue_verifications(self, former: ProducerState) -> None:
        """Take over the verifications of a log with the same records, which this one replaces. (In Kafka they are lost,
        and the batches that wait for them fail.)"""
        self._verifications, former._verifications = former._verifications, None

    def _verification(self, producer_id: int) -> Verification | None:
        return self._verifications.get(producer_id) if self._verifications else None

    def _forget_verification(self, producer_id: int) -> None:
        if self._verifications:
            self._verifications.pop(producer_id, None)
            if not self._verifications:
                self._verifications = None

    # A leader's checks, before anything is written

    def duplicate_of(self, batch: ProducerBatch) -> KeptBatch | None:
        entry = self.get(batch.producer_id)
        return entry.duplicate_of(batch) if entry is not None else None

    def check_batch(
        self, batch: ProducerBatch, *, sequenced: bool, guard: VerificationGuard = NO_GUARD, verified: bool = False
    ) -> None:
        """Check ``batch`` against the state of its producer, like ``UnifiedLog.analyzeAndValidateProducerState`` and
        ``ProducerAppendInfo``.

        ``sequenced``: the batch is from a client, so its sequence must follow the last one. ``verified``: the first
        batch of a transaction must have the ``guard`` of its verification. Raises KafkaError with
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.
        """
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        entry = self.get(producer_id)
        if entry is not None:
            _check_epoch(entry, producer_id, epoch)
        transactional = batch.is_transactional
        verification = self._verification(producer_id)
        if transactional and verified:
            _check_guard(entry, verification, epoch, guard)
        if sequenced:
            sequence = batch.base_sequence
            if verification is not None:
                _check_first_sequence(entry, verification, producer_id, sequence)
            if entry is not None:
                _check_sequence(entry, producer_id, epoch, sequence)
        if entry is not None and entry.txn_first_offset is not None and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction and sends a batch that is not transactional",
            )

    def check_marker(self, marker: EndMarker, transaction_version: int) -> None:
        """Check the epochs of ``marker``. Raises KafkaError with INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED.

        With transaction version 2 a marker has a higher epoch than the transaction that it ends. The same epoch is
        accepted if no transaction is open: the marker is written again. It is also accepted if the epoch is the highest
        possible one."""
        entry = self.get(marker.producer_id)
        if entry is None:
            return
        _check_epoch(entry, marker.producer_id, marker.producer_epoch)
        if (
            transaction_version >= EPOCH_BUMP_VERSION
            and marker.producer_epoch == entry.epoch != LAST_PRODUCER_EPOCH
            and entry.txn_first_offset is not None
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of producer {marker.producer_id} has epoch {entry.epoch}, that of the open transaction",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    # Applying what was written, by a leader, a follower or a replay

    def add_batch(self, batch: ProducerBatch) -> None:
        """Apply a data batch that was appended."""
        entry = self._entry(batch.producer_id)
        entry.enter_epoch(ProducerEpoch(batch.producer_epoch))
        delta = batch.last_offset_delta
        batches = entry.batches
        if batches and batches[-1].last_offset >= batch.base_offset:
            raise BrokenInvariant(
                f"producer {batch.producer_id} has a batch up to offset {batches[-1].last_offset}, "
                f"and one from offset {batch.base_offset} on follows"
            )
        if len(batches) == BATCHES_KEPT:  # duplicates are detected among the last five batches
            del batches[0]
        batches.append(
            KeptBatch(
                (batch.base_sequence + delta) % _SEQUENCES if batch.base_sequence >= 0 else NO_SEQUENCE,
                Offset(batch.base_offset + delta),
                delta,
                batch.max_timestamp,
            )
        )
        entry.last_timestamp = batch.max_timestamp
        if batch.is_transactional:
            if self._verifications:
                self._forget_verification(batch.producer_id)
            if entry.txn_first_offset is None:  # the first batch of a transaction
                self._begin_txn(entry, ProducerId(batch.producer_id), Offset(batch.base_offset))

    def _begin_txn(self, entry: ProducerEntry, producer_id: ProducerId, first: Offset) -> None:
        entry.txn_first_offset = first
        if self._open is None:
            self._open = {}
        elif self._open and first <= (latest := next(reversed(self._open))):
            raise BrokenInvariant(f"a transaction begins at offset {first} after one that begins at {latest}")
        self._open[first] = producer_id

    def end_txn(self, marker: EndMarker) -> CompletedTxn | None:
        """Apply a marker that was appended. Returns the transaction that it ends, None if there is none."""
        entry = self._entry(marker.producer_id)
        first = entry.txn_first_offset
        verification = self._verification(marker.producer_id)
        # With an epoch per transaction, a verification in the marker's epoch is that of the next transaction.
        if verification is not None and not (verification.bumps_epoch and verification.epoch == marker.producer_epoch):
            self._forget_verification(marker.producer_id)
        entry.enter_epoch(marker.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = marker.timestamp
        entry.txn_first_offset = None
        if first is None:
            return None
        if marker.offset <= first:
            raise BrokenInvariant(
                f"the transaction of producer {marker.producer_id} from offset {first} on ends at {marker.offset}"
            )
        if self._open:
            self._open.pop(first, None)
        if self._undecided is None:
            self._undecided = {}
        self._undecided[first] = marker.offset
        return CompletedTxn(marker.producer_id, first, marker.offset, marker.aborted)

    def stable_offset_after(self, completed: CompletedTxn) -> Offset:
        """Return the last stable offset after ``completed`` is replicated, for its entry in the transaction index."""
        for first, producer_id in (self._open or {}).items():
            if producer_id != completed.producer_id:
                return first
        return Offset(completed.last_offset + 1)

    def replicated_to(self, offset: Offset) -> None:
        """The high watermark is at ``offset``: transactions with a marker below it no longer limit the last stable
        offset."""
        if self._undecided:
            self._undecided = {first: last for first, last in self._undecided.items() if last >= offset}

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove the producers that were idle for ``expiration_ms``, except those with an open transaction, and the
        verifications that began so long ago."""
        if self._producers:
            for producer_id in [producer_id for producer_id, entry in self if is_expired(entry, now_ms, expiration_ms)]:
                del self._producers[producer_id]
        if self._verifications:
            began = self._verifications.items()
            self._verifications = {
                producer_id: one for producer_id, one in began if now_ms - one.began_ms < expiration_ms
            } or None

    def load(self, entries: Iterable[tuple[ProducerId, ProducerEntry]]) -> None:
        """Replace all producers by those of a snapshot."""
        self.clear()
        producers: dict[int, ProducerEntry] = dict(entries)
        self._producers = producers or None
        started = sorted(
            (entry.txn_first_offset, ProducerId(producer_id))
            for producer_id, entry in producers.items()
            if entry.txn_first_offset is not None
        )
        self._open = dict(started) or None

    def clear(self) -> None:
        self._producers = self._open = self._undecided = self._verifications = None

    def _entry(self, producer_id: int) -> ProducerEntry:
        if self._producers is None:
            self._producers = {}
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry()
        return entry


def is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    """Whether the producer was idle for ``expiration_ms`` and has no open transaction."""
    return entry.txn_first_offset is None and now_ms - entry.last_timestamp >= expiration_ms


def _check_epoch(entry: ProducerEntry, producer_id: int, epoch: int) -> None:
    if epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer_id} sends epoch {epoch}, which is older than {entry.epoch}",
        )


def _check_guard(
    entry: ProducerEntry | None, verification: Verification | None, epoch: int, guard: VerificationGuard
) -> None:
    """Raise KafkaError INVALID_TXN_STATE if a transactional batch needs a verification and has none."""
    if entry is not None and entry.txn_first_offset is not None and entry.epoch == epoch:
        return
    if verification is None or verification.guard is not guard:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "the batch does not belong to an open transaction")


def _check_first_sequence(
    entry: ProducerEntry | None, verification: Verification, producer_id: int, sequence: int
) -> None:
    """Raise KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER if a batch of the transaction must be appended before this one."""
    first = 0 if verification.bumps_epoch and (entry is None or not entry.batches) else sequence
    if sequence != first or sequence > verification.lowest_sequence:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} begins with sequence {sequence}, not {min(first, verification.lowest_sequence)}",
        )


def _check_sequence(entry: ProducerEntry, producer_id: int, epoch: int, sequence: int) -> None:
    """Raise KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER if ``sequence`` does not follow the last one."""
    if epoch != entry.epoch:
        if sequence != 0 and entry.epoch != NO_PRODUCER_EPOCH:  # a new epoch begins with sequence 0
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins epoch {epoch} with sequence {sequence}, not 0",
            )
    elif sequence != (entry.last_sequence + 1) % _SEQUENCES:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} sends sequence {sequence} after {entry.last_sequence}",
        )
