"""Requests that cannot be parsed, or whose versions or APIs are not served."""

from __future__ import annotations

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.schemas.registry import REGISTRY, Role, served
from tests.oracle.differential.pair import Pair, versions
from tests.oracle.differential.sides import CLOSED
from tests.wire.raw import frame

SERVED = sorted(served(Role.BROKER))


@pytest.mark.parametrize("key", [key for key in SERVED if key is not ApiKey.API_VERSIONS], ids=lambda key: key.name)
def test_versions_that_kafka_does_not_serve(pair: Pair, key: ApiKey) -> None:
    kafka = REGISTRY[key].kafka
    for version in (kafka.min - 1, kafka.max + 1, 32_767):
        pair.send_raw(key, version, b"")
        assert pair.receive(key, version).both == (CLOSED, CLOSED)


@pytest.mark.parametrize("key", SERVED, ids=lambda key: key.name)
def test_bodies_that_end_too_early(pair: Pair, key: ApiKey) -> None:
    for version in (versions(key)[0], versions(key)[-1]):
        whole = messages.encode_request(key, version)
        for size in sorted({size for size in (0, 1, len(whole) // 2, len(whole) - 1) if 0 <= size < len(whole)}):
            pair.send_raw(key, version, whole[:size])
            pair.receive(key, version).check(f"{key.name} v{version} cut to {size} of {len(whole)} bytes")


@pytest.mark.parametrize(
    "key", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FIND_COORDINATOR], ids=lambda key: key.name
)
def test_bytes_after_the_body(pair: Pair, key: ApiKey) -> None:
    for version in (versions(key)[0], versions(key)[-1]):
        pair.send_raw(key, version, messages.encode_request(key, version) + b"more")
        pair.receive(key, version).check(f"{key.name} v{version} and more")


@pytest.mark.parametrize("client_id", [None, "", "ä" * 100, "x" * 30_000], ids=["none", "empty", "not ASCII", "long"])
def test_client_ids(pair: Pair, client_id: str | None) -> None:
    for version in (1, 9):
        pair.same(ApiKey.METADATA, version, topics=[], client_id=client_id)


@pytest.mark.parametrize("data", [b"", b"\0" * 3, b"\xff" * 40, b"GET / HTTP/1.1\r\n\r\n"], ids=repr)
def test_frames_that_are_no_requests(pair: Pair, data: bytes) -> None:
    pair.send_bytes(frame(data))
    assert pair.receive(ApiKey.METADATA, 0).both == (CLOSED, CLOSED)


@pytest.mark.parametrize("size", [-1, 2**31 - 1, 104_857_601], ids=str)
def test_frames_of_a_wrong_size(pair: Pair, size: int) -> None:
    pair.send_bytes((size & 0xFFFFFFFF).to_bytes(4, "big"))
    assert pair.receive(ApiKey.METADATA, 0).both == (CLOSED, CLOSED)
