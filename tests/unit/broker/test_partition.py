"""Partition: leadership by metadata, appends, and reads."""

from __future__ import annotations

from typing import Any

import pytest

from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.broker.replica.read_result import ReadResult
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.validation import InvalidRecords, Origin
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.broker.fixtures import ME, OTHER, Bench, batch, led_by


def read(partition: Partition, offset: int, max_bytes: int = 1 << 20, **options: Any) -> ReadResult:
    wanted: dict[str, Any] = {
        "min_one": True,
        "current_leader_epoch": None,
        "last_fetched_epoch": None,
        "committed": False,
        "follower": False,
        "only_leader": True,
    }
    return partition.read(Offset(offset), max_bytes, **(wanted | options))


def refusal(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


class TestRoles:
    def test_a_new_leader_writes_its_epoch_before_any_append(self, bench: Bench) -> None:
        partition = bench.led(leader_epoch=3)
        assert partition.is_leader and partition.leader_epoch == 3 and partition.leader_epoch_start_offset == 0
        assert partition.online_log.epochs.latest == 3

    def test_an_older_registration_is_ignored_and_an_equal_one_accepted(self, bench: Bench) -> None:
        partition = bench.led(leader_epoch=3)
        assert not partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=2))
        assert partition.is_leader
        assert partition.become(led_by(ME, leader_epoch=3))

    def test_a_partition_led_elsewhere_refuses_to_append_and_to_read(self, bench: Bench) -> None:
        partition = bench.led()
        partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
        with pytest.raises(KafkaError) as append:
            partition.append(batch(b"a"), 1)
        with pytest.raises(KafkaError) as fetch:
            read(partition, 0)
        assert refusal(append) == refusal(fetch) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_leader_epochs_are_checked_before_the_leadership(self, bench: Bench) -> None:
        partition = bench.led(leader_epoch=5)
        partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=6))
        codes = []
        for epoch in (5, 7, 6):
            with pytest.raises(KafkaError) as error:
                partition.require(epoch)
            codes.append(refusal(error))
        assert codes == [
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ]

    def test_a_partition_without_its_log_is_a_storage_error(self, bench: Bench) -> None:
        partition = bench.led()
        log = partition.online_log
        partition.take_offline()
        with pytest.raises(KafkaError) as error:
            read(partition, 0)
        assert refusal(error) is ErrorCode.KAFKA_STORAGE_ERROR and not partition.is_leader
        log.close()


class TestAppending:
    def test_a_single_replica_commits_at_the_append(self, bench: Bench) -> None:
        partition = bench.led(leader_epoch=2)
        info = partition.append(batch(b"a", b"b"), ACKS_ALL)
        assert (info.first_offset, info.last_offset, partition.high_watermark) == (0, 1, 2)
        assert partition.append(batch(b"c"), 1).first_offset == 2

    def test_acks_all_needs_min_insync_replicas_before_the_append(self, bench: Bench) -> None:
        topic = bench.topic("t", led_by(ME, replicas=(1, 2, 3)))
        partition = bench.host(topic, 0, min_insync_replicas=2)
        partition.become(led_by(ME, replicas=(1, 2, 3)))
        with pytest.raises(KafkaError) as error:
            partition.append(batch(b"a"), ACKS_ALL)
        assert refusal(error) is ErrorCode.NOT_ENOUGH_REPLICAS and partition.online_log.log_end_offset == 0
        partition.append(batch(b"a"), 1)
        assert partition.high_watermark == 0, "below min.insync.replicas nothing is committed"

    def test_min_insync_replicas_counts_no_more_than_the_assigned_replicas(self, bench: Bench) -> None:
        partition = bench.led(min_insync_replicas=2)
        assert partition.effective_min_isr == 1
        partition.append(batch(b"a"), ACKS_ALL)
        assert partition.high_watermark == 1

    def test_a_refused_batch_has_a_reason_and_appends_nothing(self, bench: Bench) -> None:
        partition = bench.led()
        damaged = batch(b"a")
        damaged[-1] ^= 1
        with pytest.raises(KafkaError) as error:
            partition.append(damaged, 1)
        assert refusal(error) is ErrorCode.CORRUPT_MESSAGE and not isinstance(error.value, InvalidRecords)
        assert partition.online_log.log_end_offset == 0

    def test_a_high_watermark_callback_is_called_once(self, bench: Bench) -> None:
        partition, heard = bench.led(), list[bool]()
        partition.on_high_watermark(Offset(1), heard.append, seconds=1)
        partition.append(batch(b"a"), 1, origin=Origin.COORDINATOR)
        partition.on_high_watermark(Offset(1), heard.append, seconds=1)
        partition.append(batch(b"b"), 1)
        assert heard == [True, True]

    def test_a_new_term_does_not_confirm_appends_of_an_earlier_one(self, bench: Bench) -> None:
        partition, heard = bench.led(), list[bool]()
        partition.on_high_watermark(Offset(1), heard.append, seconds=1)
        partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
        assert heard == [False]


class TestReading:
    def test_consumers_read_up_to_the_high_watermark_and_replicas_beyond(self, bench: Bench) -> None:
        topic = bench.topic("t", led_by(ME, replicas=(1, 2, 3)))
        partition = bench.host(topic, 0, min_insync_replicas=2)
        partition.become(led_by(ME, replicas=(1, 2, 3)))
        size = partition.append(batch(b"a"), 1).size
        assert read(partition, 0).slice.length == 0
        assert read(partition, 1).slice.length == 0, "between high watermark and log end is no error"
        assert read(partition, 0, follower=True).slice.length == size

    def test_an_offset_outside_of_the_log_is_out_of_range(self, bench: Bench) -> None:
        partition = bench.led()
        for value in (b"a", b"b", b"c"):
            partition.append(batch(value), 1)
        partition.delete_records(Offset(2))
        for offset in (1, 4):
            with pytest.raises(KafkaError) as error:
                read(partition, offset)
            assert refusal(error) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert read(partition, 2).log_start_offset == 2

    def test_a_diverging_reader_gets_the_end_of_its_epoch(self, bench: Bench) -> None:
        partition = bench.led(leader_epoch=1)
        partition.append(batch(b"a", b"b"), 1)
        partition.become(led_by(ME, leader_epoch=4))
        partition.append(batch(b"c"), 1)
        assert read(partition, 3, last_fetched_epoch=LeaderEpoch(1)).diverging == (1, 2)
        assert read(partition, 3, last_fetched_epoch=LeaderEpoch(3)).diverging == (1, 2)
        assert read(partition, 3, last_fetched_epoch=LeaderEpoch(4)).diverging is None
        assert read(partition, 2, last_fetched_epoch=LeaderEpoch(1)).diverging is None

    def test_an_unknown_epoch_is_out_of_range(self, bench: Bench) -> None:
        partition = bench.led(leader_epoch=1)
        with pytest.raises(KafkaError) as error:
            read(partition, 0, last_fetched_epoch=LeaderEpoch(9))
        assert refusal(error) is ErrorCode.OFFSET_OUT_OF_RANGE

    def test_deleting_records_stops_at_the_high_watermark(self, bench: Bench) -> None:
        partition = bench.led()
        partition.append(batch(b"a", b"b"), 1)
        with pytest.raises(KafkaError) as error:
            partition.delete_records(Offset(3))
        assert refusal(error) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.delete_records(None) == 2
        assert partition.delete_records(Offset(1)) == 1 and partition.low_watermark == 2
