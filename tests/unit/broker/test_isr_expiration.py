"""The periodic check of the ISRs of a broker's partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from milena.broker.replica.meters import IsrMeters
from milena.broker.replica.replication import PARTITIONS_PER_YIELD, Replication
from milena.node.metadata.image import MetadataImage
from milena.node.metrics import Metrics
from milena.protocol.types import BrokerEpoch, NodeId


class Ended(Exception):
    """Ends the task, which runs for ever."""


async def test_the_loop_runs_other_work_between_many_partitions() -> None:
    checked: list[int] = []
    sleeps: list[tuple[float, int]] = []

    async def sleep(seconds: float) -> None:
        sleeps.append((seconds, len(checked)))
        if seconds and checked:
            raise Ended

    replication = Replication(
        NodeId(1),
        MetadataImage,
        cast("Any", None),
        IsrMeters(Metrics()),
        cast("Any", SimpleNamespace(sleep=sleep)),
        lag_ms=30_000,
        broker_epoch=lambda: BrokerEpoch(1),
    )
    count = 2 * PARTITIONS_PER_YIELD + 10
    partitions = [SimpleNamespace(check_isr=lambda at=at: checked.append(at)) for at in range(count)]
    with pytest.raises(Ended):
        await replication._check_isrs(partitions)
    assert checked == list(range(count))
    assert sleeps == [(15.0, 0), (0, PARTITIONS_PER_YIELD), (0, 2 * PARTITIONS_PER_YIELD), (15.0, count)]
