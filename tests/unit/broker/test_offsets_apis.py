"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers and DescribeConfigs over real logs."""

from __future__ import annotations

from typing import Any, cast

import pytest

from milena.broker.apis import (
    delete_records,
    describe_configs,
    describe_producers,
    list_offsets,
    offset_for_leader_epoch,
)
from milena.config.node_config import NodeConfig
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.broker.fixtures import ME, OTHER, Bench, batch, led_by

LATEST_TIERED, PENDING = -5, -6


def offsets(bench: Bench, *timestamps: int, version: int = 11, replica: int = -1, **options: Any) -> list[Any]:
    partitions = [{"partition_index": 0, "timestamp": timestamp, **options} for timestamp in timestamps]
    answers = []
    for one in partitions:
        topics = [{"name": "t", "partitions": [one]}]
        answer = bench.ask(list_offsets.handle, ApiKey.LIST_OFFSETS, version, replica_id=replica, topics=topics)
        found = answer.topics[0].partitions[0]
        epoch = messages.get(found, "leader_epoch", None)
        answers.append((int(found.error_code), found.offset, found.timestamp, epoch))
    return answers


def in_tier(bench: Bench, *, copied: int) -> UnifiedLog:
    """Make the log one of a tiered topic whose offsets up to ``copied`` are in the tier."""
    log = bench.partitions.get("t", 0).online_log
    log.remote_enabled = True
    log.set_highest_offset_in_remote_storage(Offset(copied))
    return log


