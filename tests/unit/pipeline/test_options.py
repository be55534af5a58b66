"""Options have the same meaning as in Spark's Kafka source, and errors name the wrong option."""

from __future__ import annotations

from typing import Any

import pytest

from milena.pipeline.errors import PipelineError
from milena.pipeline.options import EARLIEST, LATEST, STRATEGY, Bound, sink_options, source_options

AT = {"kafka.bootstrap.servers": "[::1]:9"}
SOUND = {"tier": "/tier", "subscribe": "orders"}


def test_a_batch_reads_all_offsets_by_default() -> None:
    found = source_options(SOUND)
    assert (found.starting.place, found.ending.place) == (EARLIEST, LATEST)
    assert (found.committed, found.fail_on_data_loss, found.headers) == (False, True, False)
    assert source_options(SOUND, streaming=True).starting.place == LATEST


def test_option_names_ignore_case_and_sizes_have_units() -> None:
    given = {
        "TIER": "/tier",
        "subscribepattern": "o.*",
        "MaxPartitionBytes": "64m",
        "kafka.bootstrap.servers": "[::1]:9",
    }
    found = source_options(given)
    assert (found.chosen.pattern, found.partition_bytes, found.bootstrap) == ("o.*", 64 << 20, (("::1", 9),))


def test_a_timestamp_option_overrides_an_offset_option() -> None:
    found = source_options(SOUND | {"startingTimestamp": "5", "startingOffsets": "earliest"})
    assert found.starting == Bound(timestamp=5, option="startingTimestamp")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "a"}, "specify option tier, kafka.bootstrap.servers or both, to say where the records are"),
        ({"tier": "/t"}, "one of the following options must be specified: assign, subscribe, subscribePattern"),
        (SOUND | {"assign": "{}"}, "only one of the following options can be specified: .*; assign and subscribe are"),
        (SOUND | {"ASSIGN": "{}"}, "only one of the following options can be specified: .*; assign and subscribe are"),
        (SOUND | {"Tier": "/other"}, "options Tier and tier are one option, given twice"),
        ({"tier": "/t", "subscribe": " , "}, "no topics to subscribe to: option subscribe=,"),
        ({"tier": "/t", "assign": "{}"}, "no topicpartitions to assign: option assign={}"),
        ({"tier": "/t", "assign": '{"a": []}'}, "no topicpartitions to assign"),
        (SOUND | {"path": "/other"}, "options tier=/tier and path=/other contradict each other"),
        (SOUND | {"startingOffset": "1"}, "option startingoffset is unknown; is startingOffsets meant?"),
        (SOUND | {"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        (SOUND | {"startingOffsets": '{"a":{"0":-1}}'}, r"startingOffsets for a-0 can't be latest \(-1\) for batch"),
        (SOUND | {"startingOffsets": '{"a":{"0":"x"}}'}, 'startingOffsets for a-0 is not an offset: "x"; use -1'),
        (SOUND | {"startingOffsets": '{"a":{"0":true}}'}, "option startingOffsets for a-0 is not an offset: true"),
        (SOUND | {"startingOffsets": '{"a":{"0":1.5}}'}, "option startingOffsets for a-0 is not an offset: 1.5"),
        (SOUND | {"startingOffsets": '{"a":{"0":-3}}'}, "option startingOffsets for a-0 is not an offset: -3"),
        (SOUND | {"startingOffsets": '{"a":{"0":9223372036854775808}}'}, "a-0 is not an offset: 9223372036854775808"),
        (SOUND | {"startingOffsets": '{"a":{"-1":0}}'}, "option startingOffsets: -1 is no partition of a"),
        (SOUND | {"startingOffsets": '{"a":{"0":1,"0":2}}'}, "option startingOffsets: 0 occurs twice in "),
        (SOUND | {"startingOffsets": '{"a":{"0":1,"00":2}}'}, "option startingOffsets: 00 is no partition of a"),
        (SOUND | {"startingOffsets": '{"a":[0]}'}, r'startingOffsets: expected earliest, latest or e\.g\. \{"topicA"'),
        (SOUND | {"startingOffsets": "soon"}, r"startingOffsets: expected earliest, latest or e\.g\. .*, got soon"),
        (SOUND | {"startingOffsets": "[" * 9000}, "option startingOffsets: expected earliest, latest"),
        (SOUND | {"startingTimestamp": "9" * 30}, "option startingTimestamp=9+ is not a time in milliseconds"),
        (SOUND | {"startingTimestamp": "-1"}, "option startingTimestamp=-1 is not a time in milliseconds"),
        (SOUND | {"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        (SOUND | {"endingOffsets": '{"a":{"0":-2}}'}, r"endingOffsets for a-0 can't be earliest \(-2\) for batch"),
        (SOUND | {"endingTimestamp": "now"}, "option endingTimestamp=now is not a time in milliseconds"),
        (SOUND | {"isolation.level": "all"}, "option isolation.level=all is neither"),
        (SOUND | {"failOnDataLoss": "no"}, "option failOnDataLoss=no is neither true nor false"),
        (SOUND | {"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger=0 is not a whole number above 0"),
        (SOUND | {"maxOffsetsPerTrigger": "10k"}, "option maxOffsetsPerTrigger=10k is not a whole number above 0"),
        (SOUND | {"maxPartitionBytes": "0m"}, "option maxPartitionBytes=0m is not a size above 0"),
        (SOUND | {"maxPartitionBytes": "1.5g"}, "option maxPartitionBytes=1.5g is not a size above 0"),
        (SOUND | {"maxPartitionBytes": "9999999999g"}, "option maxPartitionBytes=9999999999g is not a size above 0"),
        (SOUND | {"columns": "offset,key,offset"}, "option columns names offset twice"),
        (SOUND | {"kafka.bootstrap.servers": "host"}, "option kafka.bootstrap.servers: host is not HOST:PORT"),
        (SOUND | {"kafka.bootstrap.servers": "host:99999"}, "kafka.bootstrap.servers: host:99999 is not HOST:PORT"),
        (SOUND | {"kafka.bootstrap.servers": "host:0"}, "option kafka.bootstrap.servers: host:0 is not HOST:PORT"),
        (SOUND | {"kafka.bootstrap.servers": ", "}, "option kafka.bootstrap.servers=, names no broker"),
        (SOUND | {"startingOffsetsByTimestamp": "5"}, r"startingOffsetsByTimestamp: expected e\.g\. .*, got 5"),
        (SOUND | {"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "for a-0 is not a time in milliseconds .*: -1"),
        (SOUND | {"endingOffsetsByTimestamp": '{"a":{"-1":0}}'}, "endingOffsetsByTimestamp: -1 is no partition of a"),
        (
            SOUND | {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "endingOffsetsByTimestamp": '{"a":{"0":4}}'},
            "startingOffsetsByTimestamp and endingOffsetsByTimestamp contradict each other: a-0 would be read from 5",
        ),
        (SOUND | {STRATEGY: "earliest"}, f"option {STRATEGY}=earliest is neither error nor latest"),
        (SOUND | {"minPartitions": "0"}, "option minPartitions=0 is not a whole number above 0"),
        (SOUND | {"maxRecordsPerPartition": "-1"}, "option maxRecordsPerPartition=-1 is not a whole number above 0"),
        (SOUND | {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger=9 is higher than"),
        (SOUND | {"maxTriggerDelay": "soon"}, "option maxTriggerDelay=soon is not a duration"),
        (SOUND | {"maxTriggerDelay": "5 weeks"}, "option maxTriggerDelay=5 weeks is not a duration"),
        (SOUND | {"kafka.auto.offset.reset": "earliest"}, "'auto.offset.reset' is not supported: use option startingO"),
        (SOUND | {"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        (SOUND | {"kafka.Key.Deserializer": "x"}, "Kafka option 'key.deserializer' is not supported"),
        (SOUND | {"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol=SASL_SSL: only PLAINTEXT"),
        (SOUND | {"kafka.bootstrap.server": "h:1"}, "kafka.bootstrap.server is unknown; is kafka.bootstrap.servers m"),
        (SOUND | {"kafka.isolation.levels": "x"}, "kafka.isolation.levels is unknown; is kafka.isolation.level mean"),
        ({"tier": "/t", "subscribePattern": "("}, r"option subscribePattern=\( is not a pattern"),
        ({"tier": "/t", "subscribePattern": "a{99999999999}"}, "option subscribePattern=.* is not a pattern"),
        *(
            ({"tier": "/t", "assign": text}, r"option assign: expected e\.g\. .*, got ")
            for text in ('{"a": 1}', '{"a": "01"}', '{"a": [true]}', '{"a": [1.5]}', '{"a": ["0"]}', "[0]", "orders")
        ),
        ({"tier": "/t", "assign": '{"a": [-1]}'}, "option assign: -1 is no partition of a"),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": "a", "metadata": "/m"}, "option metadata .* requires option"),
        (SOUND | {"storageOptions": "{}"}, "option storageOptions is for a tier with a URL, but the tier is /tier"),
    ],
)  # fmt: skip
def test_errors_name_the_wrong_option(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        source_options(given)


def test_a_stream_takes_no_end_option() -> None:
    by_time = {"endingOffsetsByTimestamp": '{"orders":{"0":5}}'}
    for option in ({"endingOffsets": "latest"}, {"endingTimestamp": "5"}, by_time):
        with pytest.raises(PipelineError, match=f"option {next(iter(option))}: ending offset not valid in streaming"):
            source_options(SOUND | option, streaming=True)
    latest = source_options(SOUND | {"startingOffsets": '{"a":{"0":-1}}'}, streaming=True)
    assert latest.starting.offsets == {("a", 0): LATEST}


def test_a_partition_that_is_assigned_twice_is_read_once() -> None:
    found = source_options({"tier": "/t", "assign": '{"a": [1, 0, 1]}'})
    assert found.chosen.partitions == (("a", 1), ("a", 0))


def test_an_option_with_the_value_none_counts_as_not_given() -> None:
    given: Any = AT | {"subscribe": "orders", "tier": None, "includeHeaders": True, "maxOffsetsPerTrigger": 7}
    found = source_options(given)
    assert (found.tier, found.headers, found.per_trigger) == ("", True, 7)


def test_timestamps_by_partition_override_offsets_and_one_timestamp_overrides_both() -> None:
    by_time = SOUND | {"startingOffsetsByTimestamp": '{"orders":{"0":7,"1":8}}', "startingOffsets": "earliest"}
    found = source_options(by_time | {STRATEGY: "LATEST"}).starting
    assert (found.time_of(("orders", 1)), found.time_of(("orders", 2)), found.latest_if_none) == (8, None, True)
    assert not source_options(by_time | {STRATEGY: "error"}).starting.latest_if_none
    assert source_options(by_time | {"startingTimestamp": "5"}).starting.time_of(("orders", 1)) == 5
    assert not source_options(SOUND | {"endingTimestamp": "5", STRATEGY: "latest"}).ending.latest_if_none


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 900), ("1500", 1.5), ("10ms", 0.01), ("30s", 30), ("2 m", 120), ("2min", 120), ("1H", 3600), ("1d", 86400)],
)
def test_durations_have_sparks_units(text: str, seconds: float) -> None:
    assert source_options(SOUND | {"maxTriggerDelay": text}, streaming=True).longest_delay == pytest.approx(seconds)


JOB_FOR_KAFKA = {
    "kafka.bootstrap.servers": "localhost:9092",
    "kafka.group.id": "g",
    "kafka.security.protocol": "plaintext",
    "kafka.max.poll.records": "500",
    "kafka.ssl.truststore.location": "/x",
    "kafkaConsumer.pollTimeoutMs": "5000",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
    "groupIdPrefix": "p",
    "failOnDataLoss": "false",
    "minPartitions": "12",
    "maxRecordsPerPartition": "1000",
    "minOffsetsPerTrigger": "10",
    "maxOffsetsPerTrigger": "100",
    "maxTriggerDelay": "1m",
    "subscribe": "orders",
}


def test_the_options_of_a_job_for_sparks_kafka_source_are_accepted() -> None:
    found = source_options(JOB_FOR_KAFKA, streaming=True)
    without_effect = (
        "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "kafka.group.id",
        "kafka.max.poll.records", "kafka.security.protocol", "kafka.ssl.truststore.location",
        "kafkaConsumer.pollTimeoutMs",
    )  # fmt: skip
    assert found.ignored == without_effect
    assert (found.least_tasks, found.records_per_task, found.least_per_trigger, found.per_trigger) == (
        12,
        1000,
        10,
        100,
    )
    of_triggers = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
    assert source_options(JOB_FOR_KAFKA).ignored == without_effect + of_triggers


def test_the_sink_accepts_the_options_of_sparks_connector() -> None:
    more = {"topic": "to", "kafka.acks": "all", "kafka.linger.ms": "5", "includeHeaders": "true"}
    found = sink_options(JOB_FOR_KAFKA | more)
    assert found.topic == "to" and {"kafka.acks", "kafka.linger.ms", "includeHeaders", "subscribe"} <= {*found.ignored}
    for option, sentence in (
        ("kafka.key.serializer", "Kafka option 'key.serializer' is not supported"),
        ("kafka.security.protocol", "only PLAINTEXT is supported"),
        ("tier", "option tier is unknown"),
    ):
        with pytest.raises(PipelineError, match=sentence):
            sink_options(AT | {"topic": "to", option: "SSL"})
