"""FindCoordinator: only groups have coordinators."""

from __future__ import annotations

from typing import Any

import pytest

from milena.broker.apis import find_coordinator
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, at_once, led_by

KEY = ApiKey.FIND_COORDINATOR
GROUP, TRANSACTION, SHARE = range(3)


def test_a_group_is_coordinated_by_the_leader_of_its_partition(bench: Bench) -> None:
    bench.topic("__consumer_offsets", led_by(OTHER))
    old = bench.ask(find_coordinator.handle, KEY, 3, key="g", key_type=GROUP)
    assert (old.error_code, old.node_id, old.host, old.port) == (ErrorCode.NONE, OTHER, "plaintext-2", 9092)
    assert old.error_message == "NONE"
    several = bench.ask(find_coordinator.handle, KEY, 6, key_type=GROUP, coordinator_keys=["g", "h"])
    assert [(one.key, one.error_code, one.node_id) for one in several.coordinators] == [
        ("g", 0, OTHER),
        ("h", 0, OTHER),
    ]
    assert {one.error_message for one in several.coordinators} == {""}


def test_a_group_whose_partition_has_no_available_leader_is_retriable(bench: Bench) -> None:
    bench.topic("__consumer_offsets", led_by(ME))
    bench.broker(ME, fenced=True)
    answer = bench.ask(find_coordinator.handle, KEY, 3, key="g", key_type=GROUP)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def ask(bench: Bench, version: int, *software: str) -> Any:
    """The response to a transactional producer with this software name and version."""
    request = Request(KEY, version)
    for field, value in zip(("software_name", "software_version"), software, strict=False):
        setattr(request.ctx.caller, field, value)
    asked = {"key": "tx"} if version < 4 else {"coordinator_keys": ["tx"]}
    decoded = messages.decode_request(
        KEY, version, messages.encode_request(KEY, version, key_type=TRANSACTION, **asked)
    )
    request.ctx.respond_fields(**at_once(find_coordinator.handle(bench, request.ctx, decoded)))  # type: ignore[arg-type]
    return request.response if version < 4 else request.response.coordinators[0]


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), (6, ErrorCode.UNSUPPORTED_VERSION)],
)
@pytest.mark.parametrize(
    "software",
    [("apache-kafka-java", "4.3.1"), ("librdkafka", "2.16.1"), ("confluent-kafka-python", "2.16.1-librdkafka-2.16.1")],
)
def test_a_client_that_shows_messages_gets_the_reason(
    bench: Bench, version: int, code: ErrorCode, software: tuple[str, str]
) -> None:
    answer = ask(bench, version, *software)
    assert (answer.error_code, answer.error_message) == (code, "Milena has no transactions yet.")
    assert bench.refused_transactions == ["tx"]


@pytest.mark.parametrize("version", [1, 3, 6])
@pytest.mark.parametrize("software", [(), ("sarama", "1.47.0"), ("kgo", "1.22.2"), ("kafka-python", "3.0.12")])
def test_other_clients_get_this_broker_as_coordinator(bench: Bench, version: int, software: tuple[str, ...]) -> None:
    answer = ask(bench, version, *software)
    assert (answer.error_code, answer.node_id, answer.host) == (ErrorCode.NONE, ME, "plaintext-1")
    assert bench.refused_transactions == []


@pytest.mark.parametrize("version", [3, 6])
def test_other_key_types_are_refused(bench: Bench, version: int) -> None:
    answer = bench.ask(find_coordinator.handle, KEY, version, key="s", key_type=SHARE, coordinator_keys=["s"])
    refused = answer if version < 4 else answer.coordinators[0]
    assert refused.error_code == ErrorCode.INVALID_REQUEST