class TestListOffsets:
    @pytest.fixture
    def log(self, bench: Bench) -> Bench:
        partition = bench.led(leader_epoch=1)
        for value, timestamp in ((b"a", 1000), (b"b", 3000), (b"c", 2000)):
            partition.append(batch(value, timestamp=timestamp), 1)
        return bench

    @pytest.mark.parametrize("version", range(1, 12))
    def test_the_ends_of_the_log(self, log: Bench, version: int) -> None:
        epoch = 1 if version >= 4 else None
        assert offsets(log, -1, -2, version=version) == [(0, 3, -1, epoch), (0, 0, -1, epoch)]

    def test_by_timestamp(self, log: Bench) -> None:
        assert offsets(log, 0, 1001, 3000, 3001) == [(0, 0, 1000, 1), (0, 1, 3000, 1), (0, 1, 3000, 1), (0, -1, -1, -1)]

    def test_the_largest_timestamp_and_the_tier(self, log: Bench) -> None:
        assert offsets(log, -3, -4, -5, -6) == [(0, 1, 3000, 1), (0, 0, -1, 1), (0, -1, -1, -1), (0, -1, -1, -1)]

    def test_latest_tiered_and_earliest_pending_upload(self, log: Bench) -> None:
        tiered = in_tier(log, copied=0)
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, 0, -1, 1), (0, 1, -1, 1)]
        tiered.epochs.assign(LeaderEpoch(2), Offset(1))
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, 0, -1, 1), (0, 1, -1, 2)]

    def test_without_remote_segments_the_log_start_is_pending_upload(self, log: Bench) -> None:
        in_tier(log, copied=-1)
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, -1, -1, -1), (0, 0, -1, 1)]

    def test_with_unknown_remote_segments_pending_upload_is_unknown(self, log: Bench) -> None:
        tiered = in_tier(log, copied=-1)
        tiered.raise_highest_offset_in_remote_storage(Offset(0))
        tiered.move_local_start(Offset(1))
        tiered.set_highest_offset_in_remote_storage(Offset(-1))
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, -1, -1, -1)] * 2
        assert offsets(log, PENDING, replica=2) == [(0, -1, -1, -1)]

    def test_pending_upload_is_not_below_the_log_start(self, log: Bench) -> None:
        in_tier(log, copied=0)
        log.partitions.get("t", 0).delete_records(Offset(2))
        assert offsets(log, PENDING) == [(0, 2, -1, 1)]

    def test_offsets_beyond_the_readable_end_are_not_returned(self, log: Bench) -> None:
        tiered = in_tier(log, copied=2)
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, 2, -1, 1), (0, -1, -1, -1)]
        tiered.set_high_watermark(Offset(2))
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, -1, -1, -1)] * 2
        assert offsets(log, LATEST_TIERED, PENDING, replica=2) == [(0, 2, -1, 1), (0, -1, -1, -1)]
        tiered.set_highest_offset_in_remote_storage(Offset(1))
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, 1, -1, 1), (0, -1, -1, -1)]
        assert offsets(log, PENDING, replica=2) == [(0, 2, -1, 1)]

    def test_a_topic_that_is_no_longer_tiered_has_no_tier_offsets(self, log: Bench) -> None:
        in_tier(log, copied=1).remote_enabled = False
        assert offsets(log, LATEST_TIERED, PENDING) == [(0, -1, -1, -1)] * 2

    @pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)])
    def test_special_timestamps_need_their_version(self, log: Bench, timestamp: int, since: int) -> None:
        assert offsets(log, timestamp, version=since - 1)[0][0] == ErrorCode.UNSUPPORTED_VERSION

    def test_a_partition_twice_in_a_request_is_invalid(self, log: Bench) -> None:
        one = {"partition_index": 0, "timestamp": -1}
        topics = [{"name": "t", "partitions": [one, one]}]
        answer = log.ask(list_offsets.handle, ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=topics)
        assert [int(found.error_code) for found in answer.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]

    def test_a_topic_without_partitions_is_left_out(self, log: Bench) -> None:
        topics = [{"name": "t", "partitions": []}]
        answer = log.ask(list_offsets.handle, ApiKey.LIST_OFFSETS, 5, replica_id=-1, topics=topics)
        assert not answer.topics

    def test_epochs_are_checked(self, log: Bench) -> None:
        assert offsets(log, -1, current_leader_epoch=0)[0][0] == ErrorCode.FENCED_LEADER_EPOCH
        assert offsets(log, -1, current_leader_epoch=2)[0][0] == ErrorCode.UNKNOWN_LEADER_EPOCH

    def test_only_a_debugging_replica_may_query_a_follower(self, log: Bench) -> None:
        log.partitions.get("t", 0).become(led_by(OTHER, replicas=(1, 2), leader_epoch=2))
        assert offsets(log, -1)[0][0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert offsets(log, -1, replica=-2)[0][:2] == (0, 3)

    def test_a_leader_with_a_lagging_high_watermark_returns_offset_not_available(self, log: Bench) -> None:
        partition = log.partitions.get("t", 0)
        partition.online_log.set_high_watermark(partition.online_log.log_start_offset)
        assert partition.leader_state is not None
        partition.leader_state.start_offset = partition.online_log.log_end_offset
        assert offsets(log, -1, 3000)[0][0] == ErrorCode.OFFSET_NOT_AVAILABLE
        assert offsets(log, 3000)[0][0] == ErrorCode.OFFSET_NOT_AVAILABLE
        assert offsets(log, -1, version=4)[0][0] == ErrorCode.LEADER_NOT_AVAILABLE
        assert offsets(log, -2)[0][0] == 0
        assert offsets(log, -1, replica=2)[0][:2] == (0, 3)


def test_the_end_of_a_leader_epoch(bench: Bench) -> None:
    partition = bench.led(leader_epoch=1)
    partition.append(batch(b"a", b"b"), 1)
    partition.become(led_by(ME, leader_epoch=4))
    partition.append(batch(b"c"), 1)

    def ask(epoch: int, current: int = -1) -> tuple[int, int, int]:
        wanted = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        topics = [{"topic": "t", "partitions": [wanted]}]
        answer = bench.ask(offset_for_leader_epoch.handle, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, topics=topics)
        found = answer.topics[0].partitions[0]
        return int(found.error_code), found.leader_epoch, found.end_offset

    assert [ask(epoch) for epoch in (0, 1, 3, 4, 5)] == [(0, 0, 0), (0, 1, 2), (0, 1, 2), (0, 4, 3), (0, -1, -1)]
    assert ask(4, current=3) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


def test_records_are_deleted_up_to_an_offset(bench: Bench) -> None:
    bench.led().append(batch(b"a", b"b", b"c"), 1)
    bench.led("compact", cleanup_policy="compact")
    bench.led("__consumer_offsets")

    def ask(topic: str, offset: int) -> tuple[int, int]:
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
        answer = bench.ask(delete_records.handle, ApiKey.DELETE_RECORDS, 2, topics=topics)
        found = answer.topics[0].partitions[0]
        return int(found.error_code), found.low_watermark

    assert ask("t", 2) == (0, 2)
    assert ask("t", -1) == (0, 3)
    assert ask("t", 9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert ask("compact", 0) == (ErrorCode.POLICY_VIOLATION, -1)
    assert ask("__consumer_offsets", 0) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert ask("none", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_active_producers_are_described(bench: Bench) -> None:
    bench.led().append(batch(b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=5), 1)
    topics = [{"name": "t", "partition_indexes": [0, 1]}]
    answer = bench.ask(describe_producers.handle, ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    found, lost = answer.topics[0].partitions
    (producer,) = found.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 6)
    assert producer.current_txn_start_offset == -1
    assert int(lost.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestDescribeConfigs:
    def ask(self, bench: Bench, kind: int, name: str, keys: list[str] | None = None, **options: Any) -> Any:
        resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
        options = {"include_synonyms": True, **options}
        return bench.ask(describe_configs.handle, ApiKey.DESCRIBE_CONFIGS, 4, resources=resources, **options).results[0]

    def test_a_type_without_configuration_fails_the_request_as_a_whole(self, bench: Bench) -> None:
        bench.topic("t", led_by(ME))
        asked = [{"resource_type": kind, "resource_name": "t", "configuration_keys": None} for kind in (2, 99)]
        answer = bench.ask(describe_configs.handle, ApiKey.DESCRIBE_CONFIGS, 4, resources=asked)
        assert [(one.error_code, one.configs) for one in answer.results] == [(ErrorCode.INVALID_REQUEST, ())] * 2

    def test_topic_configs_have_their_sources(self, bench: Bench) -> None:
        bench.topic("t", led_by(ME))
        bench.image.configs[2, "t"] = {"retention.bytes": "5"}
        bench.config = bench.config.with_dynamic(default={"log.segment.bytes": "20971520"}, broker={})
        result = self.ask(bench, 2, "t", ["retention.bytes", "segment.bytes", "retention.ms"])
        found = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
        assert found == {
            "retention.bytes": ("5", 1),
            "segment.bytes": ("20971520", 3),
            "retention.ms": ("604800000", 5),
        }
        synonyms = {entry.name: [(s.name, s.source) for s in entry.synonyms] for entry in result.configs}
        assert synonyms["retention.bytes"] == [("retention.bytes", 1), ("log.retention.bytes", 5)]
        assert synonyms["retention.ms"] == []

    def test_documentation_is_returned_if_requested(self, bench: Bench) -> None:
        bench.topic("t", led_by(ME))
        (plain,) = self.ask(bench, 2, "t", ["retention.ms"]).configs
        (documented,) = self.ask(bench, 2, "t", ["retention.ms"], include_documentation=True).configs
        assert plain.documentation is None and documented.documentation

    def test_a_broker_describes_only_itself(self, bench: Bench) -> None:
        mine = self.ask(bench, 4, "1", ["log.dirs", "num.io.threads", "log.segment.bytes"])
        assert {entry.name: entry.read_only for entry in mine.configs}["log.segment.bytes"] is False
        other = self.ask(bench, 4, "2")
        assert int(other.error_code) == ErrorCode.INVALID_REQUEST and "expected 1" in other.error_message
        assert int(self.ask(bench, 2, "none").error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert int(self.ask(bench, 2, "a b").error_code) == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_internal_keys_are_shown_if_they_are_set(self, bench: Bench) -> None:
        keys = ["log.initial.task.delay.ms", "server.max.startup.time.ms"]
        assert not self.ask(bench, 4, "1", keys).configs
        bench.config = NodeConfig.of(log_initial_task_delay_ms="7")
        assert [entry.name for entry in self.ask(bench, 4, "1", keys).configs] == keys[:1]

    def test_the_defaults_of_all_brokers_are_the_dynamic_ones(self, bench: Bench) -> None:
        bench.config = bench.config.with_dynamic(default={"log.retention.ms": "7"}, broker={"log.retention.ms": "8"})
        (entry,) = self.ask(bench, 4, "").configs
        assert (entry.name, entry.value, entry.config_source) == ("log.retention.ms", "7", 3)

    def test_loggers_of_the_broker(self, bench: Bench) -> None:
        levels = {entry.name: entry for entry in self.ask(bench, 8, "1").configs}
        assert levels["isr"].value == levels["root"].value == "INFO"
        assert {entry.config_source for entry in levels.values()} == {6}
        assert {int(entry.config_type) for entry in levels.values()} == {0}

    def test_repeated_resources_are_refused(self, bench: Bench) -> None:
        one = {"resource_type": 4, "resource_name": str(bench.config.node_id), "configuration_keys": ["node.id"]}
        request = messages.build_request(ApiKey.DESCRIBE_CONFIGS, 4, resources=[one] * 5_000)
        answer: Any = describe_configs.handle(cast(Any, bench), cast(Any, None), request)
        with pytest.raises(KafkaError) as refused:
            list(answer)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
