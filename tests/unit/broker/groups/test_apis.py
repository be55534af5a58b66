"""The APIs of groups: errors that depend on the version of the request."""

from __future__ import annotations

from typing import Any

import pytest

from milena.broker.apis import delete_groups, describe_groups, offset_fetch, sync_group
from milena.broker.groups.model import Member
from milena.node.serving.repeats import MAX_REPEATED
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.served import Groups


@pytest.fixture
def groups(bench: Bench) -> Groups:
    return Groups(bench)


@pytest.mark.parametrize("version", [2, 10])
def test_offsets_of_unknown_partitions_are_not_committed(groups: Groups, version: int) -> None:
    partitions = groups.commit(version, 0, 7).topics[0].partitions
    codes = [(one.partition_index, int(one.error_code)) for one in partitions]
    assert codes == [(0, ErrorCode.NONE), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert not groups.commit(version).topics, "a topic without partitions is left out"


def test_a_commit_to_an_unknown_group_has_its_own_error_from_v9_on(groups: Groups) -> None:
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        assert int(groups.commit(version, 0, generation=3).topics[0].partitions[0].error_code) == code


def test_the_empty_group_id_can_have_offsets_and_be_described_and_deleted(groups: Groups) -> None:
    groups.commit(9, 0, group="")
    assert groups.describe(5, "").group_state == "Empty"
    deleted = groups.ask(delete_groups.handle, ApiKey.DELETE_GROUPS, 2, groups_names=[""])
    assert int(deleted.results[0].error_code) == ErrorCode.NONE
    assert groups.describe(5, "").group_state == "Dead"


def test_an_unknown_group_has_operations_only_if_it_is_not_an_error(groups: Groups) -> None:
    assert groups.describe(5, "none").authorized_operations == describe_groups.ALL_OPERATIONS
    assert groups.describe(6, "none").authorized_operations == describe_groups.NOT_REQUESTED


def test_sync_requires_the_protocol_from_v5_on(groups: Groups) -> None:
    for version, code in ((4, ErrorCode.UNKNOWN_MEMBER_ID), (5, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)):
        fields = {"group_id": "g", "generation_id": 1, "member_id": "m", "protocol_type": None, "assignments": []}
        answer = groups.ask(sync_group.handle, ApiKey.SYNC_GROUP, version, **fields)
        assert int(answer.error_code) == code


def test_repeated_requests_for_all_offsets_of_a_group_are_refused(groups: Groups) -> None:
    groups.commit(9, 0)
    for count in (10, MAX_REPEATED):
        asked = [{"group_id": "g", "topics": None}] * count
        fields: dict[str, Any] = {"groups": asked, "require_stable": False}
        if count == 10:
            assert len(groups.ask(offset_fetch.handle, ApiKey.OFFSET_FETCH, 8, **fields).groups) == count
        else:
            with pytest.raises(KafkaError) as refused:
                groups.ask(offset_fetch.handle, ApiKey.OFFSET_FETCH, 8, **fields)
            assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_repeated_descriptions_of_a_large_group_are_refused(groups: Groups) -> None:
    group = groups.shard.get_or_create("g")
    group.add(Member("m", None, "c", "/h", 1, 1, "consumer", (("range", b"x" * 1_000_000),), deadline_ms=0))
    group.members["m"].assignment = b"y" * 1_000_000
    assert len(groups.ask(describe_groups.handle, ApiKey.DESCRIBE_GROUPS, 5, groups=["g"] * 3).groups) == 3
    with pytest.raises(KafkaError):
        groups.ask(describe_groups.handle, ApiKey.DESCRIBE_GROUPS, 5, groups=["g"] * 20)


def test_the_member_id_of_the_longest_instance_id_can_be_encoded(groups: Groups) -> None:
    given = groups.joining(instance="\u00e9" * 16_383).response
    assert given.error_code == 0 and given.member_id.startswith("\u00e9" * 16_000)
    assert 32_700 < len(given.member_id.encode()) <= 32_767


def test_an_unknown_group_with_the_longest_name_can_be_described(groups: Groups) -> None:
    assert groups.describe(6, "g" * 32_767).error_message.startswith("Group ggg")
