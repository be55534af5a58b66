"""Request and response headers of both generations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests.headers import (
    RequestHeader,
    parse_request_header,
    parse_response_header,
    request_header,
    response_header,
)
from milena.protocol.schemas.registry import REGISTRY
from milena.protocol.schemas.undecodable import DecodeError

VERSIONS = [(api.key, version) for api in REGISTRY.values() for version in range(api.kafka.min, api.kafka.max + 1)]


@given(
    st.sampled_from(VERSIONS),
    st.integers(-(2**31), 2**31 - 1),
    st.one_of(st.none(), st.text(max_size=50)),
    st.binary(max_size=20),
)
def test_headers_are_read_back_with_the_body_behind_them(
    api: tuple[ApiKey, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    key, version = api
    request = memoryview(request_header(key, version, correlation_id, client_id) + body)
    header, rest = parse_request_header(request)
    assert fields_of(header) == (key, version, correlation_id, client_id)
    assert bytes(rest) == body
    response = response_header(key, version, correlation_id) + body
    found, rest = parse_response_header(key, version, response)
    assert (found, bytes(rest)) == (correlation_id, body)


def fields_of(header: RequestHeader) -> tuple[int, int, int, str | None]:
    return header.api_key, header.api_version, header.correlation_id, header.client_id


def test_the_generations_differ_by_their_tags() -> None:
    assert request_header(ApiKey.METADATA, 8, 1, "c") == bytes.fromhex("0003 0008 00000001 0001 63")
    assert request_header(ApiKey.METADATA, 9, 1, "c") == bytes.fromhex("0003 0009 00000001 0001 63 00")
    assert request_header(ApiKey.METADATA, 9, 1, None) == bytes.fromhex("0003 0009 00000001 ffff 00")
    assert response_header(ApiKey.METADATA, 8, 1) == bytes.fromhex("00000001")
    assert response_header(ApiKey.METADATA, 9, 1) == bytes.fromhex("00000001 00")


def test_api_versions_answers_with_the_old_header_whatever_the_version() -> None:
    assert request_header(ApiKey.API_VERSIONS, 3, 1, "c")[-1:] == b"\x00"
    for version in range(6):
        assert response_header(ApiKey.API_VERSIONS, version, 7) == bytes.fromhex("00000007")


def test_a_version_that_does_not_exist_yet_has_a_header_too() -> None:
    frame = memoryview(bytes.fromhex("0012 00ff 00000001 0001 63 00") + b"body")
    header, body = parse_request_header(frame)
    assert fields_of(header) == (18, 255, 1, "c")
    assert bytes(body) == b"body"
    header, _ = parse_request_header(memoryview(bytes.fromhex("0012 ffff 00000001 0001 63 00")))
    assert header.api_version == -1


def test_unknown_tags_in_a_header_are_skipped() -> None:
    frame = memoryview(bytes.fromhex("0003 000c 00000001 0001 63 02 05 02 6869 07 00") + b"body")
    _, body = parse_request_header(frame)
    assert bytes(body) == b"body"
    _, body = parse_response_header(ApiKey.METADATA, 12, bytes.fromhex("00000001 01 05 02 6869") + b"body")
    assert bytes(body) == b"body"


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("", "shorter than its header"),
        ("0003 000c 000000", "shorter than its header"),
        ("0004 0000 00000001 ffff", "unknown API key 4"),
        ("7fff 0000 00000001 ffff", "unknown API key 32767"),
        ("ffff 0000 00000001 ffff", "unknown API key -1"),
        ("0003 0001 00000001 0005 6162", "a client id of 5 bytes"),
        ("0003 0001 00000001 fffe 6162", "a client id of -2 bytes"),
        ("0003 000c 00000001 0001 63", "end within"),
        ("0003 000c 00000001 0001 63 01 05 09 00", "bytes expected"),
    ],
)
def test_a_header_that_is_none_is_refused_with_a_reason(frame: str, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        parse_request_header(memoryview(bytes.fromhex(frame)))


@given(st.binary(max_size=40))
def test_any_bytes_have_a_header_or_are_refused(data: bytes) -> None:
    try:
        header, body = parse_request_header(memoryview(data))
    except DecodeError:
        return
    assert header.api_key in REGISTRY
    assert len(body) <= len(data) - 10
