"""How much one answer with records examines."""

from __future__ import annotations

import pytest

from milena.console import records
from milena.console.outcomes import Outcomes
from milena.console.records import Reading, Wanted
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.fetch import AbortedTransaction
from milena.protocol.types import Offset, ProducerEpoch, ProducerId


def transactional(offset: int) -> bytes:
    """A batch of two records."""
    return build_batch(
        [Record(0, 0, None, b"x"), Record(1, 0, None, b"y")],
        base_offset=Offset(offset),
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        transactional=True,
    )


def test_records_of_aborted_transactions_count_as_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of them may follow each other: the answer says where to continue, before it takes too long."""
    monkeypatch.setattr(records, "MOST_SCANNED", 5)
    data = b"".join(transactional(offset) for offset in range(0, 20, 2))
    reading = Reading(Wanted.model_validate({"isolation": "read_committed"}))
    aborted = Outcomes(stable=20, aborted=[AbortedTransaction(ProducerId(7), Offset(0))])
    assert reading.take(0, 0, data, aborted) == 6
    assert reading.is_full and reading.records == []
