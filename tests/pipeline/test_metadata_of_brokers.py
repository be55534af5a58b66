"""Plans that read the metadata topic from brokers, and continue from the last one."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from milena.pipeline import brokers
from milena.pipeline.brokers import Brokers
from milena.pipeline.loops import LoopThread
from milena.pipeline.metadata_cache import PlanCache
from milena.pipeline.options import source_options
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.serialization import serialize
from tests.unit.tiered.segments import PARTITION, segment


def event(number: int, offset: int, epoch: int) -> BatchView:
    """Return the event of segment ``number``, whose ten offsets begin at ten times its number."""
    builder = BatchBuilder()
    builder.append(timestamp=1, value=serialize(segment(number, 10 * number, 10 * number + 9, {0: 0})))
    return next(iter_batches(memoryview(builder.build(base_offset=Offset(offset), leader_epoch=LeaderEpoch(epoch)))))


def planned(monkeypatch: pytest.MonkeyPatch, log: list[BatchView]) -> list[int]:
    """Plan with a metadata topic whose only partition has the batches ``log``. Return the numbers of the segments that
    the plan knows, and then the negative number of batches that it has read."""
    options = source_options({"subscribe": "t", "tier": "/tier", "kafka.bootstrap.servers": "localhost:1"})
    read: list[int] = []

    def between(_topic: str, _number: int, first: int, end: int) -> list[BatchView]:
        found = [one for one in log if first <= one.base_offset < end]
        read.extend(one.base_offset for one in found)
        return found

    async def epoch_ends(_cluster: object, _topic: str, _number: int, epochs: list[int]) -> dict[int, int]:
        ends = {int(one.leader_epoch): int(one.next_offset) for one in log}
        at_most = {epoch: max((one for one in ends if one <= epoch), default=-1) for epoch in epochs}
        return {one: ends[one] for one in at_most.values() if one >= 0}

    monkeypatch.setattr(brokers, "epoch_ends", epoch_ends)
    with LoopThread() as loop:
        asked = Brokers(loop, options)
        view = SimpleNamespace(error=0, id=UUID(int=9), partitions={0: None})
        monkeypatch.setattr(asked, "topics", lambda: {REMOTE_LOG_METADATA_TOPIC: view})
        monkeypatch.setattr(asked, "bounds", lambda _topic, _number: (0, len(log)))
        monkeypatch.setattr(asked, "_between", between)
        cache = asked.tier_metadata([PARTITION]).cache(PARTITION)
        assert cache is not None
        return [*sorted(one.id.int for one in cache.segments()), -len(read)]


def test_a_plan_reads_new_events_or_all_events_after_an_unclean_leader_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "PLAN_CACHE", PlanCache())
    log = [event(1, 0, 0), event(2, 1, 0)]
    assert planned(monkeypatch, log) == [1, 2, -2]
    assert planned(monkeypatch, log) == [1, 2, 0]
    log.append(event(3, 2, 1))
    assert planned(monkeypatch, log) == [1, 2, 3, -1]
    other = [event(1, 0, 0), event(5, 1, 2), event(6, 2, 2), event(7, 3, 2)]
    assert planned(monkeypatch, other) == [1, 5, 6, 7, -4], "it is longer than what was read"
