"""What the console shows of a cluster that has only Kafka's protocol."""

from __future__ import annotations

from typing import cast

import pytest

from milena.client.cluster import Cluster
from milena.console import kafka_place
from milena.console.kafka_place import KafkaSession
from milena.console.model import NO_TRANSACTIONS, Json, Model


async def test_a_broker_that_has_ended_coordinates_no_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinated: Json = {**NO_TRANSACTIONS, "total": None, "ids": {"x": {"state": "Ongoing"}}}
    opened: dict[int, Json] = {1: coordinated}

    async def open_ids(_: object) -> dict[int, Json]:
        return opened

    monkeypatch.setattr(kafka_place, "open_ids", open_ids)
    model, client = Model(lambda: 0), cast("Cluster", None)
    session = KafkaSession(client, model)
    await session._take_transactions()
    assert model.transactions == {"broker-1": coordinated}
    opened = {2: coordinated}
    await session._take_transactions()
    assert model.transactions == {"broker-2": coordinated}
