"""A shard's log appends under its own leader epochs alone."""

from __future__ import annotations

from itertools import islice

import pytest

from milena.broker.groups.offsets_log import PartitionOffsetsLog
from milena.broker.replica.partition import Partition
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import iter_batches
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.broker.fixtures import ME, Bench, batch, led_by


def test_what_was_decided_in_an_earlier_leader_epoch_is_not_appended_in_the_next(bench: Bench) -> None:
    """The partition leads on in a new epoch, of which the shard has not heard: what it decides may be out of date."""
    partition = bench.led("__consumer_offsets")
    log = PartitionOffsetsLog(partition, LeaderEpoch(0), 1000)
    assert log.append(bytes(batch(b"x"))) == log.end == 1
    partition.become(led_by(ME, leader_epoch=1))
    with pytest.raises(KafkaError) as refused:
        log.append(bytes(batch(b"y")))
    assert (refused.value.code, log.end) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    log.set_leader_epoch(LeaderEpoch(1))
    assert log.append(bytes(batch(b"y"))) == 2


def test_a_log_whose_last_records_were_compacted_away_is_read_to_its_end(bench: Bench) -> None:
    partition = bench.led("__consumer_offsets")
    log = PartitionOffsetsLog(partition, LeaderEpoch(0), 1000)
    log.append(bytes(batch(b"x")))
    partition.online_log.end_at(Offset(5))
    assert [one.next_offset for piece in islice(log.pieces(), 9) for one in iter_batches(piece)] == [1]


class TestWaiting:
    """A write waits for its high watermark, which a follower in the ISR holds back here."""

    def begun(self, bench: Bench) -> tuple[Partition, list[ErrorCode]]:
        image = led_by(ME, replicas=(1, 2), isr=(1, 2))
        partition = bench.host(bench.topic("__consumer_offsets", image), 0)
        partition.become(image)
        log = PartitionOffsetsLog(partition, LeaderEpoch(0), 1000)
        told: list[ErrorCode] = []
        log.when_committed(log.append(bytes(batch(b"x"))), told.append)
        assert told == []
        return partition, told

    def test_a_leader_that_waits_for_too_long_says_so(self, bench: Bench) -> None:
        _, told = self.begun(bench)
        bench.clock.advance(1)
        assert told == [ErrorCode.REQUEST_TIMED_OUT]

    def test_a_leader_that_leads_on_in_another_epoch_does_not_answer_for_this_one(self, bench: Bench) -> None:
        partition, told = self.begun(bench)
        partition.become(led_by(ME, replicas=(1, 2), isr=(1, 2), leader_epoch=1))
        bench.clock.advance(1)
        assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    def test_a_leader_whose_log_directory_fails_leads_no_more_though_its_epoch_stays(self, bench: Bench) -> None:
        partition, told = self.begun(bench)
        log = partition.online_log
        partition.take_offline()
        log.close()
        assert (partition.leader_epoch, told) == (0, [ErrorCode.NOT_LEADER_OR_FOLLOWER])
