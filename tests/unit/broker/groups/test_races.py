"""Concurrent requests during an uncommitted write: answered results hold, also after a reload."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from milena.broker.apis import offset_commit, offset_fetch
from milena.broker.groups import requested_offsets, store
from milena.node.metadata.image import TopicImage
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import YieldBudget
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import BatchView
from milena.protocol.records.consumer_protocol import Subscription, encode_consumer_message
from milena.protocol.records.records import iter_records
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


def test_a_commit_after_the_expiration_of_its_group_stays(groups: Groups) -> None:
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


def test_a_write_that_times_out_stays_in_memory_as_in_the_log(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    deletion = groups.deleting()
    groups.log.give_up()
    assert deletion.response.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.fetched() == 5, "not committed, and so still shown"
    groups.log.commit()
    assert groups.fetched() == -1 and groups.state() == "Dead"


def test_a_stable_fetch_waits_and_others_return_committed_offsets(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    groups.committing(9, 0, 1, offset=20)
    stable = groups.fetching(stable=True)
    assert (groups.fetched(), groups.fetched(index=1)) == (5, -1) and not stable.answered
    groups.log.commit()
    assert stable.response.groups[0].topics[0].partitions[0].committed_offset == groups.fetched() == 20


def test_a_stable_fetch_that_times_out_returns_not_coordinator(groups: Groups) -> None:
    groups.log.hold = True
    groups.committing(9, 0)
    stable = groups.fetching(stable=True)
    groups.log.give_up()
    assert stable.response.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_group_id_not_found_is_returned_after_the_deletion_is_committed(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.log.hold = True
    groups.deleting()
    again, of_offset = groups.deleting(), groups.deleting_offset()
    assert not again.answered and not of_offset.answered
    groups.log.commit()
    assert again.response.results[0].error_code == of_offset.response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_commits_become_visible_in_their_order(groups: Groups) -> None:
    groups.log.hold = True
    for offset in (1, 2, 3):
        groups.committing(9, 0, offset=offset)
    seen = []
    for _ in range(3):
        groups.log.commit(1)
        seen.append(groups.fetched())
    assert seen == [1, 2, 3]


def test_only_the_first_assignment_of_a_generation_is_written(groups: Groups) -> None:
    """A second SyncGroup of the leader writes no other assignment."""
    member = groups.joining(version=3).response.member_id
    groups.log.hold = True
    first = groups.syncing(member, 1, {member: b"first"})
    second = groups.syncing(member, 1, {member: b"second"})
    assert first.response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    groups.log.commit()
    assert second.response.assignment == b"first"
    groups.reload()
    assert groups.syncing(member, 1, {}).response.assignment == b"first"


def test_a_refused_empty_generation_is_written_later(groups: Groups) -> None:
    """Otherwise the next leader would begin new sessions for the members."""
    member = groups.member()
    groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    groups.leave(member)
    assert groups.state() == "Empty"
    groups.log.error = NONE
    groups.clock.advance(6.0)
    groups.reload()
    assert groups.state() == "Empty"


class TestStaticMembers:
    def test_a_static_id_that_was_not_written_is_rolled_back(self, groups: Groups) -> None:
        old = groups.member(instance="i")
        groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        again = groups.joining(instance="i")
        assert again.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.heartbeat(old, 1, instance="i") is NONE
        assert groups.describe(5, "g").members[0].member_id == old

    def test_a_static_id_is_sent_only_after_it_is_committed(self, groups: Groups) -> None:
        """The coordinator ends before the new generation is written, when the log has the old id."""
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

    def test_a_static_id_is_written_after_an_unwritten_empty_generation(self, groups: Groups) -> None:
        groups.member(instance="i")
        groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        groups.clock.advance(10.0)
        groups.log.error = NONE
        new = groups.joining(instance="i").response.member_id
        groups.reload()
        assert groups.heartbeat(new, 3, instance="i") is ErrorCode.ILLEGAL_GENERATION

    def test_a_static_id_waits_for_an_uncommitted_empty_generation(self, groups: Groups) -> None:
        groups.member(instance="i")
        groups.log.hold = True
        groups.clock.advance(10.0)
        again = groups.joining(instance="i")
        assert not again.answered
        groups.log.commit()
        new = again.response.member_id
        groups.reload()
        assert groups.heartbeat(new, 3, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_static_id_that_cannot_be_written_is_a_retriable_error(self, groups: Groups) -> None:
        old = groups.member(instance="i")
        changed = (("range", b"other"),)
        groups.joining(old, instance="i", protocols=changed)
        groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        again = groups.joining(instance="i", protocols=changed)
        assert again.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert groups.heartbeat(old, 2, instance="i") is NONE


def subscribed(*topics: str) -> bytes:
    return encode_consumer_message(Subscription(topics=topics))


def test_only_subscriptions_of_the_chosen_protocol_protect_an_offset(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.member(protocols=(("range", subscribed("u")), ("other", subscribed("t"))))
    topic = groups.deleting_offset().response.topics[0]
    assert topic.partitions[0].error_code == NONE and groups.fetched() == -1


def test_invalid_metadata_of_another_protocol_protect_no_offset(groups: Groups) -> None:
    groups.commit(9, 0)
    groups.member(protocols=(("range", subscribed("u")), ("other", b"")))
    assert groups.deleting_offset().response.topics[0].partitions[0].error_code == NONE


def test_a_subscription_or_invalid_metadata_protect_an_offset(groups: Groups) -> None:
    for metadata in (subscribed("t"), b""):
        groups.commit(9, 0)
        member = groups.member(protocols=(("range", metadata),))
        found = groups.deleting_offset().response.topics[0].partitions[0].error_code
        assert found == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        groups.leave(member)


def test_unknown_partitions_have_their_own_error(groups: Groups) -> None:
    groups.elsewhere = True
    found = groups.commit(9, 0, 7).topics[0].partitions
    codes = [ErrorCode(one.error_code) for one in found]
    assert codes == [ErrorCode.NOT_COORDINATOR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert code_of(groups.committing(9, 7)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_commit_of_unknown_partitions_creates_no_group(groups: Groups) -> None:
    groups.commit(9, 7)
    assert not groups.shard.groups


def test_the_metadata_limit_counts_utf_16_units(groups: Groups) -> None:
    assert code_of(groups.committing(9, 0, metadata="ä" * 4096)) is NONE
    assert code_of(groups.committing(9, 0, metadata="\N{PILE OF POO}" * 2049)) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_session_is_extended_when_the_assignment_is_sent(groups: Groups) -> None:
    member = groups.joining(version=3).response.member_id
    groups.log.hold = True
    waiting = groups.syncing(member, 1, {member: b"share"})
    groups.clock.advance(9.0)
    groups.log.commit()
    assert waiting.response.error_code == ErrorCode.NONE
    groups.clock.advance(5.0)
    assert groups.heartbeat(member, 1) is ErrorCode.NONE


def test_a_timed_out_assignment_extends_the_sessions(groups: Groups) -> None:
    member = groups.joining(version=3).response.member_id
    groups.log.hold = True
    waiting = groups.syncing(member, 1, {member: b"share"})
    groups.clock.advance(12.0)
    groups.log.give_up()
    assert waiting.response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups.clock.advance(5.0)
    assert groups.heartbeat(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_waited_for_a_slow_leader_keeps_its_session_in_the_next_rebalance(groups: Groups) -> None:
    """Like Kafka's propagateAssignment, which extends the session also with an error."""
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
def test_offsets_of_a_topic_deleted_during_the_request_are_not_committed(
    groups: Groups, version: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Existing offsets are removed when the deletion is applied; a later one would never be removed."""
    monkeypatch.setattr(requested_offsets, "YieldBudget", partial(YieldBudget, 1))
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


def test_the_batch_of_a_large_commit_is_built_again_without_a_topic_deleted_meanwhile(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "YieldBudget", partial(YieldBudget, 1))
    gone = another_topic(groups, "gone")
    given = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    topics = [{"name": name, "partitions": given} for name in ("gone", "t")]
    request = Request(ApiKey.OFFSET_COMMIT, 9)
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    decoded = messages.decode_request(
        ApiKey.OFFSET_COMMIT, 9, messages.encode_request(ApiKey.OFFSET_COMMIT, 9, **fields)
    )
    steps = offset_commit.handle(groups.node, request.ctx, decoded)
    next(steps)
    assert not groups.log.batches, "the batch is not complete"
    del groups.node.image.topics["gone"], groups.node.image.topics_by_id[gone.id]
    assert at_once(steps) is None
    assert [len(list(iter_records(BatchView(memoryview(batch))))) for batch in groups.log.batches] == [1]
    assert list(groups.shard.committed_offsets("g")) == [("t", 0)]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("holds", [False, True])
def test_offsets_of_a_group_are_returned_as_of_one_moment(
    groups: Groups, stable: bool, holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only committed offsets are returned."""
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


def test_all_groups_are_returned_after_one_has_waited(groups: Groups) -> None:
    groups.log.hold = True
    commit, fetch = groups.committing(9, 0, offset=20), groups.fetching(stable=True)
    assert not commit.answered and not fetch.answered
    groups.log.commit()
    assert fetch.response.groups[0].topics[0].partitions[0].committed_offset == 20


def another_topic(groups: Groups, name: str) -> TopicImage:
    topic = TopicImage(name, UUID(int=77), {0: led_by(ME)})
    groups.node.image.topics[name] = groups.node.image.topics_by_id[topic.id] = topic
    return topic
