"""The job ``compact`` and several orders, of which one cannot be carried out: no Spark is needed to see that."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import UUID

import pytest

from milena.pipeline.jobs.compact import job
from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.cleaning.window import Source
from milena.tiered.orders.order import MANIFEST, ORDER, Order, OrderedGroup, encode_order
from milena.tiered.segments.cleaner_offsets import CleanerOffset
from milena.tiered.store.staging import WORK
from tests.unit.tiered.segments import segment

EPOCH = LeaderEpoch(0)


def ordered(tier: Path, number: int) -> Order:
    """A new order, whose time is over the later the higher its ``number``."""
    now = time.time_ns() // 1_000_000
    source = Source(segment(number, 0, 9, {0: 0}), Offset(0), Offset(9), True)
    cleaned = (CleanerOffset(EPOCH, Offset(10)),)
    groups = (OrderedGroup((source,), None),)
    of = source.segment.partition
    times = now, now + 3_600_000 + number * 1000
    order = Order(UUID(int=number), of, EPOCH, EPOCH, cleaned, *times, Offset(0), 1, 1000, 100, 1000, bytes(32), groups)
    folder = tier / WORK / order.folder
    folder.mkdir(parents=True)
    (folder / ORDER).write_bytes(encode_order(order))
    return order


def test_an_order_that_fails_does_not_keep_the_job_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    bad, good, later = (ordered(tmp_path, number) for number in (1, 2, 3))
    begun: list[UUID] = []

    def carry_out(_spark: object, _opened: object, _place: object, order: Order) -> None:
        begun.append(order.id)
        if order.id == bad.id:
            raise RuntimeError("the batch at 0 has more than 1000 bytes of records")
        (tmp_path / WORK / order.path(MANIFEST)).write_bytes(b"{}")

    monkeypatch.setattr(job, "carry_out", carry_out)
    with pytest.raises(RuntimeError, match="the batch at 0 has more"):
        job.compact(None, str(tmp_path))  # type: ignore[arg-type]
    assert begun == [bad.id, good.id, later.id]
