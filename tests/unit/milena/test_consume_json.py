"""`milena consume --json` loses no byte of a record."""

from __future__ import annotations

import json
from base64 import b64decode

from milena.client.consumer import ConsumedRecord
from milena.commands.consume import record_of

RECORD = ConsumedRecord("t", 0, 7, 1000, b"key", b"value", (), 0)


def printed(record: ConsumedRecord) -> dict[str, object]:
    found = json.loads(json.dumps(record_of(record)))
    assert isinstance(found, dict)
    return found


def test_text_is_printed_unchanged() -> None:
    assert printed(RECORD) == {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestamp": 1000,
        "key": "key",
        "value": "value",
        "headers": [],
    }


def test_bytes_that_are_not_utf_8_are_in_base64() -> None:
    found = printed(RECORD._replace(key=b"\xff\x00", value=b"\xc3("))
    assert (found["key_encoding"], found["value_encoding"]) == ("base64", "base64")
    assert (b64decode(str(found["key"])), b64decode(str(found["value"]))) == (b"\xff\x00", b"\xc3(")


def test_text_that_looks_like_base64_has_no_encoding_field() -> None:
    assert "value_encoding" not in printed(RECORD._replace(value=b"wyg="))


def test_headers_have_their_encoding() -> None:
    headers = (("a", b"text"), ("b", b"\xff"), ("c", None))
    assert printed(RECORD._replace(headers=headers))["headers"] == [["a", "text"], ["b", "/w==", "base64"], ["c", None]]


def test_a_missing_key_or_value_is_null() -> None:
    found = printed(RECORD._replace(key=None, value=None))
    assert (found["key"], found["value"]) == (None, None)
