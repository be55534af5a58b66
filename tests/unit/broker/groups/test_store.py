"""The records of groups in ``__consumer_offsets``, written and loaded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milena.broker.groups import store
from milena.broker.groups.group import Group
from milena.broker.groups.loading import Loader
from milena.broker.groups.model import GroupState
from milena.protocol.cooperative import run_now
from milena.protocol.records.consumer_protocol import Subscription, encode_consumer_message
from milena.protocol.records.coordinator_records import GroupMetadataValue, MemberMetadata
from tests.unit.broker.groups.world import GroupWorld

NOW = 5_000


def member(number: int, instance: str | None = None, **values: int) -> MemberMetadata:
    return MemberMetadata(
        member_id=f"m{number}",
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        rebalance_timeout=values.get("rebalance", 300),
        session_timeout=200,
        subscription=encode_consumer_message(Subscription(topics=("read",))),
        assignment=b"share",
    )


VALUE = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m2",
    current_state_timestamp=100,
    members=(member(1), member(2, "two")),
)


def loaded(*pairs: store.KeyValue) -> list[Group]:
    loader = Loader(lambda name: GroupWorld().group)
    run_now(loader.apply(memoryview(bytearray(store.batch(pairs, NOW)))))
    return list(run_now(loader.finish(NOW)).values())


def group_of(value: GroupMetadataValue) -> Group:
    (group,) = loaded(store.group_record("readers", value))
    return group


def test_a_generation_is_loaded_with_its_leader_and_subscriptions() -> None:
    group = group_of(VALUE)
    assert (group.state, group.generation, group.leader_id, group.state_since_ms) == (GroupState.STABLE, 3, "m2", 100)
    assert (group.protocol_type, group.protocol_name) == ("consumer", "range")
    assert (group.subscribes_to("read"), group.subscribes_to("other")) == (True, False)
    assert store.group_value(group, None) == VALUE


def test_a_recorded_leader_that_is_not_a_member_is_replaced() -> None:
    assert group_of(replace(VALUE, leader="gone")).leader_id == "m1"


def test_a_group_without_a_protocol_type_is_written_and_loaded() -> None:
    group = GroupWorld().group
    value = store.group_value(group, {})
    assert (group.protocol_type, value.protocol_type) == (None, "")
    assert group_of(value).protocol_type is None


@pytest.mark.parametrize(("written", "since"), [(-1, NOW), (0, 0), (1, 1)])
def test_a_record_without_a_state_timestamp_has_the_time_of_loading(written: int, since: int) -> None:
    assert group_of(replace(VALUE, current_state_timestamp=written)).state_since_ms == since


@pytest.mark.parametrize(("written", "timeout"), [(-1, 200), (0, 0), (1, 1)])
def test_a_record_without_a_rebalance_timeout_has_the_session_timeout(written: int, timeout: int) -> None:
    group = group_of(replace(VALUE, members=(member(2, rebalance=written),)))
    assert group.members["m2"].rebalance_timeout_ms == timeout


def test_members_of_a_generation_without_a_protocol_have_no_metadata_for_it() -> None:
    group = group_of(replace(VALUE, protocol=None))
    assert group.members["m1"].metadata(group.protocol_name) == b""


def test_a_deleted_group_is_not_loaded() -> None:
    assert loaded(store.group_record("readers", VALUE), store.group_tombstone("readers")) == []


class TestStaticMemberUnderANewId:
    def test_it_replaces_the_old_id(self) -> None:
        renamed = store.with_static_member(VALUE, "two", "new")
        assert renamed is not None
        assert ([one.member_id for one in renamed.members], renamed.leader) == (["m1", "new"], "new")

    def test_another_leader_stays(self) -> None:
        renamed = store.with_static_member(replace(VALUE, leader="m1"), "two", "new")
        assert renamed is not None and renamed.leader == "m1"

    def test_no_record_is_needed_without_another_id(self) -> None:
        assert store.with_static_member(None, "two", "new") is None
        assert store.with_static_member(VALUE, "unknown", "new") is None
        assert store.with_static_member(VALUE, "two", "m2") is None
