"""Values that neither Kafka's protocol nor the system can have are refused with 400, before anything is asked."""

from __future__ import annotations

import json
from typing import Any, Final, cast

import pytest

from milena.client.cluster import Cluster
from milena.console.access import Access
from milena.console.application import application
from milena.console.context import LONGEST_STRING, Context
from milena.console.guard import Guard
from milena.console.model import Model
from milena.console.places import Place
from milena.console.watch import Watch
from milena.up.layout import ClusterDir
from tests.unit.console.asgi import call

BEARER: Final = {"authorization": "Bearer token"}
LONG: Final = "a" * (LONGEST_STRING + 1)
BIG: Final = 1 << 63
ELECTION: Final = {"topic": "t", "partition": 0}


class NoCluster:
    """A cluster that nothing may be asked of."""

    client = cast("Cluster", None)


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    place, model = cast("Place", NoCluster()), Model(lambda: 0)
    return application(
        Context(
            access=Access("token", None, []),
            cookie="milena-9280",
            model=model,
            watch=Watch(place, model, lambda: 0.0, lambda *_: None),
            place=place,
            directory=ClusterDir(str(tmp_path_factory.mktemp("none"))),
            page=False,
        )
    )


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/elect", ELECTION | {"partition": 1 << 31}, "partition: Input should be less than"),
        ("/api/elect", ELECTION | {"topic": "\ud800"}, "surrogates"),
        ("/api/elect", ELECTION | {"topic": LONG}, "topic: Value error, longer than 32767 bytes"),
        ("/api/reassign", ELECTION | {"replicas": [BIG]}, "replicas.0: Input"),
        ("/api/transactions/abort", ELECTION | {"start_offset": BIG}, "start_offset: Input"),
        ("/api/transactions/abort", ELECTION, "start_offset: Field required"),
        ("/api/transactions/force-terminate", {"transactional_id": ""}, "transactional_id: String should have"),
        ("/api/transactions/force-terminate", {"transactional_id": LONG}, "longer than 32767 bytes"),
        ("/api/topics", {"name": "t", "assignments": {"0": [BIG]}}, "assignments.0.0: Input"),
        ("/api/topics", {"name": "t", "assignments": {str(BIG): [1]}}, "assignments"),
        ("/api/topics", {"name": "t", "configs": {LONG: ""}}, "longer than"),
        ("/api/topics/t/configs", {"a": LONG}, "a: Value error, longer than"),
        ("/api/topics/t/configs", {"a": "\ud800"}, "surrogates"),
        ("/api/topics/t/records", {"value": "\udfff"}, "surrogates"),
        ("/api/topics/t/records", {"partition": BIG}, "partition: Input"),
        ("/api/snapshot", {"folder": "/tmp/\0"}, "not an absolute path"),
        ("/api/restore", {"folder": "/tmp/\udcff"}, "surrogates"),
        ("/api/scenarios/kip405_5/runs", {"variant": "a\0"}, "variant: String should match"),
        ("/api/scenarios/kip405_5/runs", {"seed": 1 << 64}, "seed: Input"),
        ("/api/nodes/1/trace", {"client_id": "\ud800"}, "surrogates"),
    ],
)
async def test_a_value_that_is_out_of_range_is_refused(guard: Guard, path: str, body: Any, said: str) -> None:
    answer = await call(guard, path, "POST", BEARER, [json.dumps(body).encode()])
    assert answer.status == 400, answer.body
    assert said in answer.json["error"]


@pytest.mark.parametrize("query", ["partition=0&from=", "time_ms=", "partition="])
async def test_a_position_that_is_out_of_range_is_refused(guard: Guard, query: str) -> None:
    answer = await call(guard, f"/api/topics/t/records?{query}{BIG}", headers=BEARER)
    assert answer.status == 400, answer.body


@pytest.mark.parametrize("minutes", ["inf", "nan", "1e308", "-1", "a"])
async def test_a_time_that_is_no_number_of_minutes_is_refused(guard: Guard, minutes: str) -> None:
    answer = await call(guard, f"/api/transactions/hanging?minutes={minutes}", headers=BEARER)
    assert answer.status == 400, answer.body
    assert "minutes: Input should be" in answer.json["error"]


@pytest.mark.parametrize("path", ["/api/elect", "/api/nodes/1/trace", "/api/topics/t/configs"])
@pytest.mark.parametrize("body", [b'{"topic": "\xed\xa0\x80"}', b"\xff", b'{"a":' * 100_000, b"[" * 100_000])
async def test_a_body_that_is_no_text_or_too_deep_is_refused(guard: Guard, path: str, body: bytes) -> None:
    answer = await call(guard, path, "POST", BEARER, [body])
    assert answer.status == 400, answer.body
