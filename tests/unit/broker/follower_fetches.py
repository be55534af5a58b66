"""Fetches of followers, and their responses."""

from __future__ import annotations

from typing import Any

from milena.broker.apis.fetch import handle
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import FetchedPartition, FetchResponse, decode_fetch_response
from tests.unit.broker.fixtures import Bench, Request


def fetch(
    bench: Bench,
    offset: int | None,
    *,
    node: int = 2,
    epoch: int | None = None,
    version: int = 17,
    session: tuple[int, int] = (0, -1),
    wait: int = 500,
    rack: str = "",
    **wanted: Any,
) -> Request:
    """A follower's fetch of t-0, or with ``node`` -1 a consumer's; ``offset`` None for nothing new in a session."""
    ids = version >= 13
    options = {"current_leader_epoch": 0} | wanted
    one = [] if offset is None else [FetchPartition(0, offset, 1 << 20, **options)]
    topic_id = bench.image.topics["t"].id
    topics = [(None if ids else "t", topic_id if ids else None, one)] if one else []
    replica_epoch = -1 if version < 15 else node if epoch is None else epoch
    request = FetchRequest(
        wait,
        1,
        1 << 20,
        topics,
        session_id=session[0],
        session_epoch=session[1],
        replica_id=node,
        replica_epoch=replica_epoch,
        rack_id=rack,
    )
    made = Request(ApiKey.FETCH, version)
    bench.serve(made, handle, bytearray(encode_fetch_request(version, request)))
    return made


def response(request: Request) -> FetchResponse:
    return decode_fetch_response(request.version, request.body)


def result(request: Request) -> FetchedPartition:
    ((_, _, (one,)),) = response(request).topics
    return one


def records(found: FetchedPartition) -> bytes:
    data: Any = found.records
    return bytes(data)
