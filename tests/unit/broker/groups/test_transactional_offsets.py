"""The offsets of transactions: TxnOffsetCommit, markers, loading."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from milena.broker.apis import offset_fetch
from milena.broker.groups import ended_transactions, shard
from milena.broker.groups.loading import Loader
from milena.broker.groups.offsets import has_deleted_topic
from milena.broker.transactions.verification import Operation
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode
from tests.unit.broker.fixtures import Bench, Request
from tests.unit.broker.groups.log_oracle import pending_in, replay, unstable_in
from tests.unit.broker.groups.served import Groups

PARTITIONS = (0, 1)
STEPS = 100


@pytest.fixture
def groups(bench: Bench) -> Groups:
    return Groups(bench)


def code_of(request: Request) -> ErrorCode:
    return ErrorCode(request.response.topics[0].partitions[0].error_code)


def fetched(groups: Groups, index: int = 0) -> tuple[ErrorCode, int]:
    """The result of an OffsetFetch with RequireStable."""
    (partition,) = groups.fetching(index=index, stable=True).response.groups[0].topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset


@pytest.mark.parametrize("version", range(7))
def test_offsets_take_effect_with_the_commit_marker(groups: Groups, version: int) -> None:
    groups.commit(9, 0, offset=4)
    assert code_of(groups.sending(version, 0, offset=5)) is ErrorCode.NONE
    assert (groups.fetched(), fetched(groups)) == (4, (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1))
    assert groups.end(commit=True) == [ErrorCode.NONE]
    assert (groups.fetched(), fetched(groups)) == (5, (ErrorCode.NONE, 5))


def test_offsets_of_an_aborted_transaction_have_no_effect(groups: Groups) -> None:
    groups.commit(9, 0, offset=4)
    groups.sending(5, 0, 1, offset=5)
    groups.end(commit=False)
    assert [fetched(groups, index) for index in (0, 1)] == [(ErrorCode.NONE, 4), (ErrorCode.NONE, -1)]


def test_only_partitions_of_the_transaction_are_unstable(groups: Groups) -> None:
    groups.commit(9, 0, 1, offset=4)
    groups.sending(5, 1, offset=5)
    assert [fetched(groups, index) for index in (0, 1)] == [
        (ErrorCode.NONE, 4),
        (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1),
    ]


def test_all_offsets_of_a_group_have_unstable_ones_among_them(groups: Groups) -> None:
    """A partition that has only an offset of an open transaction is not listed, as in Kafka."""
    groups.commit(9, 0, offset=4)
    groups.sending(5, 0, 1, offset=5)
    asked = [{"group_id": "g", "topics": None, "member_id": None, "member_epoch": -1}]
    (topic,) = (
        groups.ask(offset_fetch.handle, ApiKey.OFFSET_FETCH, 8, groups=asked, require_stable=True).groups[0].topics
    )
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    ]


def test_an_offset_is_unstable_until_the_marker_is_committed(groups: Groups) -> None:
    """EndTxn is answered before the marker is written: then no consumer may get the offset from before."""
    groups.commit(9, 0, offset=4)
    groups.sending(5, 0, offset=5)
    groups.log.hold = True
    ended = groups.end(commit=True)
    assert ended == []
    unstable = groups.shard.unstable("g")
    assert unstable is not None and unstable(("t", 0))
    assert groups.fetched() == 4
    groups.log.commit()
    assert ended == [ErrorCode.NONE]
    assert fetched(groups) == (ErrorCode.NONE, 5)


def test_an_offset_without_a_transaction_is_not_replaced_by_an_earlier_one_of_a_transaction(groups: Groups) -> None:
    groups.sending(5, 0, offset=5)
    groups.commit(9, 0, offset=9)
    groups.end(commit=True)
    assert fetched(groups) == (ErrorCode.NONE, 9)
    groups.reload()
    assert fetched(groups) == (ErrorCode.NONE, 9)


def test_of_two_transactions_the_later_record_counts(groups: Groups) -> None:
    groups.sending(5, 0, producer=1, offset=5)
    groups.sending(5, 0, producer=2, offset=6)
    groups.end(2)
    groups.end(1)
    assert groups.fetched() == 6


def test_open_transactions_survive_a_change_of_coordinator(groups: Groups) -> None:
    groups.sending(5, 0, offset=5)
    groups.reload()
    assert fetched(groups) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    groups.end(commit=True)
    assert fetched(groups) == (ErrorCode.NONE, 5)


def test_one_marker_ends_the_transaction_in_all_groups(groups: Groups) -> None:
    groups.log.hold = True
    groups.sending(5, 0, group="g", offset=5)
    groups.sending(5, 0, group="h", offset=6)
    groups.end()
    groups.log.commit()
    assert (groups.fetched("g"), groups.fetched("h")) == (5, 6)


def test_a_refused_marker_changes_nothing(groups: Groups) -> None:
    groups.sending(5, 0, offset=5)
    groups.log.error = ErrorCode.INVALID_PRODUCER_EPOCH
    assert groups.end() == [ErrorCode.INVALID_PRODUCER_EPOCH]
    groups.log.error = ErrorCode.NONE
    assert fetched(groups) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_without_offsets_is_appended(groups: Groups, commit: bool) -> None:
    assert groups.end(commit=commit) == [ErrorCode.NONE]
    assert len(groups.log.batches) == 1


def test_a_group_of_an_aborted_transaction_alone_expires(groups: Groups) -> None:
    groups.sending(5, 0)
    groups.end(commit=False)
    assert groups.shard.groups.keys() == {"g"}
    list(groups.shard.expire_offsets(60_000))
    assert groups.shard.groups.keys() == set()


# -- transactions with very many offsets


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One offset of an ended transaction is applied before other tasks run."""
    monkeypatch.setattr(ended_transactions, "OFFSETS_PER_STEP", 1)


