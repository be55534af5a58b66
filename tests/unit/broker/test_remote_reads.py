"""Records from the tier are returned only if the partition has not changed during the read."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from milena.broker.reading.fetching import Fetch, FetchLimits
from milena.broker.reading.partition_read import PartitionRead, RemotePartitionRead
from milena.broker.reading.remote_reads import RemoteReads, RemoteSlice
from milena.broker.replica.fetch_sessions import RequestedPartition
from milena.broker.replica.partition import Partition
from milena.broker.replica.read_result import ReadResult
from milena.protocol.errors import ErrorCode
from milena.protocol.types import Offset
from milena.tiered.reading.remote_reader import RemoteRecords
from tests.fixtures.forms import ON_PURE
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, led_by

WANTED = RequestedPartition("t", None, 0, 0, 100, 0, None)
RECORDS = RemoteRecords(b"records", 7, None)
BOUNDS = ReadResult(Offset(5), Offset(5), Offset(0), Offset(5))


class HandPool:
    """A pool whose reads the test completes."""

    def __init__(self) -> None:
        self.reads: list[tuple[Any, Any]] = []

    def submit(self, key: Any, work: object, waiting: Any) -> None:
        self.reads.append((key, waiting))

    def leave(self, key: Any, waiting: Any) -> None:
        self.reads.remove((key, waiting))

    def done(self) -> None:
        ((key, waiting),) = self.reads
        waiting.read_done(key, RECORDS, None)


class HandFetch:
    """A fetch of one partition."""

    def __init__(self, partition: Partition) -> None:
        self.find: Callable[[RequestedPartition], Partition] = lambda _: partition
        self.abandoned = False

    def abandon(self) -> None:
        self.abandoned = True

    def read_others(self, results: dict[RequestedPartition, PartitionRead]) -> list[PartitionRead]:
        return list(results.values())


def begin(bench: Bench, partition: Partition) -> tuple[HandPool, list[PartitionRead]]:
    """A fetch that waits for one read. Returns the pool and the list of results."""
    pool, results = HandPool(), list[PartitionRead]()
    meters = SimpleNamespace(of=lambda _: SimpleNamespace(fetch_requests=SimpleNamespace(add=lambda: None)))
    tier = SimpleNamespace(meters=meters, config=lambda: SimpleNamespace(get_int=lambda _: 60_000))
    reads = cast(Any, SimpleNamespace(tier=tier, pool=pool, purgatory=bench.purgatory))
    one = RemotePartitionRead(WANTED, partition, BOUNDS, max_bytes=100)
    limits = cast(FetchLimits, SimpleNamespace(committed=False, only_leader=True))
    assert RemoteReads.read(reads, cast(Fetch, HandFetch(partition)), limits, [one], results.extend, Request(1, 12).ctx)
    return pool, results


@ON_PURE
def test_a_disconnected_client_abandons_the_fetch_and_its_reads(bench: Bench) -> None:
    """Otherwise the session would never stop listening."""
    pool, _ = begin(bench, bench.led())
    ((_, waiting),) = pool.reads
    waiting.abandon()
    assert waiting._fetch.abandoned and not pool.reads


@ON_PURE
def test_read_records_are_returned(bench: Bench) -> None:
    pool, results = begin(bench, bench.led())
    pool.done()
    (found,) = results
    assert found.result is not None
    assert found.result.slice == RemoteSlice(RECORDS.records, RECORDS.length)


@ON_PURE
@pytest.mark.parametrize("leader", [OTHER, ME])
def test_records_read_in_another_leader_epoch_are_not_returned(bench: Bench, leader: int) -> None:
    """The read and the leader change happen in one loop iteration, so the wait has not ended."""
    partition = bench.led()
    pool, results = begin(bench, partition)
    image = led_by(leader, replicas=(1, 2), leader_epoch=1)
    partition.registration.leader_epoch, partition.is_leader = image.leader_epoch, leader == ME
    pool.done()
    (found,) = results
    assert (found.result, found.error) == (None, ErrorCode.FENCED_LEADER_EPOCH)


@ON_PURE
def test_records_read_for_a_replaced_log_are_not_returned(bench: Bench) -> None:
    partition = bench.led()
    pool, results = begin(bench, partition)
    other = bench.led("other")
    partition.log, before = other.log, partition.log
    pool.done()
    (found,) = results
    assert found.result == BOUNDS, "no records and no error: the client fetches again"
    partition.log = before
