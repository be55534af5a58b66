"""Lines of the console producer, and output of the console consumer."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import pytest

from milena.client.consumer import ConsumedRecord
from milena.scripts.common.failures import ScriptError
from milena.scripts.console_producer import LineReader, Parsed
from milena.scripts.formatting import DEFAULT, NOTHING, formatter_of

KEYS = {"parse.key": "true", "key.separator": ":"}
HEADERS = {"parse.headers": "true", "parse.key": "TRUE"}


@pytest.mark.parametrize(
    ("properties", "line", "parsed"),
    [
        ({}, b"a:b\tc", Parsed(None, b"a:b\tc", [])),
        (KEYS, b"k:v:w", Parsed(b"k", b"v:w", [])),
        (KEYS, b":", Parsed(b"", b"", [])),
        (HEADERS, b"a:1,b:2\tk\tv", Parsed(b"k", b"v", [("a", b"1"), ("b", b"2")])),
        (HEADERS | {"null.marker": "-"}, b"-\t-\t-", Parsed(None, None, [])),
        (HEADERS | {"null.marker": "-"}, b"a:-\tk\tv", Parsed(b"k", b"v", [("a", None)])),
        (KEYS | {"ignore.error": "true"}, b"only", Parsed(None, b"only", [])),
        ({"parse.headers": "true", "ignore.error": "true"}, b"a\tv", Parsed(None, b"v", [("a", None)])),
    ],
)
def test_a_line_is_split_by_its_separators(properties: Mapping[str, str], line: bytes, parsed: Parsed) -> None:
    assert LineReader.of(properties).parse(line, 1) == parsed


@pytest.mark.parametrize(
    ("properties", "line", "said"),
    [
        (KEYS, b"kv", "No key separator found on line number 7: 'kv'"),
        (HEADERS, b"a:1", "No headers delimiter found on line number 7: 'a:1'"),
        (HEADERS, b"a\tk\tv", "No header key separator found in pair 'a' on line number 7"),
        (
            HEADERS | {"null.marker": "a"},
            b"a:1\tk\tv",
            "Header keys should not be equal to the null marker 'a' as they",
        ),
    ],
)
def test_a_missing_separator_is_an_error(properties: Mapping[str, str], line: bytes, said: str) -> None:
    with pytest.raises(ScriptError) as raised:
        LineReader.of(properties).parse(line, 7)
    assert raised.value.message.startswith(said)


def test_separators_must_differ() -> None:
    for properties, said in (
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator may not be equal"),
        ({"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
    ):
        with pytest.raises(ScriptError, match=said):
            LineReader.of(properties)


RECORD = ConsumedRecord("t", 2, 7, 1000, b"key", b"value", (("a", b"1"), ("b", None)), 3)


@pytest.mark.parametrize(
    ("properties", "record", "shown"),
    [
        ({}, RECORD, b"value\n"),
        ({}, RECORD._replace(value=None), b"null\n"),
        ({"null.literal": ""}, RECORD._replace(value=None), b"\n"),
        ({"print.key": "true", "key.separator": "="}, RECORD, b"key=value\n"),
        ({"print.key": "true", "print.value": "false", "line.separator": ";"}, RECORD, b"key;"),
        (
            {f"print.{name}": "true" for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers")},
            RECORD,
            b"CreateTime:1000\tPartition:2\tOffset:7\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\ta:1,b:null\tvalue\n",
        ),
        ({"print.timestamp": "true", "print.value": "false"}, RECORD._replace(appended=True), b"LogAppendTime:1000\n"),
        ({"print.timestamp": "true", "print.value": "false"}, RECORD._replace(timestamp=-1), b"NO_TIMESTAMP\n"),
        ({"print.headers": "true", "print.value": "false"}, RECORD._replace(headers=()), b"NO_HEADERS\n"),
        (
            {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"},
            RECORD._replace(value=struct.pack(">q", -5)),
            b"-5\n",
        ),
    ],
)
def test_the_properties_choose_what_is_printed(
    properties: Mapping[str, str], record: ConsumedRecord, shown: bytes
) -> None:
    assert formatter_of(DEFAULT[0], properties)(record) == shown


def test_a_number_must_have_its_size() -> None:
    long = {"value.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"}
    with pytest.raises(ScriptError, match="Size of data received by LongDeserializer is not 8"):
        formatter_of(DEFAULT[0], long)(RECORD)


def test_other_classes_are_refused_by_name() -> None:
    assert formatter_of(NOTHING[0], {})(RECORD) == b""
    with pytest.raises(ScriptError, match=r"--formatter my\.Formatter is not supported"):
        formatter_of("my.Formatter", {})
    with pytest.raises(ScriptError, match=r"the deserializer my\.Deserializer is not supported"):
        formatter_of(DEFAULT[0], {"key.deserializer": "my.Deserializer"})
