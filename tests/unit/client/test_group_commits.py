"""What a group has committed, also while a transaction commits some of it."""

from __future__ import annotations

import pytest

from milena.client.admin import CommittedOffset, group_commits
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from tests.unit.client.scripted_cluster import TOPIC, ScriptedCluster

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


async def test_a_stable_offset_is_awaited() -> None:
    cluster = ScriptedCluster()
    cluster.errors[ApiKey.OFFSET_FETCH] += [UNSTABLE, UNSTABLE]
    found = await group_commits(cluster, "billing", [(TOPIC, 1)], stable=True)
    assert found == {(TOPIC, 1): CommittedOffset(42, "host-1")}
    assert cluster.asked() == ["OFFSET_FETCH"] * 3
    assert cluster.request(ApiKey.OFFSET_FETCH).require_stable


async def test_a_transaction_that_does_not_end_is_an_error() -> None:
    cluster = ScriptedCluster()
    cluster.errors[ApiKey.OFFSET_FETCH] += [UNSTABLE] * 100
    with pytest.raises(KafkaError, match="UNSTABLE_OFFSET_COMMIT: group 'billing'"):
        await group_commits(cluster, "billing", [(TOPIC, 1)], stable=True)


async def test_the_last_stable_offset_is_not_awaited_by_default() -> None:
    cluster = ScriptedCluster()
    await group_commits(cluster, "billing")
    assert not cluster.request(ApiKey.OFFSET_FETCH).require_stable
