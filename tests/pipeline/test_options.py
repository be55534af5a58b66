"""Options have the meaning that Spark's Kafka source gives them, and what is wrong is named."""

from __future__ import annotations

import pytest

from milena.pipeline.errors import PipelineError
from milena.pipeline.options import EARLIEST, LATEST, Bound, source_options

AT = {"kafka.bootstrap.servers": "[::1]:9"}
SOUND = {"tier": "/tier", "subscribe": "orders"}


def test_a_batch_reads_all_unless_it_is_told_otherwise() -> None:
    found = source_options(SOUND)
    assert (found.starting.place, found.ending.place) == (EARLIEST, LATEST)
    assert (found.committed, found.fail_on_data_loss, found.headers) == (False, True, False)
    assert source_options(SOUND, streaming=True).starting.place == LATEST


def test_names_are_of_either_case_and_sizes_have_units() -> None:
    given = {
        "TIER": "/tier",
        "subscribepattern": "o.*",
        "MaxPartitionBytes": "64m",
        "kafka.bootstrap.servers": "[::1]:9",
    }
    found = source_options(given)
    assert (found.chosen.pattern, found.partition_bytes, found.bootstrap) == ("o.*", 64 << 20, (("::1", 9),))


def test_a_time_goes_before_offsets() -> None:
    found = source_options(SOUND | {"startingTimestamp": "5", "startingOffsets": "earliest"})
    assert found.starting == Bound(timestamp=5, option="startingTimestamp")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "a"}, "say where the records are: option tier, kafka.bootstrap.servers or both"),
        ({"tier": "/t"}, "nothing is subscribed to: set one of assign, subscribe, subscribePattern"),
        (SOUND | {"assign": "{}"}, "options assign and subscribe contradict each other"),
        (SOUND | {"path": "/other"}, "options tier=/tier and path=/other contradict each other"),
        (SOUND | {"startingOffset": "1"}, "option startingoffset is unknown; is startingOffsets meant?"),
        (SOUND | {"startingOffsets": "latest"}, "option startingOffsets=latest is for streaming queries"),
        (SOUND | {"startingOffsets": '{"a":{"0":-1}}'}, "option startingOffsets has latest"),
        (SOUND | {"startingOffsets": '{"a":{"0":"x"}}'}, "option startingOffsets: partition 0 of a has no offset"),
        (SOUND | {"startingOffsets": "soon"}, "option startingOffsets=soon is neither earliest nor latest nor a JSON"),
        (SOUND | {"endingOffsets": "earliest"}, "option endingOffsets=earliest"),
        (SOUND | {"endingTimestamp": "now"}, "option endingTimestamp=now is not a time in milliseconds"),
        (SOUND | {"isolation.level": "all"}, "option isolation.level=all is neither"),
        (SOUND | {"failOnDataLoss": "no"}, "option failOnDataLoss=no is neither true nor false"),
        (SOUND | {"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger=0 is not a number above 0"),
        (SOUND | {"kafka.bootstrap.servers": "host"}, "option kafka.bootstrap.servers: host is not HOST:PORT"),
        ({"tier": "/t", "subscribePattern": "("}, r"option subscribePattern=\( is not a pattern"),
        ({"tier": "/t", "assign": '{"a": 1}'}, "option assign="),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": "a", "metadata": "/m"}, "option metadata .* needs option"),
        (SOUND | {"storageOptions": "{}"}, "option storageOptions goes with a URL, and the tier is /tier"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        source_options(given)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(PipelineError, match="a streaming query has no end"):
        source_options(SOUND | {"endingOffsets": "latest"}, streaming=True)
