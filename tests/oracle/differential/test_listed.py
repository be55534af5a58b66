"""Deliberate differences from Kafka: both sides behave as docs/compatibility.md says."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import Codec, iter_batches
from milena.protocol.records.records import Record, iter_records
from tests.oracle.differential.batches import THEN, batch, forged, records
from tests.oracle.differential.pair import Answers, Pair, eventually
from tests.oracle.differential.sides import Name

MIB: Final = 1 << 20
TRIES: Final = 5
RANGE: Final = [{"name": "range", "metadata": b"m"}]


def produce(pair: Pair, topic: str, *batches: bytes, partitions: tuple[int, ...] = ()) -> Answers:
    """Send one Produce request. Without ``partitions``, all batches are for partition 0."""
    data = [
        {"index": index, "records": one} for index, one in zip(partitions or (0,) * len(batches), batches, strict=True)
    ]
    topics = [{"name": topic, "partition_data": data}]
    return pair.ask(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)


def results(answers: Answers) -> list[list[tuple[int, int]]]:
    """Return error code and base offset of each partition, for both sides."""
    parts = [answer["responses"][0]["partition_responses"] for answer in answers.both]
    return [[(one["error_code"], one["base_offset"]) for one in side] for side in parts]


def fetch(
    pair: Pair, *wanted: tuple[str, Mapping[str, Any]], session: tuple[Any, int] = (0, -1), **more: Any
) -> Answers:
    base = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 5 * MIB, "current_leader_epoch": -1}
    base |= {"log_start_offset": -1, "last_fetched_epoch": -1}
    topics = [{"topic": topic, "partitions": [{**base, **part}]} for topic, part in wanted]
    asked: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 * MIB, **more}
    return pair.ask(ApiKey.FETCH, 11, session_id=session[0], session_epoch=session[1], topics=topics, **asked)


def partitions_of(answers: Answers) -> list[list[int]]:
    """Return the partitions in each side's response."""
    return [
        [part["partition_index"] for topic in answer["responses"] for part in topic["partitions"]]
        for answer in answers.both
    ]


def held(answers: Answers) -> list[bytes]:
    """Return the records of the only partition, from both sides."""
    return [answer["responses"][0]["partitions"][0]["records"] for answer in answers.both]


def joining(group: str, **fields: Any) -> dict[str, Any]:
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer",
        "protocols": RANGE, "reason": None, "member_id": "", "group_instance_id": None, **fields,
    }  # fmt: skip


def begin(pair: Pair, group: str, name: str = "member") -> Name:
    """Join as a pending member, which has only got its id."""
    answers = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(group))
    assert {answer["error_code"] for answer in answers.both} == {ErrorCode.MEMBER_ID_REQUIRED}
    return answers.learn(name, lambda answer: answer["member_id"])


def codes(answers: Answers) -> list[int]:
    return [answer["error_code"] for answer in answers.both]


class TestProduce:
    def test_a_partition_twice_in_one_request(self, pair: Pair, topic: str) -> None:
        """Kafka's map has only the last batch: the one before is lost without an error."""
        pair.create(topic)
        assert results(produce(pair, topic, batch(1), batch(2))) == [[(0, 0)], [(0, 0), (0, 1)]]
        end = pair.ask(
            ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=[{"name": topic, "partitions": [{"timestamp": -1}]}]
        )
        assert [answer["topics"][0]["partitions"][0]["offset"] for answer in end.both] == [2, 3]

    def test_one_damaged_batch_among_several(self, pair: Pair, topic: str) -> None:
        pair.create(topic, partitions=2)
        answers = produce(pair, topic, batch(), forged(batch(), magic=3), partitions=(0, 1))
        found = [
            {part["index"]: part["error_code"] for part in one["responses"][0]["partition_responses"]}
            for one in answers.both
        ]
        corrupt = ErrorCode.CORRUPT_MESSAGE
        assert found == [{0: corrupt, 1: corrupt}, {0: ErrorCode.NONE, 1: corrupt}]

    @pytest.mark.parametrize(
        "odd",
        [batch(1, base_timestamp=-50), batch(1, producer_id=7, producer_epoch=-1, base_sequence=0)],
        ids=["a timestamp below -1", "a producer without an epoch"],
    )
    def test_odd_batches_that_the_broker_recompresses(self, pair: Pair, topic: str, odd: bytes) -> None:
        pair.create(topic, compression_type="zstd")
        assert results(produce(pair, topic, odd)) == [[(ErrorCode.UNKNOWN_SERVER_ERROR, -1)], [(0, 0)]]

    def test_base_timestamps_of_batches_that_the_broker_recompresses(self, pair: Pair, topic: str) -> None:
        """The sums of base timestamp and delta are the same."""
        pair.create(topic, compression_type="zstd")
        first = records(2)
        moved = [Record(one.offset_delta, one.timestamp_delta + 5, one.key, one.value, one.headers) for one in first]
        produce(pair, topic, batch(moved))
        batches = [next(iter_batches(memoryview(data))) for data in held(fetch(pair, (topic, {})))]
        assert [one.base_timestamp for one in batches] == [THEN + 5, THEN]
        times = [[one.base_timestamp + record.timestamp_delta for record in iter_records(one)] for one in batches]
        assert times == [[THEN + 5, THEN + 6]] * 2

    def test_the_attribute_log_append_time_in_a_batch_that_the_broker_rewrites(self, pair: Pair, topic: str) -> None:
        """The client sets LogAppendTime in a topic with CreateTime: Kafka gives all records the largest timestamp."""
        pair.create(topic, compression_type="uncompressed")
        produce(pair, topic, forged(batch(2, codec=Codec.GZIP), attributes=Codec.GZIP | 8))
        batches = [next(iter_batches(memoryview(data))) for data in held(fetch(pair, (topic, {})))]
        times = [[one.base_timestamp + record.timestamp_delta for record in iter_records(one)] for one in batches]
        assert times == [[THEN + 1, THEN + 1], [THEN, THEN + 1]]

    def test_a_duplicate_that_would_not_fit_into_the_segment(self, pair: Pair, topic: str) -> None:
        """Kafka rolls the segment before it finds the duplicate, so that a fetch ends at that segment."""
        pair.create(topic, segment_bytes=MIB, max_message_bytes=2 * MIB)
        large = batch(records(1, value=b"x" * 700_000), producer_id=7, producer_epoch=0, base_sequence=0)
        small = batch(1)
        for one, offset in ((large, 0), (large, 0), (small, 1)):
            assert results(produce(pair, topic, one)) == [[(0, offset)]] * 2
        assert [len(data) for data in held(fetch(pair, (topic, {})))] == [len(large), len(large) + len(small)]