def test_offsets_are_applied_in_steps_before_the_marker_is_answered(groups: Groups, one_by_one: None) -> None:
    groups.sending(5, 0, 1, offset=5)
    ended = groups.end(commit=True)
    assert (len(groups.shard.groups["g"].offsets), ended) == (1, [])
    groups.clock.advance(0)
    assert (len(groups.shard.groups["g"].offsets), ended) == (2, [ErrorCode.NONE])


def test_a_reader_sees_all_offsets_of_a_transaction_between_two_steps(groups: Groups, one_by_one: None) -> None:
    groups.commit(9, 0, 1, offset=4)
    groups.sending(5, 0, 1, offset=5)
    groups.end(commit=True)
    assert [groups.fetched(index=index) for index in (0, 1)] == [5, 5]


def test_the_next_transaction_of_the_producer_is_not_ended_by_later_steps(groups: Groups, one_by_one: None) -> None:
    groups.sending(5, 0, 1, offset=5)
    groups.end(commit=True)
    groups.sending(5, 0, 1, offset=6)
    groups.clock.advance(0)
    assert [groups.fetched(index=index) for index in (0, 1)] == [5, 5]
    assert fetched(groups) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


def test_a_commit_between_two_steps_is_not_replaced(groups: Groups, one_by_one: None) -> None:
    groups.sending(5, 0, 1, offset=5)
    groups.end(commit=True)
    groups.commit(9, 0, 1, offset=9)
    groups.clock.advance(0)
    assert [groups.fetched(index=index) for index in (0, 1)] == [9, 9]


def test_a_deletion_between_two_steps_removes_all_offsets(groups: Groups, one_by_one: None) -> None:
    groups.sending(5, 0, 1, offset=5)
    groups.end(commit=True)
    groups.deleting()
    groups.clock.advance(0)
    assert "g" not in groups.shard.groups


def test_all_offsets_are_unstable_until_the_marker_is_committed(groups: Groups, one_by_one: None) -> None:
    groups.sending(5, 0, 1, offset=5)
    groups.log.hold = True
    ended = groups.end(commit=True)
    groups.committing(9, 0, group="h")
    for _ in range(2):
        unstable = groups.shard.unstable("g")
        assert unstable is not None and unstable(("t", 0)) and unstable(("t", 1))
        groups.clock.advance(0)
    groups.log.commit()
    assert ended == [ErrorCode.NONE]
    assert [fetched(groups, index) for index in (0, 1)] == [(ErrorCode.NONE, 5)] * 2


