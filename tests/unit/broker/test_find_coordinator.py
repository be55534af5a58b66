"""FindCoordinator: groups have coordinators, transactions and share groups none."""

from __future__ import annotations

import pytest

from broker.apis import find_coordinator
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.unit.broker.fixtures import ME, OTHER, Bench, led_by

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


def test_a_partition_without_a_leader_that_serves_is_asked_for_again(bench: Bench) -> None:
    bench.topic("__consumer_offsets", led_by(ME))
    bench.broker(ME, fenced=True)
    answer = bench.ask(find_coordinator.handle, KEY, 3, key="g", key_type=GROUP)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_transaction_is_refused_with_a_code_that_shows_why(bench: Bench) -> None:
    old = bench.ask(find_coordinator.handle, KEY, 2, key="tx", key_type=TRANSACTION)
    assert (old.error_code, old.error_message) == (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Milena has no transactions yet.",
    )
    new = bench.ask(find_coordinator.handle, KEY, 6, key_type=TRANSACTION, coordinator_keys=["ty"])
    (one,) = new.coordinators
    assert (one.error_code, one.error_message) == (ErrorCode.UNSUPPORTED_VERSION, "Milena has no transactions yet.")
    assert bench.refused_transactions == ["tx", "ty"]


@pytest.mark.parametrize("version", [3, 6])
def test_other_kinds_are_refused(bench: Bench, version: int) -> None:
    answer = bench.ask(find_coordinator.handle, KEY, version, key="s", key_type=SHARE, coordinator_keys=["s"])
    refused = answer if version < 4 else answer.coordinators[0]
    assert refused.error_code == ErrorCode.INVALID_REQUEST
