"""Produce requests."""

from __future__ import annotations

from milena.broker.apis.produce import handle
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests.produce import ProduceRequest, encode_produce_request
from tests.unit.broker.fixtures import Bench, Request


def produce(
    bench: Bench,
    records: memoryview | None,
    *,
    version: int = 9,
    acks: int = 1,
    topic: str = "t",
    index: int = 0,
    client_id: str = "test",
    transactional_id: str | None = None,
    timeout_ms: int = 1000,
) -> Request:
    image = bench.image.topics.get(topic)
    name, topic_id = (topic, None) if version < 13 else (None, image.id if image else None)
    request = ProduceRequest(transactional_id, acks, timeout_ms, [(name, topic_id, [(index, records)])])
    made = Request(ApiKey.PRODUCE, version, client_id=client_id)
    bench.serve(made, handle, bytearray(encode_produce_request(version, request)))
    return made