def test_a_coordinator_that_resigns_between_two_steps_answers_the_marker(groups: Groups, one_by_one: None) -> None:
    groups.sending(5, 0, 1, offset=5)
    ended = groups.end(commit=True)
    groups.shard.close()
    groups.clock.advance(0)
    assert ended == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_resignation_between_two_steps_ends_the_removal_of_a_deleted_topics_offsets(
    groups: Groups, one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard, "OFFSETS_PER_YIELD", 1)
    groups.commit(9, 0, 1, group="f")
    groups.sending(5, 0, 1, offset=5)
    groups.end(commit=True)
    removal = groups.shard.remove_offsets_where(has_deleted_topic({groups.topic.id: "t"}))
    next(removal)
    groups.shard.close()
    written = len(groups.log.batches)
    list(removal)
    assert len(groups.log.batches) == written


# -- deletion and expiration


def test_an_offset_with_an_open_transaction_does_not_expire(groups: Groups) -> None:
    groups.commit(9, 0, 1, offset=4)
    groups.sending(5, 0, offset=5)
    groups.clock.advance(60)
    list(groups.shard.expire_offsets(0))
    assert [groups.fetched(index=index) for index in (0, 1)] == [4, -1]
    groups.end(commit=False)
    list(groups.shard.expire_offsets(0))
    assert "g" not in groups.shard.groups


def test_other_offsets_of_a_group_with_an_open_transaction_expire(groups: Groups) -> None:
    groups.commit(9, 1, offset=4)
    groups.sending(5, 0, offset=5)
    list(groups.shard.expire_offsets(0))
    groups.end(commit=True)
    assert [groups.fetched(index=index) for index in (0, 1)] == [5, -1]


def test_a_group_with_an_open_transaction_does_not_expire(groups: Groups) -> None:
    groups.sending(5, 0, offset=5)
    list(groups.shard.expire_offsets(0))
    groups.end(commit=True)
    assert groups.fetched() == 5


def test_an_offset_of_an_open_transaction_is_deleted(groups: Groups) -> None:
    groups.commit(9, 1)
    groups.sending(5, 0, offset=5)
    response = groups.deleting_offset(0).response
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    groups.end(commit=True)
    assert fetched(groups) == (ErrorCode.NONE, -1)


def test_a_group_is_deleted_with_the_offsets_of_open_transactions(groups: Groups) -> None:
    groups.commit(9, 1)
    groups.sending(5, 0, offset=5)
    assert groups.deleting().response.results[0].error_code == ErrorCode.NONE
    groups.end(commit=True)
    assert "g" not in groups.shard.groups
    groups.reload()
    assert "g" not in groups.shard.groups


def test_offsets_of_a_deleted_topic_are_removed_from_open_transactions(groups: Groups) -> None:
    groups.sending(5, 0, offset=5)
    deleted = has_deleted_topic({groups.topic.id: "t"})
    assert run_now(groups.shard.any_offset(deleted))
    assert run_now(groups.shard.remove_offsets_where(deleted))
    assert not run_now(groups.shard.any_offset(deleted))
    groups.end(commit=True)
    assert groups.fetched() == -1


# -- refused requests