class TestFetchSessions:
    def test_another_leader_epoch_or_isolation_is_answered_at_once(self, pair: Pair, topic: str) -> None:
        pair.create(topic)
        session = fetch(pair, (topic, {}), session=(0, 0)).learn("session", lambda answer: answer["session_id"])
        assert partitions_of(fetch(pair, (topic, {"current_leader_epoch": 0}), session=(session, 1))) == [[], [0]]
        assert partitions_of(fetch(pair, (topic, {"current_leader_epoch": 0}), session=(session, 2))) == [[], []]
        assert partitions_of(fetch(pair, session=(session, 3))) == [[], []]

    def test_the_order_where_a_limit_is_not_enough_for_all(self, pair: Pair, topic: str) -> None:
        """Partition 0 allows no bytes, so that it is served only if it is first."""
        pair.create(topic, partitions=2)
        pair.produce(topic, batch(), partition=1)
        busy, idle = (topic, {"partition": 1}), (topic, {"partition_max_bytes": 0})
        session = fetch(pair, busy, session=(0, 0)).learn("session", lambda answer: answer["session_id"])
        fetch(pair, idle, session=(session, 1))
        pair.produce(topic, batch(1))
        for epoch, order in ((2, [[0, 1], [1, 0]]), (3, [[0, 1], [0, 1]]), (4, [[0, 1], [0, 1]])):
            answers = fetch(pair, session=(session, epoch))
            found = [
                [part["partition_index"] for part in answer["responses"][0]["partitions"]] for answer in answers.both
            ]
            assert found == order


