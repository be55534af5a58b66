"""Logs whose last offsets have no records: after compaction that is no loss, otherwise it is."""

from __future__ import annotations

import pytest

from milena.client.offsets import EARLIEST_LOCAL, FoundOffset
from milena.client.raw_reads import RawRecords
from milena.pipeline import brokers
from milena.pipeline.brokers import MOST_EMPTY, Brokers
from milena.pipeline.errors import DataLoss
from milena.pipeline.loops import LoopThread
from milena.pipeline.options import source_options
from milena.pipeline.planning import Stretch
from milena.protocol.records.records import BatchBuilder
from tests.unit.tiered.segments import PARTITION

RECORDS = 10
"""The records that the log still has, from offset 0 on."""


def read(
    monkeypatch: pytest.MonkeyPatch, asked: list[int], *, high_watermark: int, end: int, local_start: int = 0
) -> list[int]:
    """Read batches with offsets up to 19 and return their base offsets. ``asked`` gets the offsets of the fetches."""
    builder = BatchBuilder()
    for _ in range(RECORDS):
        builder.append(timestamp=1, value=b"v")
    left = builder.build()

    async def read_raw(*words: object, **_: object) -> RawRecords:
        at = words[3]
        assert isinstance(at, int)
        asked.append(at)
        return RawRecords(left if at < RECORDS else b"", None, high_watermark, end, 0)

    async def find_offset(*words: object, **_: object) -> FoundOffset:
        assert words[3] == EARLIEST_LOCAL
        return FoundOffset(local_start, -1)

    monkeypatch.setattr(brokers, "read_raw", read_raw)
    monkeypatch.setattr(brokers, "find_offset", find_offset)
    with LoopThread() as loop:
        source = Brokers(loop, source_options({"subscribe": "t", "kafka.bootstrap.servers": "localhost:1"}))
        return [int(one.base_offset) for one in source.batches(Stretch(PARTITION, 0, 19, 1))]


def test_records_that_compaction_removed_at_the_log_end_are_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    assert read(monkeypatch, asked, high_watermark=20, end=20) == [0]
    assert asked == [0, RECORDS, RECORDS]


@pytest.mark.parametrize(
    ("high_watermark", "end", "local_start"),
    [
        pytest.param(10, 10, 0, id="the log ends before"),
        pytest.param(20, 15, 0, id="a transaction is open that was not there"),
        pytest.param(20, 20, 15, id="the tier does not answer"),
    ],
)
def test_records_that_fetches_do_not_return_are_a_loss(
    monkeypatch: pytest.MonkeyPatch, high_watermark: int, end: int, local_start: int
) -> None:
    asked: list[int] = []
    with pytest.raises(DataLoss, match=f"t-0: offset 10 existed, but the log now ends at {high_watermark}"):
        read(monkeypatch, asked, high_watermark=high_watermark, end=end, local_start=local_start)
    assert asked == [0, *[RECORDS] * MOST_EMPTY]
