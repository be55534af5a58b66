"""What a batch's transaction came to, by the last stable offset, the aborted transactions, and markers."""

from __future__ import annotations

import pytest

from milena.console import outcomes as transaction_outcomes
from milena.console.outcomes import COMMITTED, Outcomes, marker_of
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.control_records import AbortMarker, CommitMarker, control_batch
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.fetch import AbortedTransaction
from milena.protocol.types import Offset, ProducerEpoch, ProducerId


def records(producer: int, at: int) -> bytes:
    return build_batch(
        [Record(0, 0, None, b"x")],
        base_offset=Offset(at),
        base_timestamp=0,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        transactional=True,
    )


def marker(producer: int, at: int, *, commits: bool) -> bytes:
    return control_batch(
        [(CommitMarker if commits else AbortMarker)(coordinator_epoch=0)],
        timestamp=0,
        base_offset=Offset(at),
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        transactional=True,
    )


def outcomes(data: bytes, found: Outcomes) -> list[str | None]:
    return [found.of(batch) for batch in iter_batches(memoryview(data))]


def test_before_the_last_stable_offset_the_aborted_transactions_decide() -> None:
    data = b"".join(
        [
            records(1, 0),
            records(2, 1),
            marker(1, 2, commits=False),
            records(1, 3),
            marker(2, 4, commits=True),
            marker(1, 5, commits=True),
        ]
    )
    found = Outcomes(stable=6, aborted=[AbortedTransaction(ProducerId(1), Offset(0))])
    assert outcomes(data, found) == ["aborted", "committed", "aborted", "committed", "committed", "committed"]


def test_behind_it_the_next_marker_of_the_producer_decides_or_its_open_transaction() -> None:
    data = b"".join(
        [
            records(1, 0),
            records(2, 1),
            records(3, 2),
            marker(2, 3, commits=False),
            records(2, 4),
            marker(3, 5, commits=True),
            marker(2, 6, commits=True),
            records(2, 7),
            records(4, 8),
        ]
    )
    found = Outcomes(data, stable=0, opened={1: 0, 2: 7})
    assert outcomes(data, found) == [
        "open", "aborted", "committed", "aborted", "committed", "committed", "committed", "open", "unknown",
    ]  # fmt: skip


class Counted(int):
    """A producer id that counts how often it is compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other


def test_a_batch_is_not_compared_with_the_markers_of_all_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of 1 MiB may have 7,000 of them."""
    count = 100
    data = b"".join(records(one, 2 * one) + marker(one, 2 * one + 1, commits=True) for one in range(count))
    found = [(Counted(one), 2 * one + 1, COMMITTED) for one in range(count)]
    monkeypatch.setattr(transaction_outcomes, "_markers", lambda _: iter(found))
    assert outcomes(data, Outcomes(data, stable=0)) == [COMMITTED] * 2 * count
    assert Counted.compared <= 2 * count


def test_a_batch_outside_of_transactions_has_no_outcome() -> None:
    data = build_batch([Record(0, 0, None, b"x")])
    assert outcomes(data, Outcomes(data)) == [None]


@pytest.mark.parametrize(("commits", "name"), [(True, "COMMIT"), (False, "ABORT")])
def test_a_marker_has_the_name_of_its_type(commits: bool, name: str) -> None:
    assert [marker_of(batch) for batch in iter_batches(memoryview(marker(1, 0, commits=commits)))] == [name]
