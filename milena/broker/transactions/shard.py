"""The transactional ids of one ``__transaction_state`` partition that this broker leads, during one leadership of it
(Kafka's ``TransactionStateManager``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

from milena.broker.coordinators.errors import client_error, client_errors
from milena.broker.coordinators.partition_log import CoordinatorLog
from milena.broker.transactions import decisions, store
from milena.broker.transactions.census import Census
from milena.broker.transactions.model import PREPARED, Done, Transaction
from milena.broker.transactions.transition_log import Cause, TransitionLog
from milena.protocol.cooperative import Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.records import BatchBuilder
from milena.protocol.records.transaction_records import TransactionState
from milena.runtime.clock import Clock, Timer
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger

IDS_PER_YIELD: Final = 1_000
"""Transactional ids that are checked before other tasks run."""
TOMBSTONES_PER_BATCH: Final = 250
TOMBSTONE_BYTES: Final = 16_384
"""The maximum size of the keys in a batch of tombstones with more than one: an id may have 32 KB, and a batch may have
``max.message.bytes``."""
PREPARED_PER_TURN: Final = 250
"""Loaded transactions whose markers are sent before other tasks run."""
RETRY_SECONDS: Final = 0.1
"""The pause before a completed transaction is written again after a refused write, and before the next wait for a
commit."""
COMPLETION_SECONDS: Final = 0.1
"""How long a request waits for the markers of the previous transaction: they take a few milliseconds, and clients
repeat a request no earlier than after 20."""


SendMarkers: TypeAlias = Callable[[str, Transaction, Callable[[], None]], None]
"""Writes the markers of a prepared transaction to its partitions, then makes the call."""


class Shard:
    """A state takes effect when its record is committed, as in Kafka, and until then the id is busy: requests for it
    are answered with CONCURRENT_TRANSACTIONS. A refused append changes nothing.

    A record that is not committed in time stays in the log, so its id stays busy until it is committed or this
    leadership ends, although the client has got COORDINATOR_NOT_AVAILABLE. (Kafka forgets the record, and the next
    request is decided on the state before it.) So the state in memory is always that of the committed log.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        *,
        clock: Clock,
        version: Callable[[], int],
        send_markers: SendMarkers,
        transitions: TransitionLog,
    ) -> None:
        """``version``: the level of ``transaction.version``. ``transitions``: of all shards of the broker."""
        self.transactions: dict[str, Transaction] = {}
        """The committed state of each transactional id."""
        self._log = log
        self._clock = clock
        self._version = version
        self._send_markers = send_markers
        self._pending: dict[str, Transaction | None] = {}
        """What each busy id becomes when its record is committed; None if it is removed."""
        self._waiting: dict[str, tuple[Timer, Done]] = {}
        """The request of each id that waits until the id's transaction is complete, and its timeout."""
        self.census: Final = Census()
        self._transitions = transitions
        self._events = LimitedLog(get_logger("transactions"), clock.monotonic)
        self._loaded_end = 0
        """The log end when the ids were loaded."""
        self.closed = False
        self.retries = 0
        """The number of completed transactions whose record is to be written again (Kafka's
        LogAppendRetryQueueSize)."""

    @property
    def size(self) -> int:
        """The number of transactional ids."""
        return len(self.transactions)

    @property
    def open_count(self) -> int:
        """The number of open transactions."""
        return len(self.census.open)

    def get(self, transactional_id: str) -> Transaction | None:
        """The committed state."""
        return self.transactions.get(transactional_id)

    def is_busy(self, transactional_id: str) -> bool:
        """Whether a transition is in progress: its record is not committed, or markers are being written."""
        if self.is_pending(transactional_id):
            return True
        present = self.transactions.get(transactional_id)
        return present is not None and present.state in PREPARED

    def is_pending(self, transactional_id: str) -> bool:
        """Whether a record of the id is not committed."""
        return transactional_id in self._pending

    def pending(self, transactional_id: str) -> Transaction | None:
        """What an id becomes when its record is committed; None if none is pending, or the id is removed."""
        return self._pending.get(transactional_id)

    def close(self) -> None:
        """End this leadership. Waiting requests are answered with NOT_COORDINATOR, later writes are refused."""
        self.closed = True
        self.transactions.clear()
        self._pending.clear()
        self.census.clear()
        self._transitions.touch()
        for transactional_id in list(self._waiting):
            self._resume(transactional_id, ErrorCode.NOT_COORDINATOR)

    # -- loading

    def add_loaded(self, transactions: dict[str, Transaction], counts: Counter[TransactionState]) -> None:
        """Add the ids that were loaded from the log, all in one step: a request finds all of them or none. ``begin``
        has to follow. ``counts``: the numbers of ids by state. Raises BrokenInvariant if there are ids already."""
        if self.transactions:
            raise BrokenInvariant("transactional ids were loaded, but some exist already")
        self.transactions = transactions
        self.census.counts = counts
        self._loaded_end = self._log.end

    def begin(self) -> Cooperative[None]:
        """Continue the transactions that were loaded: those that are open may time out, and markers of those that are
        prepared are written.

        Kafka writes the markers at once. Here they wait until all that was loaded is committed: if a record at the end
        of the log were lost with this leader, the next leader would not know of the outcome.

        An id that a request has changed since is skipped. Its markers would be sent twice, and the second one might end
        the next transaction of the producer."""
        unsettled: list[tuple[str, Transaction]] = []
        budget = YieldBudget(IDS_PER_YIELD)
        for transactional_id, loaded in list(self.transactions.items()):
            if loaded.state is TransactionState.ONGOING or loaded.state in PREPARED:
                unsettled.append((transactional_id, loaded))
            if budget.spend(1):
                yield
        unsettled.sort(key=lambda one: one[1].start_ms)
        left = [(one, loaded.state) for one, loaded in unsettled if self.transactions.get(one) is loaded]
        self.census.add_older(left)
        self._transitions.touch()
        prepared = [one for one, state in left if state in PREPARED]
        if prepared:
            self._when_committed(self._log.end, lambda: self._continue(prepared), _ignored)

    def _continue(self, prepared: list[str]) -> None:
        for transactional_id in prepared[:PREPARED_PER_TURN]:
            self._write_markers(transactional_id)
        if rest := prepared[PREPARED_PER_TURN:]:
            self._clock.call_later(0, lambda: self._continue(rest))

    # -- transitions

    def confirm(self, done: Done) -> None:
        """Call ``done`` for a request that changes nothing: when all that was loaded is committed, or with an error.

        Kafka answers at once. But if the state were lost with this leader, the client would rely on partitions that
        the next leader does not have in the transaction, and that would get no marker."""

        def ended(error: ErrorCode) -> None:
            done(ErrorCode.NOT_COORDINATOR if self.closed else client_error(error))

        self._log.when_committed(self._loaded_end, ended)

    def wait_for_completion(self, transactional_id: str, then: Done) -> bool:
        """Call ``then`` when the prepared transaction of an id is complete, after ``COMPLETION_SECONDS``, or with an
        error when this leadership ends. Returns False if no transaction is prepared, or a request waits for it already:
        ``then`` is not called."""
        present = self.transactions.get(transactional_id)
        if present is None or present.state not in PREPARED or transactional_id in self._waiting:
            return False
        timer = self._clock.call_later(COMPLETION_SECONDS, lambda: self._resume(transactional_id))
        self._waiting[transactional_id] = timer, then
        return True

    def _resume(self, transactional_id: str, error: ErrorCode = ErrorCode.NONE) -> None:
        timer, then = self._waiting.pop(transactional_id)
        timer.cancel()
        then(error)

    def change(self, transactional_id: str, following: Transaction, done: Done, cause: Cause = Cause.REQUEST) -> None:
        """Write the next state of an id that is not busy. ``done`` is called after it has taken effect, or with an
        error: of a refused append, or after the commit timeout."""
        if self.is_pending(transactional_id):
            raise BrokenInvariant(f"transactional id {transactional_id} was written again before the commit")
        now_ms = self._clock.time_ms()
        batch = store.state_batch(transactional_id, following, version=self._version(), now_ms=now_ms)
        try:
            end = self._append(batch)
        except KafkaError as error:
            done(error.code)
            return
        self._pending[transactional_id] = following
        self._transitions.touch()
        self._when_committed(
            end,
            lambda: self._apply(transactional_id, following, cause),
            done,
            # After the response of EndTxn.
            lambda: self._write_markers(transactional_id),
        )

    def _apply(self, transactional_id: str, following: Transaction, cause: Cause) -> None:
        del self._pending[transactional_id]
        present = self.transactions.get(transactional_id)
        if present is not None:
            decisions.check_transition(present, following)
        self.transactions[transactional_id] = following
        self.census.changed(transactional_id, present, following)
        self._transitions.add(transactional_id, present, following, cause)

    def _append(self, batch: bytes) -> int:
        if self.closed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        with client_errors():
            return self._log.append(batch)

    def _when_committed(
        self, end: int, apply: Callable[[], None], done: Done, then: Callable[[], None] | None = None
    ) -> None:
        """Call ``apply`` when everything before ``end`` is committed, then ``done``, then ``then``. ``done`` gets an
        error if that takes longer than the commit timeout; the others are called nevertheless, unless this leadership
        ends before."""

        def ended(error: ErrorCode) -> None:
            if self.closed:
                done(ErrorCode.NOT_COORDINATOR)
                return
            if error is ErrorCode.NONE:
                apply()
            try:
                done(client_error(error))
            finally:  # a response that fails must not leave the id busy
                if error is ErrorCode.NONE and then is not None:
                    then()
                elif error is ErrorCode.REQUEST_TIMED_OUT:
                    self._clock.call_later(RETRY_SECONDS, lambda: self._when_committed(end, apply, _ignored, then))

        self._log.when_committed(end, ended)

    # -- markers

    def _write_markers(self, transactional_id: str) -> None:
        """Write the markers of a transaction if it is prepared, then complete it."""
        prepared = self.transactions.get(transactional_id)
        if prepared is None or prepared.state not in PREPARED or self.is_pending(transactional_id):
            return
        if prepared.partitions:
            self._send_markers(transactional_id, prepared, lambda: self._complete(transactional_id, prepared))
        else:
            self._complete(transactional_id, prepared)

    def _complete(self, transactional_id: str, prepared: Transaction) -> None:
        """Write that a transaction is complete: all its partitions have the marker, or do not exist any more."""
        if self.closed or self.transactions.get(transactional_id) is not prepared or self.is_pending(transactional_id):
            return
        following = decisions.complete(prepared, now_ms=self._clock.time_ms())

        def retry() -> None:
            self.retries -= 1
            self._complete(transactional_id, prepared)

        def written(error: ErrorCode) -> None:
            # After a timeout of the commit the record is in the log, and the id still busy.
            if error is ErrorCode.NONE:
                if transactional_id in self._waiting:
                    self._resume(transactional_id)
            elif not self.closed and not self.is_pending(transactional_id):
                self._events.warning("completed transaction not written", id=transactional_id, error=error.name)
                self.retries += 1
                self._clock.call_later(RETRY_SECONDS, retry)

        self.change(transactional_id, following, written)

    # -- time

    def abort_timed_out(self, next_id: decisions.NextId) -> Cooperative[None]:
        """Abort the open transactions that are older than their timeouts, which fences their producers."""
        budget = YieldBudget(IDS_PER_YIELD)
        for transactional_id in list(self.census.open):
            present = self.transactions.get(transactional_id)
            now_ms = self._clock.time_ms()
            if present is not None and not self.is_pending(transactional_id) and present.times_out(now_ms):
                self._abort(transactional_id, present, next_id, now_ms)
            if budget.spend(1):
                yield

    def _abort(self, transactional_id: str, present: Transaction, next_id: decisions.NextId, now_ms: int) -> None:
        try:
            following = decisions.abort_by_coordinator(present, next_id=next_id, version=self._version(), now_ms=now_ms)
        except KafkaError as error:  # no producer id: the next check will find the transaction again
            self._events.warning("transaction not aborted", id=transactional_id, error=error.code.name)
            return

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._events.info(
                    "transaction aborted after its timeout", id=transactional_id, producer=present.producer_id
                )
            else:
                self._events.warning("transaction not aborted", id=transactional_id, error=error.name)

        self.change(transactional_id, following, done, Cause.TIMEOUT)

    def expire(self, expiration_ms: int) -> Cooperative[None]:
        """Write tombstones for the ids without a transition for ``expiration_ms``, and remove them once these are
        committed."""
        ids = iter(list(self.transactions))
        while chunk := list(islice(ids, IDS_PER_YIELD)):
            expired = [one for one in chunk if self._is_expired(one, expiration_ms)]
            for batch in _batched({one: store.key_of(one) for one in expired}):
                self._remove(batch)
            yield

    def _is_expired(self, transactional_id: str, expiration_ms: int) -> bool:
        present = self.transactions.get(transactional_id)
        return (
            present is not None
            and not self.is_pending(transactional_id)
            and decisions.is_expired(present, now_ms=self._clock.time_ms(), expiration_ms=expiration_ms)
        )

    def _remove(self, ids: Mapping[str, bytes]) -> None:
        builder = BatchBuilder()
        for key in ids.values():
            builder.append(timestamp=self._clock.time_ms(), key=key, value=None)
        try:
            end = self._append(builder.build())
        except KafkaError as error:
            self._events.warning("expired transactional ids not removed", error=error.code.name)
            return
        self._pending.update(dict.fromkeys(ids))

        def remove() -> None:
            for transactional_id in ids:
                del self._pending[transactional_id]
                removed = self.transactions.pop(transactional_id)
                self.census.changed(transactional_id, removed, None)
                self._transitions.add(transactional_id, removed, None, Cause.EXPIRED)

        self._when_committed(end, remove, _ignored)


def _ignored(error: ErrorCode) -> None:
    """The result is not needed: the id stays busy until the record is committed."""


def _batched(keys: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Divide ids with their keys into batches of tombstones."""
    batch, size = dict[str, bytes](), 0
    for transactional_id, key in keys.items():
        size += len(key)
        if batch and (size > TOMBSTONE_BYTES or len(batch) == TOMBSTONES_PER_BATCH):
            yield batch
            batch, size = {}, len(key)
        batch[transactional_id] = key
    if batch:
        yield batch
