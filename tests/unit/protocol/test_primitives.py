"""Primitive types: read back, refused where they cannot be."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import writers

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests.headers import parse_request_header
from milena.protocol.requests.scan import text_at
from milena.protocol.schemas.primitives import Reader, Writer
from milena.protocol.schemas.undecodable import DecodeError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=300)


def written(method: str, *values: Any) -> bytes:
    out = Writer()
    getattr(out, method)(*values)
    return bytes(out)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_are_read_back(value: int) -> None:
    reader = Reader(written("uvarint", value))
    assert reader.uvarint() == value
    reader.expect_end()


@given(st.lists(INT32))
def test_numbers_that_are_written_at_once_have_the_same_bytes(values: list[int]) -> None:
    data = written("int32s", values)
    assert data == b"".join(written("int32", value) for value in values)
    assert Reader(data).int32s(len(values)) == tuple(values)
    with pytest.raises(DecodeError):
        Reader(data).int32s(len(values) + 1)


@given(INT32)
def test_signed_varints_are_zigzag(value: int) -> None:
    data = written("varint", value)
    assert Reader(data).varint() == value
    assert data == written("uvarint", (value << 1) ^ (value >> 31) & 0xFFFFFFFF if value >= 0 else 2 * -value - 1)


@given(INT64)
def test_signed_varlongs_are_read_back(value: int) -> None:
    assert Reader(written("varlong", value)).varlong() == value


@given(TEXT, st.binary(max_size=300))
def test_strings_and_bytes_are_read_back_in_every_form(text: str, data: bytes) -> None:
    for method in ("string", "nullable_string", "compact_string", "compact_nullable_string"):
        assert getattr(Reader(written(method, text)), method)() == text
    for method in ("blob", "nullable_blob", "compact_blob", "compact_nullable_blob"):
        assert getattr(Reader(written(method, data)), method)() == data


@pytest.mark.parametrize(
    "method", ["nullable_string", "compact_nullable_string", "nullable_blob", "compact_nullable_blob"]
)
def test_null_is_read_back_where_it_may_be(method: str) -> None:
    data = written(method, None)
    assert getattr(Reader(data), method)() is None
    with pytest.raises(DecodeError, match="null where a value must be"):
        getattr(Reader(data), method.replace("nullable_", ""))()


@pytest.mark.parametrize(
    "method", ["int8", "int16", "int32", "int64", "uint16", "uint32", "float64", "uuid", "boolean"]
)
def test_a_value_that_ends_too_early_is_refused(method: str) -> None:
    value: Any = {"uuid": UUID(int=3), "boolean": True}.get(method, 1)
    data = written(method, value)
    assert getattr(Reader(data), method)() == value
    for size in range(len(data)):
        reader = Reader(data[:size])
        with pytest.raises(DecodeError):
            getattr(reader, method)()
        assert reader.pos == 0


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(DecodeError, match="longer than 5 bytes"):
        Reader(b"\x80" * 9).uvarint()
    with pytest.raises(DecodeError, match="end within"):
        Reader(b"\x80\x80").uvarint()
    with pytest.raises(DecodeError, match="end within"):
        Reader(b"").uvarint()


def test_a_negative_unsigned_varint_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="negative"):
        written("uvarint", -1)


@pytest.mark.parametrize(
    ("method", "data"),
    [
        ("string", b"\x00\x05abcd"),
        ("string", b"\xff\xfeabcd"),
        ("compact_string", b"\x06abcd"),
        ("blob", b"\x7f\xff\xff\xffabcd"),
        ("nullable_blob", b"\xff\xff\xff\xfeabcd"),
        ("compact_blob", b"\xff\xff\xff\xff\x0fabcd"),
        ("array", b"\x00\x00\x00\x05abcd"),
        ("array", b"\x80\x00\x00\x00abcd"),
        ("compact_array", b"\x06abcd"),
    ],
)
def test_a_length_beyond_the_bytes_is_refused(method: str, data: bytes) -> None:
    with pytest.raises(DecodeError):
        getattr(Reader(data), method)()


def test_a_string_longer_than_an_int16_is_refused_in_both_forms() -> None:
    text = "x" * 32_768
    for method in ("string", "compact_string"):
        with pytest.raises(ValueError, match="longer than 32767"):
            written(method, text)
    with pytest.raises(DecodeError, match="longer than 32767"):
        Reader(written("uvarint", 32_769) + text.encode()).compact_string()


def test_bytes_that_are_no_utf8_become_replacement_characters_as_in_java() -> None:
    assert Reader(b"\x00\x03a\xffb").string() == "a\ufffdb"


@pytest.mark.parametrize(
    "read",
    [
        lambda data: Reader(len(data).to_bytes(2, "big") + data).string(),
        lambda data: text_at(len(data).to_bytes(2, "big") + data, 0, False)[0],
        lambda data: (
            parse_request_header(
                memoryview(bytes([0, ApiKey.METADATA, 0, 0, 0, 0, 0, 0]) + len(data).to_bytes(2, "big") + data)
            )[0].client_id
        ),
    ],
    ids=["a reader", "a hot codec", "a header"],
)
def test_no_string_grows_beyond_what_could_be_sent_back(read: Callable[[bytes], str]) -> None:
    assert len(read(b"\xff" * 10_922)) == 10_922
    assert len(read(b"a" * 32_767)) == 32_767
    with pytest.raises(DecodeError, match="not UTF-8"):
        read(b"\xff" * 10_923)


def test_the_zero_uuid_is_none_where_it_may_be() -> None:
    assert Reader(bytes(16)).uuid() == UUID(int=0)
    assert Reader(bytes(16)).nullable_uuid() is None
    assert written("uuid", None) == bytes(16)


def test_tagged_fields_are_iterated_and_skipped() -> None:
    out = Writer()
    out.uvarint(2)
    out.tag(1, b"one")
    out.tag(500, b"")
    out.raw(b"rest")
    reader = Reader(out.data)
    assert [(tag, bytes(content.rest())) for tag, content in reader.tags()] == [(1, b"one"), (500, b"")]
    assert bytes(reader.rest()) == b"rest"
    reader = Reader(out.data)
    reader.skip_tags()
    assert bytes(reader.rest()) == b"rest"
    with pytest.raises(DecodeError):
        Reader(b"\x01\x00\x05abc").skip_tags()


@given(INT32, INT64, st.booleans())
def test_numbers_are_written_as_kio_writes_them(small: int, large: int, truth: bool) -> None:
    buffer = io.BytesIO()
    writers.write_int32(buffer, small)  # type: ignore[arg-type]
    writers.write_int64(buffer, large)  # type: ignore[arg-type]
    writers.write_boolean(buffer, truth)
    out = Writer()
    out.int32(small)
    out.int64(large)
    out.boolean(truth)
    assert bytes(out) == buffer.getvalue()
