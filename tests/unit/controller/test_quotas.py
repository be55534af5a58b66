"""Client quotas are checked, written, and found again in a snapshot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from milena.controller.commands import quotas
from milena.controller.commands.quotas import Change
from milena.node.metadata.access_views import ANY, EXACT, describe_quotas, entity_of
from milena.node.metadata.image import MetadataImage
from milena.node.metadata.image_records import to_records
from milena.node.metadata.replay import Replayer
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import LeaderEpoch, Offset
from tests.unit.controller.cluster import Cluster

RATE = "producer_byte_rate"
ANN = entity_of({"user": "ann"})
ANNS_APP = entity_of({"user": "ann", "client-id": "app"})


def alter(cluster: Cluster, *changes: Change) -> list[ErrorCode | None]:
    outcomes = cluster.commit(quotas.alter(cluster.state, changes))
    return [outcome.code if isinstance(outcome, KafkaError) else None for outcome in outcomes.values()]


def described(image: MetadataImage, *components: tuple[str, int, str | None]) -> list[tuple[int, dict[str, float]]]:
    asked = [SimpleNamespace(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    entries = describe_quotas(image, asked, strict=False)
    return [(len(one["entity"]), {value["key"]: value["value"] for value in one["values"]}) for one in entries]


def test_quotas_are_set_changed_and_taken_away() -> None:
    cluster = Cluster(1)
    assert alter(cluster, Change(ANN, {RATE: 5.0}), Change(ANNS_APP, {"request_percentage": 0.5})) == [None, None]
    assert described(cluster.state.image, ("user", EXACT, "ann")) == [
        (1, {RATE: 5.0}),
        (2, {"request_percentage": 0.5}),
    ]
    before = cluster.state.next_offset
    assert alter(cluster, Change(ANN, {RATE: 5.0, "consumer_byte_rate": None})) == [None]
    assert cluster.state.next_offset == before
    assert alter(cluster, Change(ANN, {RATE: None})) == [None]
    assert described(cluster.state.image, ("user", ANY, None)) == [(2, {"request_percentage": 0.5})]


def test_the_order_of_an_entitys_parts_says_nothing() -> None:
    cluster = Cluster(1)
    alter(cluster, Change(ANNS_APP, {RATE: 5.0}))
    alter(cluster, Change(entity_of({"client-id": "app", "user": "ann"}), {RATE: None}))
    assert described(cluster.state.image) == []


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ({}, RATE, 1.0),
        ({"user": ""}, RATE, 1.0),
        ({"group": "g"}, RATE, 1.0),
        ({"user": "u", "ip": "10.0.0.1"}, RATE, 1.0),
        ({"ip": "somewhere.example"}, "connection_creation_rate", 1.0),
        ({"ip": "10.0.0.1"}, RATE, 1.0),
        ({"user": "u"}, "no.such", 1.0),
        ({"user": "u"}, RATE, 0.0),
        ({"user": "u"}, RATE, 1.5),
        ({"user": "u"}, RATE, float("nan")),
        ({"user": "u"}, RATE, float("inf")),
    ],
)
def test_what_cannot_be_is_refused(entity: dict[str, str | None], key: str, value: float) -> None:
    cluster = Cluster(1)
    assert alter(cluster, Change(entity_of(entity), {key: value})) == [ErrorCode.INVALID_REQUEST]
    assert cluster.state.image.opaque == {}


def test_an_entity_that_is_given_twice_is_left_as_it_is() -> None:
    cluster = Cluster(1)
    assert alter(cluster, Change(ANN, {RATE: 1.0}), Change(ANN, {RATE: 2.0})) == [ErrorCode.INVALID_REQUEST]
    assert described(cluster.state.image) == []


def test_a_snapshot_has_them() -> None:
    cluster = Cluster(1)
    alter(cluster, Change(ANN, {RATE: 5.0}), Change(ANNS_APP, {"request_percentage": 0.5}))
    again = Replayer(MetadataImage())
    for offset, record in enumerate(to_records(cluster.state.image)):
        again.replay(record, offset=Offset(offset), epoch=LeaderEpoch(1), timestamp_ms=0)
    assert described(again.image) == described(cluster.state.image)
