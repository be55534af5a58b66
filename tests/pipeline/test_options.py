"""Options have the same meaning as in Spark's Kafka source, and errors name the wrong option."""

from __future__ import annotations

from typing import Any

import pytest

from milena.pipeline.errors import PipelineError
from milena.pipeline.options import EARLIEST, LATEST, Bound, source_options

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
    for option in ({"endingOffsets": "latest"}, {"endingTimestamp": "5"}):
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