@pytest.mark.parametrize(
    ("member", "generation", "instance", "version", "error"),
    [
        ("", -1, None, 0, ErrorCode.NONE),
        ("", -1, None, 5, ErrorCode.NONE),
        ("known", 1, None, 3, ErrorCode.NONE),
        ("known", 0, None, 5, ErrorCode.ILLEGAL_GENERATION),
        ("known", -1, None, 5, ErrorCode.ILLEGAL_GENERATION),
        ("other", 1, None, 5, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, 5, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 0, None, 5, ErrorCode.UNKNOWN_MEMBER_ID),
        ("known", 1, "i", 5, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, "i", 5, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_of_earlier_generations_are_fenced(
    groups: Groups, member: str, generation: int, instance: str | None, version: int, error: ErrorCode
) -> None:
    """KIP-447. Producers that do not name a member may commit, as before that KIP."""
    known = groups.member()
    sent = known if member == "known" else member
    request = groups.sending(version, 0, member=sent, generation=generation, instance=instance)
    assert code_of(request) is error


def test_a_producer_may_name_a_member_without_generation_while_the_group_is_empty(groups: Groups) -> None:
    assert code_of(groups.sending(5, 0, member="gone", generation=-1)) is ErrorCode.NONE


def test_a_static_member_that_was_replaced_is_fenced(groups: Groups) -> None:
    old = groups.member(instance="i")
    groups.joining(instance="i")
    assert code_of(groups.sending(5, 0, member=old, generation=1, instance="i")) is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_may_commit_during_a_rebalance_but_extends_no_session(groups: Groups) -> None:
    member = groups.member()
    groups.clock.advance(9)
    groups.joining(version=3)
    assert groups.state() == "PreparingRebalance"
    assert code_of(groups.sending(5, 0, member=member, generation=1)) is ErrorCode.NONE
    groups.clock.advance(1)
    assert code_of(groups.sending(5, 0, member=member, generation=1)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_generation_of_an_unknown_group_is_refused(groups: Groups, version: int, error: ErrorCode) -> None:
    assert code_of(groups.sending(version, 0, member="m", generation=1)) is error
    assert "g" not in groups.shard.groups


def test_partitions_have_their_own_errors(groups: Groups) -> None:
    limit = groups.node.config.get_int("offset.metadata.max.bytes")
    response = groups.sending(5, 0, 7, metadata="m" * (limit + 1)).response
    assert [one.error_code for one in response.topics[0].partitions] == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (groups.log.batches, groups.shard.groups) == ([], {})


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("reached", [True, False])
def test_a_commit_of_which_nothing_is_written_waits_for_earlier_writes(
    groups: Groups, transactional: bool, reached: bool
) -> None:
    """As in Kafka's ``CoordinatorRuntime.waitForPendingWrites``: if these are not committed, all partitions have the
    error."""
    limit = groups.node.config.get_int("offset.metadata.max.bytes")
    groups.log.hold = True
    groups.committing(9, 0)
    send = groups.sending if transactional else groups.committing
    refused = send(5, 1, metadata="m" * (limit + 1))
    assert not refused.answered
    if reached:
        groups.log.commit()
    else:
        groups.log.give_up()
    assert code_of(refused) is (ErrorCode.OFFSET_METADATA_TOO_LARGE if reached else ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_nothing_is_verified_if_no_partition_exists(groups: Groups) -> None:
    assert code_of(groups.sending(5, 7)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert groups.verification.asked == []


def test_the_empty_group_id_is_refused(groups: Groups) -> None:
    assert code_of(groups.sending(5, 0, group="")) is ErrorCode.INVALID_GROUP_ID


def test_another_broker_is_the_coordinator(groups: Groups) -> None:
    groups.elsewhere = True
    assert code_of(groups.sending(5, 0)) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_transaction_that_is_not_verified_writes_nothing(
    groups: Groups, error: ErrorCode, expected: ErrorCode
) -> None:
    groups.verification.error = error
    assert code_of(groups.sending(5, 0)) is expected
    assert (groups.log.batches, groups.shard.groups) == ([], {})


@pytest.mark.parametrize(
    ("version", "error"), [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
)
def test_old_clients_do_not_get_the_error_of_a_loading_coordinator(
    groups: Groups, version: int, error: ErrorCode
) -> None:
    groups.verification.error = ErrorCode.NETWORK_EXCEPTION
    assert code_of(groups.sending(version, 0)) is error


@pytest.mark.parametrize(
    ("version", "operation"),
    [(3, Operation.DEFAULT_ERROR), (4, Operation.GENERIC_ERROR), (5, Operation.ADD_PARTITION)],
)
def test_the_transaction_is_verified_as_the_client_supports(groups: Groups, version: int, operation: Operation) -> None:
    groups.sending(version, 0, producer=3, epoch=2)
    assert groups.verification.asked == [("t3", 3, 2, operation)]


def test_a_refused_write_leaves_no_group(groups: Groups) -> None:
    groups.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert code_of(groups.sending(5, 0)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.shard.groups == {}


def test_a_topic_that_is_deleted_during_the_verification_has_no_offset(groups: Groups) -> None:
    groups.verification.hold = True
    request = groups.sending(5, 0)
    assert not request.answered
    groups.node.image = groups.node.image.__class__()
    (answer,) = groups.verification.waiting
    answer()
    assert code_of(request) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert groups.log.batches == []


# -- any sequence


class RandomSteps:
    """Random requests and markers for one group, and the log's followers, by seed."""

    def __init__(self, seed: int, *, holds: bool = True) -> None:
        """``holds``: writes may be uncommitted for a while."""
        self.bench = Bench(Path("unused"))
        self.holds = holds
        self.groups = Groups(self.bench)
        self.random = Random(seed)
        self.offset = 0

    def step(self) -> None:
        groups, log, random = self.groups, self.groups.log, self.random
        self.offset += 1
        partitions = random.choice([(0,), (1,), (0, 1)])
        producer = random.randint(1, 3)
        match random.choices(range(10), weights=(6, 12, 10, 1, 2, 2, 3 * self.holds, 4, 1, 1))[0]:
            case 0:
                groups.committing(9, *partitions, offset=self.offset)
            case 1:
                groups.sending(5, *partitions, producer=producer, offset=self.offset)
            case 2:
                groups.end(producer, commit=random.random() < 0.7)
            case 3:
                groups.deleting()
            case 4:
                groups.deleting_offset(partitions[0])
            case 5:
                groups.clock.advance(60)
                list(groups.shard.expire_offsets(random.choice([0, 60_000])))
            case 6:
                log.hold = not log.hold
            case 7:
                log.commit(random.randint(1, 2))
            case 8:
                log.error = random.choice([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS])
            case _:
                log.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                groups.reload()

    def check(self) -> None:
        log, shard = self.groups.log, self.groups.shard
        written, committed = replay(log.batches), replay(log.batches[: log.high_watermark])
        seen = {("g", index): self.groups.fetched(index=index) for index in PARTITIONS}
        in_memory = {
            (name, key[1]): offset.offset for name, one in shard.groups.items() for key, offset in one.offsets.items()
        }
        assert in_memory == written.offsets
        assert pending_in(shard._transactional) == written.pending
        with_offsets = {key[0] for key in written.offsets} | {key[0] for key in written.pending}
        assert with_offsets <= shard.groups.keys()
        assert {key: offset for key, offset in seen.items() if offset >= 0} == committed.offsets
        unstable = shard.unstable("g")
        found = {index for index in PARTITIONS if unstable is not None and unstable(("t", index))}
        assert found == unstable_in(log.batches, log.high_watermark)
        loader = Loader(shard.new_group)
        for piece in log.pieces():
            run_now(loader.apply(piece))
        loaded = run_now(loader.finish(self.groups.clock.time_ms()))
        assert pending_in(loader.transactional) == written.pending
        assert {name: one.offsets for name, one in loaded.items()} == {
            name: shard.groups[name].offsets for name in with_offsets
        }


@pytest.mark.parametrize("seed", range(12))
def test_memory_is_what_loading_the_log_gives(seed: int) -> None:
    steps = RandomSteps(seed)
    try:
        for _ in range(STEPS):
            steps.step()
            steps.check()
    finally:
        steps.bench.close()


@pytest.mark.parametrize("seed", range(12))
def test_memory_is_what_loading_the_log_gives_with_one_offset_a_step(seed: int, one_by_one: None) -> None:
    steps = RandomSteps(seed, holds=False)
    try:
        for _ in range(2 * STEPS):
            steps.step()
            if steps.random.random() < 0.3:
                steps.check()
    finally:
        steps.bench.close()
