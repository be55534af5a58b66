"""FindCoordinator: the coordinators of groups and of transactional ids."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from milena.broker.apis import find_coordinator
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.hashing import partition_for_group
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, led_by

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


def test_a_transactional_id_is_coordinated_by_the_leader_of_its_partition(bench: Bench) -> None:
    bench.topic("__transaction_state", led_by(ME), led_by(OTHER), led_by(ME))
    led = {f"tx-{number}": (ME, OTHER, ME)[partition_for_group(f"tx-{number}", 3)] for number in range(6)}
    assert set(led.values()) == {ME, OTHER}
    answer = bench.ask(find_coordinator.handle, KEY, 6, key_type=TRANSACTION, coordinator_keys=list(led))
    assert {one.key: one.node_id for one in answer.coordinators} == led
    for version in (1, 3):
        old = bench.ask(find_coordinator.handle, KEY, version, key="tx-1", key_type=TRANSACTION)
        assert (old.error_code, old.node_id) == (ErrorCode.NONE, led["tx-1"])


def test_other_work_runs_between_long_keys(bench: Bench) -> None:
    bench.topic("__transaction_state", led_by(ME))
    request = Request(KEY, 6)
    asked: Any = SimpleNamespace(key_type=TRANSACTION, coordinator_keys=["x" * 32_000] * 4)
    node: Any = bench
    work = find_coordinator.handle(node, request.ctx, asked)
    assert isinstance(work, Generator)
    assert sum(1 for _ in work) == 4


@pytest.mark.parametrize(("key_type", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")])
def test_the_first_request_creates_the_topic(bench: Bench, key_type: int, topic: str) -> None:
    created: list[str] = []
    bench.auto_create.create_internal = created.extend
    answer = bench.ask(find_coordinator.handle, KEY, 6, key_type=key_type, coordinator_keys=["k"])
    assert answer.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert created == [topic]


@pytest.mark.parametrize("version", [3, 6])
def test_other_key_types_are_refused(bench: Bench, version: int) -> None:
    answer = bench.ask(find_coordinator.handle, KEY, version, key="s", key_type=SHARE, coordinator_keys=["s"])
    refused = answer if version < 4 else answer.coordinators[0]
    assert refused.error_code == ErrorCode.INVALID_REQUEST