class TestGroups:
    def test_a_pending_member_that_leaves(self, pair: Pair, topic: str) -> None:
        joined = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(topic, group_instance_id="i"))
        leader = joined.learn("leader", lambda answer: answer["member_id"])
        of_leader: dict[str, Any] = {"member_id": leader, "group_instance_id": "i", "generation_id": 1}
        pair.same(ApiKey.SYNC_GROUP, 3, group_id=topic, assignments=[], **of_leader)
        member = begin(pair, topic)
        pair.same(ApiKey.LEAVE_GROUP, 5, group_id=topic, members=[{"member_id": member, "group_instance_id": None}])
        beaten = pair.ask(ApiKey.HEARTBEAT, 4, group_id=topic, **of_leader)
        assert codes(beaten) == [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE]

    def test_a_pending_member_with_an_instance_id(self, pair: Pair, topic: str) -> None:
        """The member id was assigned to a member without an instance id."""
        member = begin(pair, topic)
        joined = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(topic, member_id=member, group_instance_id="i"))
        assert codes(joined) == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_MEMBER_ID]

    def test_a_group_that_never_had_a_member(self, pair: Pair, topic: str) -> None:
        member = begin(pair, topic)
        pair.same(ApiKey.LEAVE_GROUP, 5, group_id=topic, members=[{"member_id": member, "group_instance_id": None}])
        described = pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[topic])
        assert [answer["groups"][0]["group_state"] for answer in described.both] == ["Empty", "Dead"]
        deleted = pair.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[topic])
        found = [answer["results"][0]["error_code"] for answer in deleted.both]
        assert found == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]

    def test_a_member_of_a_group_that_a_refused_commit_has_made(self, pair: Pair, topic: str) -> None:
        """Kafka describes groups from the log, and no record of this group was written."""
        pair.create(topic)
        part = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "x" * 4097,
        }
        topics = [{"name": topic, "partitions": [part]}]
        asked: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        pair.same(ApiKey.OFFSET_COMMIT, 8, group_id=topic, topics=topics, **asked)
        assert codes(pair.ask(ApiKey.JOIN_GROUP, 9, **joining(topic, group_instance_id="i"))) == [0, 0]
        described = pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[topic])
        states = [answer["groups"][0]["group_state"] for answer in described.both]
        assert states == ["Dead", "CompletingRebalance"]

    def test_a_member_that_leaves_while_its_sync_waits(self, pair: Pair, topic: str) -> None:
        other = pair.another()
        first = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(topic, group_instance_id="i"))
        leader = first.learn("leader", lambda answer: answer["member_id"])
        member = begin(other, topic)
        other.send(ApiKey.JOIN_GROUP, 9, **joining(topic, member_id=member))
        eventually(lambda: _preparing(pair, topic))
        again = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(topic, member_id=leader, group_instance_id="i"))
        assert codes(again) == codes(other.receive(ApiKey.JOIN_GROUP, 9)) == [0, 0]
        asked: dict[str, Any] = {"generation_id": 2, "member_id": member, "assignments": []}
        other.send(ApiKey.SYNC_GROUP, 3, group_id=topic, **asked)
        for _ in range(10):  # There is no event for the time when the coordinator has the request and it waits.
            pair.same(ApiKey.DESCRIBE_GROUPS, 5, groups=[topic])
        assert other.waits() == (True, True)
        pair.same(ApiKey.LEAVE_GROUP, 5, group_id=topic, members=[{"member_id": member, "group_instance_id": None}])
        eventually(lambda: _answered_by_milena(other))
        rejoined = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(topic, member_id=leader, group_instance_id="i"))
        assert codes(rejoined) == [0, 0]
        assert other.waits() == (True, False)
        assert other.receive_from_milena(ApiKey.SYNC_GROUP, 3)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
        other.close()

    def test_a_waiting_member_that_joins_again(self, pair: Pair, topic: str) -> None:
        """Kafka never answers the member's first JoinGroup."""
        groups = (f"{topic}-{number}" for number in range(TRIES))
        assert any(_first_of_two_joins_waits(pair, group) for group in groups)

    def test_the_others_of_a_group_that_has_no_room_for_a_member(self, pair: Pair, topic: str) -> None:
        """Kafka does not check whether the others waited only for this member. group.max.size is 3."""
        clients = {name: pair.another() for name in "ijkl"}

        def send(name: str, **fields: Any) -> None:
            clients[name].send(ApiKey.JOIN_GROUP, 9, **joining(topic, group_instance_id=name, **fields))

        def join(name: str, member: Name | str = "", metadata: bytes = b"m") -> None:
            send(name, member_id=member, protocols=[{"name": "range", "metadata": metadata}])
            eventually(lambda: _preparing(pair, topic))

        def joined(name: str) -> Name:
            answers = clients[name].receive(ApiKey.JOIN_GROUP, 9)
            assert codes(answers) == [0, 0]
            return answers.learn(f"member {name}", lambda answer: answer["member_id"])

        members: dict[str, Name] = {}
        send("i")
        members["i"] = joined("i")
        for newcomer in "jk":
            join(newcomer)
            *early, last = members
            for name in early:
                join(name, members[name])
            send(last, member_id=members[last])
            members = {name: joined(name) for name in (*members, newcomer)}
        for name in "ij":
            join(name, members[name], b"other")
        join("l")
        eventually(lambda: _has_members(pair, topic, 4))
        refused = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(topic, member_id=members["k"], group_instance_id="k")).check(
            "a full group"
        )
        assert codes(refused) == [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2
        for name in "ijl":
            eventually(partial(_answered_by_milena, clients[name]))
        for client in clients.values():
            client.close()


def _first_of_two_joins_waits(pair: Pair, group: str) -> bool:
    """False if Kafka has received the second join only after the group was complete, which cannot be observed."""
    early, late = pair.another(), pair.another()
    try:
        first = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(group, group_instance_id="i"))
        leader = first.learn("leader", lambda answer: answer["member_id"])
        member = begin(early, group)
        early.send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=member))
        eventually(lambda: _preparing(pair, group))
        late.send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=member))
        eventually(lambda: _answered_by_milena(early))
        again = pair.ask(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=leader, group_instance_id="i"))
        assert codes(again) == [0, 0]
        assert codes(late.receive(ApiKey.JOIN_GROUP, 9)) == [0, 0]
        assert early.receive_from_milena(ApiKey.JOIN_GROUP, 9)["error_code"] == ErrorCode.REBALANCE_IN_PROGRESS
        return early.waits()[0]
    finally:
        early.close()
        late.close()


def _preparing(pair: Pair, group: str) -> None:
    found = pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    assert [answer["groups"][0]["group_state"] for answer in found.both] == ["PreparingRebalance"] * 2


def _has_members(pair: Pair, group: str, count: int) -> None:
    found = pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])
    assert [len(answer["groups"][0]["members"]) for answer in found.both] == [count] * 2


def _answered_by_milena(pair: Pair) -> None:
    assert pair.waits() == (True, False)
