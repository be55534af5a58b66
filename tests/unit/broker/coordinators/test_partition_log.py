"""PartitionLog refuses writes in another leader epoch."""

from __future__ import annotations

from itertools import islice
from types import SimpleNamespace

import pytest

from milena.broker.coordinators.partition_log import PIECE_BYTES, PartitionLog
from milena.broker.replica.partition import Partition
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import CorruptBatch, iter_batches
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.broker.fixtures import ME, Bench, batch, led_by


def test_a_write_of_an_earlier_leader_epoch_is_refused(bench: Bench) -> None:
    """The shard has not been notified of the new epoch, so its decision may be outdated."""
    partition = bench.led("__consumer_offsets")
    log = PartitionLog(partition, LeaderEpoch(0), commit_timeout_ms=1000, load_bytes=1 << 20)
    assert log.append(bytes(batch(b"x"))) == log.end == 1
    partition.become(led_by(ME, leader_epoch=1))
    with pytest.raises(KafkaError) as refused:
        log.append(bytes(batch(b"y")))
    assert (refused.value.code, log.end) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    log.set_leader_epoch(LeaderEpoch(1))
    assert log.append(bytes(batch(b"y"))) == 2


def test_a_log_without_its_last_records_after_compaction_is_read_to_its_end(bench: Bench) -> None:
    partition = bench.led("__consumer_offsets")
    log = PartitionLog(partition, LeaderEpoch(0), commit_timeout_ms=1000, load_bytes=1 << 20)
    log.append(bytes(batch(b"x")))
    partition.online_log.end_at(Offset(5))
    assert [one.next_offset for piece in islice(log.pieces(), 9) for one in iter_batches(piece)] == [1]


def test_a_log_whose_next_batch_is_damaged_is_not_read_for_ever(bench: Bench) -> None:
    """A length beyond the segment: the rest of the segment is no complete batch."""
    partition = bench.led("__consumer_offsets")
    log = PartitionLog(partition, LeaderEpoch(0), commit_timeout_ms=1000, load_bytes=1 << 20)
    log.append(bytes(batch(b"x")))
    log.append(bytes(batch(b"y")))
    segment = partition.online_log.segments.active
    segment.file().pwrite(b"\x00\x10\x00\x00", segment.size // 2 + 8)
    with pytest.raises(CorruptBatch):
        list(islice(log.pieces(), 9))


class CountedReads:
    """A partition's log that counts how often it is read."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log_start_offset, self.log_end_offset = log.log_start_offset, log.log_end_offset
        self._log = log
        self.reads = 0

    def read_bytes(self, offset: Offset, max_bytes: int, *, upper: Offset, min_one: bool) -> memoryview:
        self.reads += 1
        return self._log.read_bytes(offset, max_bytes, upper=upper, min_one=min_one)


@pytest.mark.parametrize(("load_bytes", "reads"), [(1, 10), (3 * PIECE_BYTES, 5), (1 << 20, 1)])
def test_as_much_as_configured_is_read_at_once_and_loaded_in_pieces(bench: Bench, load_bytes: int, reads: int) -> None:
    partition = bench.led("__consumer_offsets")
    written = PartitionLog(partition, LeaderEpoch(0), commit_timeout_ms=1000, load_bytes=1)
    for _ in range(10):
        written.append(bytes(batch(b"x" * PIECE_BYTES)))
    counted = CountedReads(partition.online_log)
    log = PartitionLog(
        SimpleNamespace(online_log=counted),  # type: ignore[arg-type]
        LeaderEpoch(0),
        commit_timeout_ms=1000,
        load_bytes=load_bytes,
    )
    ends = [[one.next_offset for one in iter_batches(piece)] for piece in log.pieces()]
    assert ends == [[offset] for offset in range(1, 11)], "a batch that is longer than a piece is one"
    assert counted.reads == reads


class TestWaiting:
    """A write that waits for the high watermark, because a follower in the ISR does not fetch."""

    def waiting_commit(self, bench: Bench) -> tuple[Partition, list[ErrorCode]]:
        image = led_by(ME, replicas=(1, 2), isr=(1, 2))
        partition = bench.host(bench.topic("__consumer_offsets", image), 0)
        partition.become(image)
        log = PartitionLog(partition, LeaderEpoch(0), commit_timeout_ms=1000, load_bytes=1 << 20)
        results: list[ErrorCode] = []
        log.when_committed(log.append(bytes(batch(b"x"))), results.append)
        assert results == []
        return partition, results

    def test_a_commit_that_takes_too_long_times_out(self, bench: Bench) -> None:
        _, results = self.waiting_commit(bench)
        bench.clock.advance(1)
        assert results == [ErrorCode.REQUEST_TIMED_OUT]

    def test_a_commit_of_an_earlier_leader_epoch_fails(self, bench: Bench) -> None:
        partition, results = self.waiting_commit(bench)
        partition.become(led_by(ME, replicas=(1, 2), isr=(1, 2), leader_epoch=1))
        bench.clock.advance(1)
        assert results == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    def test_a_failed_log_directory_fails_waiting_commits(self, bench: Bench) -> None:
        partition, results = self.waiting_commit(bench)
        log = partition.online_log
        partition.take_offline()
        log.close()
        assert (partition.leader_epoch, results) == (0, [ErrorCode.NOT_LEADER_OR_FOLLOWER])
