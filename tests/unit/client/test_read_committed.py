"""What a read_committed consumer skips in a fetched slice."""

from __future__ import annotations

from milena.client.consumer import read_records
from milena.protocol.records.control_records import AbortMarker, CommitMarker, control_batch
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.fetch import AbortedTransaction
from milena.protocol.types import Offset, ProducerEpoch, ProducerId

FIRST, SECOND = ProducerId(1), ProducerId(2)


def batch(offset: int, producer: ProducerId, *values: bytes, transactional: bool = True) -> bytes:
    records = [Record(number, 0, None, value) for number, value in enumerate(values)]
    return build_batch(
        records,
        base_offset=Offset(offset),
        producer_id=producer,
        producer_epoch=ProducerEpoch(0),
        transactional=transactional,
    )


def marker(offset: int, producer: ProducerId, *, commit: bool) -> bytes:
    kind = CommitMarker if commit else AbortMarker
    return control_batch(
        [kind(coordinator_epoch=0)],
        timestamp=0,
        base_offset=Offset(offset),
        producer_id=producer,
        producer_epoch=ProducerEpoch(0),
        transactional=True,
    )


def read(aborted: list[AbortedTransaction], *batches: bytes, start: int = 0) -> tuple[list[bytes | None], int]:
    records, end = read_records("t", 0, memoryview(b"".join(batches)), start, aborted)
    return [record.value for record in records], end


def test_only_the_aborted_transaction_of_a_producer_is_skipped() -> None:
    log = (
        batch(0, FIRST, b"a", b"b"),
        marker(2, FIRST, commit=False),
        batch(3, FIRST, b"c"),
        marker(4, FIRST, commit=True),
    )
    assert read([AbortedTransaction(FIRST, 0)], *log) == ([b"c"], 5)
    assert read([], *log) == ([b"a", b"b", b"c"], 5)


def test_a_committed_transaction_before_an_aborted_one_is_read() -> None:
    log = (
        batch(0, FIRST, b"a"),
        marker(1, FIRST, commit=True),
        batch(2, FIRST, b"b"),
        marker(3, FIRST, commit=False),
    )
    assert read([AbortedTransaction(FIRST, 2)], *log) == ([b"a"], 4)


def test_interleaved_transactions_are_separated_by_their_producers() -> None:
    log = (
        batch(0, FIRST, b"a"),
        batch(1, SECOND, b"x"),
        batch(2, FIRST, b"b"),
        marker(3, SECOND, commit=True),
        marker(4, FIRST, commit=False),
    )
    assert read([AbortedTransaction(FIRST, 0)], *log) == ([b"x"], 5)


def test_a_transaction_that_began_before_the_slice_is_skipped() -> None:
    log = (batch(7, FIRST, b"late"), marker(8, FIRST, commit=False), batch(9, SECOND, b"y", transactional=False))
    assert read([AbortedTransaction(FIRST, 2)], *log, start=7) == ([b"y"], 10)


def test_records_outside_of_transactions_are_read_even_from_that_producer() -> None:
    log = (batch(0, FIRST, b"plain", transactional=False), batch(1, FIRST, b"a"))
    assert read([AbortedTransaction(FIRST, 0)], *log) == ([b"plain"], 2)
