"""What consumers do that committed (3, LE-1) in scenario 5 of KIP-405, after A leads again in LE-2: the table in
docs/scenarios.md. Java's is in tests/oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from kafka import KafkaConsumer

from tests.wire.divergence import LINEAGE, POSITION, Divergence, divergence

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

Records = dict[int, str]
"""Offset to value."""
NONE = -1


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Divergence]:
    folder: Path = tmp_path_factory.mktemp("divergence")
    with divergence(folder / "cluster") as found:
        yield found


def librdkafka(bootstrap: str, name: str) -> Records:
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "client.id": name, "auto.offset.reset": "error"}
    consumer, records = Consumer(settings), Records()
    consumer.subscribe(["t"])
    try:
        while len(records) < len(LINEAGE):
            message = consumer.poll(1)
            if message is not None:
                offset, value = message.offset(), message.value()
                assert message.error() is None and offset is not None and value is not None
                records[offset] = value.decode()
    finally:
        consumer.close()
    return records


def kafka_python(bootstrap: str, name: str) -> Records:
    consumer = KafkaConsumer("t", bootstrap_servers=bootstrap, group_id=name, client_id=name, auto_offset_reset="none")
    try:
        return {message.offset: message.value.decode() for _, message in zip(LINEAGE, consumer, strict=False)}
    finally:
        consumer.close()


def aiokafka(bootstrap: str, name: str) -> Records:
    async def read() -> Records:
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=bootstrap, group_id=name, client_id=name, auto_offset_reset="none"
        )
        await consumer.start()
        try:
            messages = [await consumer.getone() for _ in LINEAGE]
        finally:
            await consumer.stop()
        return {message.offset: message.value.decode() for message in messages}

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("client", "current", "last_fetched"),
    [(librdkafka, 2, NONE), (kafka_python, 2, NONE), (aiokafka, None, None)],
)
def test_a_client_reads_on_in_the_new_lineage_without_an_error(
    after: Divergence, client: Callable[[str, str], Records], current: int | None, last_fetched: int | None
) -> None:
    """``current`` and ``last_fetched``: the leader epochs of its first fetch, in the document's numbers."""
    name = client.__name__
    after.commit(name)
    fetches, questions = after.traced("FETCH", name), after.traced("OFFSET_FOR_LEADER_EPOCH", name)
    assert client(after.bootstrap, name) == LINEAGE
    assert fetches.fields("fetch_offset")[0] == POSITION
    assert fetches.fields("current_leader_epoch")[0] == (NONE if current is None else after.epochs[current])
    assert fetches.fields("last_fetched_epoch")[:1] == ([] if last_fetched is None else [last_fetched])
    assert questions.fields("leader_epoch") == []
