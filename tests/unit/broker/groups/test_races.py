"""Requests that meet while a write is on its way to the followers: what was answered holds, here and after a reload."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from milena.broker.apis import offset_commit, offset_fetch
from milena.node.metadata.image import TopicImage
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import YieldBudget
from milena.protocol.errors import ErrorCode
from milena.protocol.records.consumer_protocol import Subscription, encode_consumer_message
from milena.protocol.requests import messages
from tests.unit.broker.fixtures import ME, Bench, Request, at_once, led_by
from tests.unit.broker.groups.served import Groups, code_of

NONE = ErrorCode.NONE


@pytest.fixture
def groups(bench: Bench) -> Groups:
    return Groups(bench)


def test_a_commit_during_the_deletion_of_its_group_stays(groups: Groups) -> None:
    groups.commit(9, 0, offset=5)
    groups.log.hold = True
    deletion, commit = groups.deleting(), groups.committing(9, 0, offset=20)
    groups.log.commit()
    assert (deletion.response.results[0].error_code, code_of(commit)) == (NONE, NONE)
    assert groups.fetched() == 20
    groups.reload()
    assert groups.fetched() == 20


def test_a_group_deleted_during_a_commit_does_not_come_back(groups: Groups) -> None:
    groups.log.hold = True
    commit, deletion = groups.committing(9, 0), groups.deleting()
    groups.log.commit()
    assert (deletion.response.results[0].error_code, code_of(commit)) == (NONE, NONE)
    for _ in range(2):
        assert groups.fetched() == -1 and groups.state() == "Dead"
        groups.reload()


def test_an_offset_deleted_during_a_commit_does_not_come_back(groups: Groups) -> None:
    groups.log.hold = True
    commit, deletion = groups.committing(9, 0), groups.deleting_offset()
    groups.log.commit()
    assert (deletion.response.error_code, code_of(commit)) == (NONE, NONE)
    for _ in range(2):
        assert groups.fetched() == -1
        groups.reload()


def test_a_commit_after_the_deletion_of_an_offset_stays(groups: Groups) -> None:
    groups.commit(9, 0, 1)
    groups.log.hold = True
    groups.deleting_offset()
    groups.committing(9, 0, offset=20)
    groups.log.commit()
    for _ in range(2):
        assert (groups.fetched(), groups.fetched(index=1)) == (20, 5)
        groups.reload()


def test_a_group_that_expires_during_a_commit_is_gone_for_good_or_not_at_all(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    groups.committing(9, 0, 1, offset=20)
    list(groups.shard.expire_offsets(0))
    late = groups.committing(9, 1, offset=30)
    groups.log.commit()
    assert code_of(late) is NONE
    for _ in range(2):
        assert (groups.fetched(), groups.fetched(index=1)) == (-1, 30)
        groups.reload()


def test_a_join_during_the_deletion_of_its_group_is_answered(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    deletion, join = groups.deleting(), groups.joining(version=3)
    waiting = groups.joining(version=3)
    groups.log.commit()
    assert deletion.response.results[0].error_code == NONE
    first = join.response
    groups.joining(first.member_id, version=3)
    assert waiting.response.error_code == NONE and waiting.response.generation_id == 2
    assert groups.state() == "CompletingRebalance"


def test_a_refused_deletion_changes_nothing(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    deletion = groups.deleting()
    assert deletion.response.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert code_of(groups.committing(9, 0, offset=20)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.deleting_offset().response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(2):
        assert groups.fetched() == 5 and groups.state() == "Empty"
        groups.reload()


def test_what_was_not_committed_in_time_is_in_memory_as_it_is_in_the_log(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    deletion = groups.deleting()
    groups.log.give_up()
    assert deletion.response.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.fetched() == 5, "not committed, and so still shown"
    groups.log.commit()
    assert groups.fetched() == -1 and groups.state() == "Dead"


def test_a_fetch_shows_what_is_committed_and_waits_for_the_rest_where_that_is_asked(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    groups.committing(9, 0, 1, offset=20)
    stable = groups.fetching(stable=True)
    assert (groups.fetched(), groups.fetched(index=1)) == (5, -1) and not stable.answered
    groups.log.commit()
    assert stable.response.groups[0].topics[0].partitions[0].committed_offset == groups.fetched() == 20


def test_a_stable_fetch_that_waits_too_long_looks_for_the_coordinator_again(groups: Groups) -> None:
    groups.log.hold = True
    groups.committing(9, 0)
    stable = groups.fetching(stable=True)
    groups.log.give_up()
    assert stable.response.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_that_a_group_is_gone_is_told_when_its_deletion_is_committed(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    groups.deleting()
    again, of_offset = groups.deleting(), groups.deleting_offset()
    assert not again.answered and not of_offset.answered
    groups.log.commit()
    assert again.response.results[0].error_code == of_offset.response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_commits_reach_readers_in_their_order(groups: Groups) -> None:
    groups.log.hold = True
    for offset in (1, 2, 3):
        groups.committing(9, 0, offset=offset)
    seen = []
    for _ in range(3):
        groups.log.commit(1)
        seen.append(groups.fetched())
    assert seen == [1, 2, 3]


def test_the_first_assignment_of_a_generation_counts(groups: Groups) -> None:
    """A leader that sends its assignment once more does not overtake itself in the log."""
    member = groups.joining(version=3).response.member_id
    groups.log.hold = True
    first = groups.syncing(member, 1, {member: b"first"})
    second = groups.syncing(member, 1, {member: b"second"})
    assert first.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    groups.log.commit()
    assert second.response.assignment == b"first"
    groups.reload()
    assert groups.syncing(member, 1, {}).response.assignment == b"first"


def test_an_emptied_group_that_could_not_be_written_is_written_later(groups: Groups) -> None:
    """Otherwise the next leader would give its members a new session each."""
    member = groups.member()
    groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    groups.leave(member)
    assert groups.state() == "Empty"
    groups.log.error = NONE
    groups.clock.advance(6.0)
    groups.reload()
    assert groups.state() == "Empty"


class TestStaticMembers:
    def test_an_id_that_could_not_be_written_is_given_back(self, groups: Groups) -> None:
        old = groups.member(instance="i")
        groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        again = groups.joining(instance="i")
        assert again.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.heartbeat(old, 1, instance="i") is NONE
        assert groups.describe(5, "g").members[0].member_id == old

    def test_nobody_is_told_an_id_that_the_log_does_not_have(self, groups: Groups) -> None:
        """Its coordinator is lost before the new generation is written; the log's id is the old one then."""
        old = groups.member(instance="i")
        changed = (("range", b"other"),)
        groups.joining(old, instance="i", protocols=changed)
        groups.log.hold = True
        again = groups.joining(instance="i", protocols=changed)
        assert not again.answered
        groups.log.commit()
        new = again.response.member_id
        assert again.response.error_code == NONE and new != old
        groups.reload()
        assert groups.heartbeat(new, 3, instance="i") is ErrorCode.ILLEGAL_GENERATION, "not FENCED_INSTANCE_ID"
        assert groups.joining(new, instance="i").response.error_code == NONE

    def test_nor_after_its_session_had_ended_and_the_empty_group_was_not_written(self, groups: Groups) -> None:
        groups.member(instance="i")
        groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        groups.clock.advance(10.0)
        groups.log.error = NONE
        new = groups.joining(instance="i").response.member_id
        groups.reload()
        assert groups.heartbeat(new, 3, instance="i") is ErrorCode.ILLEGAL_GENERATION

    def test_nor_while_the_record_of_the_empty_group_is_on_its_way(self, groups: Groups) -> None:
        groups.member(instance="i")
        groups.log.hold = True
        groups.clock.advance(10.0)
        again = groups.joining(instance="i")
        assert not again.answered
        groups.log.commit()
        new = again.response.member_id
        groups.reload()
        assert groups.heartbeat(new, 3, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_one_that_cannot_be_written_is_told_to_try_again(self, groups: Groups) -> None:
        old = groups.member(instance="i")
        changed = (("range", b"other"),)
        groups.joining(old, instance="i", protocols=changed)
        groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        again = groups.joining(instance="i", protocols=changed)
        assert again.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.heartbeat(old, 2, instance="i") is NONE


def subscribed(*topics: str) -> bytes:
    return encode_consumer_message(Subscription(topics=topics))


def test_only_subscriptions_under_the_chosen_protocol_keep_an_offset(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.member(protocols=(("range", subscribed("u")), ("other", subscribed("t"))))
    topic = groups.deleting_offset().response.topics[0]
    assert topic.partitions[0].error_code == NONE and groups.fetched() == -1


def test_unreadable_metadata_of_a_protocol_that_was_not_chosen_keep_nothing(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.member(protocols=(("range", subscribed("u")), ("other", b"")))
    assert groups.deleting_offset().response.topics[0].partitions[0].error_code == NONE


def test_a_subscription_or_an_unreadable_one_keeps_an_offset(groups: Groups) -> None:
    for metadata in (subscribed("t"), b""):
        groups.commit(9, 0)
        member = groups.member(protocols=(("range", metadata),))
        found = groups.deleting_offset().response.topics[0].partitions[0].error_code
        assert found == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        groups.leave(member)


def test_partitions_that_do_not_exist_are_told_apart_from_the_group_s_error(groups: Groups) -> None:
    groups.elsewhere = True
    found = groups.commit(9, 0, 7).topics[0].partitions
    codes = [ErrorCode(one.error_code) for one in found]
    assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert code_of(groups.committing(9, 7)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_commit_of_nothing_that_exists_makes_no_group(groups: Groups) -> None:
    groups.commit(9, 7)
    assert not groups.shard.groups


def test_metadata_are_as_long_as_java_counts_them(groups: Groups) -> None:
    assert code_of(groups.committing(9, 0, metadata="ä" * 4096)) is NONE
    assert code_of(groups.committing(9, 0, metadata="\N{PILE OF POO}" * 2049)) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_session_begins_when_the_assignment_is_told_and_not_when_its_write_began(groups: Groups) -> None:
    member = groups.joining(version=3).response.member_id
    groups.log.hold = True
    waiting = groups.syncing(member, 1, {member: b"share"})
    groups.clock.advance(9.0)
    groups.log.commit()
    assert waiting.response.error_code == ErrorCode.NONE
    groups.clock.advance(5.0)
    assert groups.heartbeat(member, 1) is ErrorCode.NONE


def test_a_write_that_was_given_up_leaves_the_members_the_whole_time_to_join_again(groups: Groups) -> None:
    member = groups.joining(version=3).response.member_id
    groups.log.hold = True
    waiting = groups.syncing(member, 1, {member: b"share"})
    groups.clock.advance(12.0)
    groups.log.give_up()
    assert waiting.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups.clock.advance(5.0)
    assert groups.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_has_waited_for_a_slow_leader_is_not_dropped_as_the_next_rebalance_begins(groups: Groups) -> None:
    """As Kafka's propagateAssignment does, which begins the session anew with an error, too."""
    leader = groups.joining(version=3).response.member_id
    second = groups.joining(version=3)
    generation = groups.joining(leader, version=3).response.generation_id
    follower = second.response.member_id
    waiting = groups.syncing(follower, generation, {})
    for _ in range(3):
        groups.clock.advance(5.0)
        assert groups.heartbeat(leader, generation) is ErrorCode.NONE
    groups.joining(version=3)
    assert waiting.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    groups.clock.advance(5.0)
    assert groups.heartbeat(follower, generation) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_topic_deleted_while_its_offsets_are_read_has_none(
    groups: Groups, version: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were there are removed when the deletion is applied, so that nobody would remove this one."""
    monkeypatch.setattr(offset_commit, "YieldBudget", partial(YieldBudget, 1))
    kept = groups.node.image.topics["t"]
    gone = another_topic(groups, "gone")
    given = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    topics = [{"name": topic.name, "topic_id": topic.id, "partitions": given} for topic in (gone, kept)]
    request = Request(ApiKey.OFFSET_COMMIT, version)
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    encoded = messages.encode_request(ApiKey.OFFSET_COMMIT, version, **fields)
    decoded = messages.decode_request(ApiKey.OFFSET_COMMIT, version, encoded)
    steps = offset_commit.handle(groups.node, request.ctx, decoded)
    next(steps)
    del groups.node.image.topics["gone"], groups.node.image.topics_by_id[gone.id]
    assert at_once(steps) is None
    assert [topic.partitions[0].error_code for topic in request.response.topics] == [code, NONE]
    assert list(groups.shard.committed_offsets("g")) == [("t", 0)]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("holds", [False, True])
def test_offsets_of_one_group_are_told_in_slices_as_they_were_at_one_moment(
    groups: Groups, stable: bool, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only what is committed."""
    monkeypatch.setattr(offset_fetch, "YieldBudget", partial(YieldBudget, 1))
    groups.commit(9, 0, 1, offset=5)
    request = Request(ApiKey.OFFSET_FETCH, 9)
    asked = [{"name": "t", "partition_indexes": [0, 1] * 10}]
    fields = {"groups": [{"group_id": "g", "topics": asked, "member_id": None, "member_epoch": -1}]}
    encoded = messages.encode_request(ApiKey.OFFSET_FETCH, 9, require_stable=stable, **fields)
    steps = offset_fetch.handle(groups.node, request.ctx, messages.decode_request(ApiKey.OFFSET_FETCH, 9, encoded))
    next(steps)
    groups.log.hold = holds
    groups.committing(9, 0, 1, offset=20)
    for _ in range(20):
        next(steps)
    (group,) = at_once(steps)["groups"]
    assert [one["committed_offset"] for one in group["topics"][0]["partitions"]] == [5] * 20


def test_of_groups_of_which_one_waits_all_are_told(groups: Groups) -> None:
    groups.log.hold = True
    commit, fetch = groups.committing(9, 0, offset=20), groups.fetching(stable=True)
    assert not commit.answered and not fetch.answered
    groups.log.commit()
    assert fetch.response.groups[0].topics[0].partitions[0].committed_offset == 20


def another_topic(groups: Groups, name: str) -> TopicImage:
    topic = TopicImage(name, UUID(int=77), {0: led_by(ME)})
    groups.node.image.topics[name] = groups.node.image.topics_by_id[topic.id] = topic
    return topic
