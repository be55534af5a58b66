"""Offsets that transactions send to groups: TxnOffsetCommit, and OffsetFetch, OffsetDelete and DeleteGroups while
transactions are open (KIP-98, KIP-447, KIP-890)."""

from __future__ import annotations

from random import Random
from typing import Any, Final
from uuid import UUID

import pytest

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.members import enter, join, joining, offsets_of, settle
from tests.oracle.differential.pair import Answers, Pair, eventually, versions
from tests.oracle.differential.sides import Name
from tests.oracle.differential.transactional_ids import await_coordinator

UNKNOWN_ID: Final = UUID(int=77)
ADDING: Final = 5
"""The version of TxnOffsetCommit from which on the broker adds the group to the transaction."""
COMPLETE: Final = ("Empty", "CompleteCommit", "CompleteAbort")


class Transactions:
    """A transactional producer, whose every request goes to both sides."""

    def __init__(self, pair: Pair, name: str) -> None:
        self.pair = pair
        self.id = name
        self.producer = Name(f"producer of {name}")
        self.epoch = 0
        await_coordinator(pair, self.id)
        eventually(self._init)

    def _init(self) -> None:
        answers = self.pair.ask(
            ApiKey.INIT_PRODUCER_ID, 5, transactional_id=self.id, transaction_timeout=60_000, producer_id=-1
        )
        for answer in answers.both:
            assert answer["error_code"] == 0, answer
        self.pair_of(answers)

    def pair_of(self, answers: Answers) -> None:
        answers.learn(self.producer.of, lambda answer: answer["producer_id"])
        for side, answer in zip(answers.sides, answers.both, strict=True):
            side.names[f"epoch of {self.id}"] = answer["producer_epoch"]

    @property
    def current_epoch(self) -> Name:
        return Name(f"epoch of {self.id}")

    def add(self, group: str) -> None:
        """AddOffsetsToTxn."""
        self.pair.same(
            ApiKey.ADD_OFFSETS_TO_TXN,
            3,
            transactional_id=self.id,
            producer_id=self.producer,
            producer_epoch=self.current_epoch,
            group_id=group,
        )

    def send(
        self,
        version: int,
        group: str,
        topic: str,
        *partitions: tuple[int, int],
        metadata: str | None = "m",
        topic_id: Any = None,
        **fields: Any,
    ) -> Answers:
        """TxnOffsetCommit."""
        given = offsets_of(partitions, metadata)
        found = Name(f"id of {topic}") if topic_id is None else topic_id
        asked: dict[str, Any] = {
            "transactional_id": self.id, "group_id": group, "producer_id": self.producer,
            "producer_epoch": self.current_epoch, "generation_id": -1, "member_id": "", "group_instance_id": None,
            "topics": [{"name": topic, "topic_id": found, "partitions": given}], **fields,
        }  # fmt: skip
        return self.pair.same(ApiKey.TXN_OFFSET_COMMIT, version, **asked)

    def end(self, version: int, *, commit: bool = True) -> None:
        """EndTxn, and wait until all markers are written."""
        answers = self.pair.ask(
            ApiKey.END_TXN,
            version,
            transactional_id=self.id,
            producer_id=self.producer,
            producer_epoch=self.current_epoch,
            committed=commit,
        ).check(f"EndTxn v{version}", ignore=("producer_id", "producer_epoch"))
        if version >= ADDING and answers.kafka["error_code"] == 0:
            self.pair_of(answers)
        eventually(self._completed)

    def _completed(self) -> None:
        for answer in self.pair.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[self.id]).both:
            assert answer["transaction_states"][0]["transaction_state"] in COMPLETE, answer


def commit(pair: Pair, group: str, topic: str, *partitions: tuple[int, int], **fields: Any) -> None:
    """OffsetCommit without a transaction."""
    given = [{"partition_index": index, "committed_offset": offset} for index, offset in partitions]
    asked: dict[str, Any] = {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "topics": [{"name": topic, "partitions": given}], **fields,
    }  # fmt: skip
    pair.same(ApiKey.OFFSET_COMMIT, 9, **asked)


def fetch(pair: Pair, group: str, topic: str, indexes: list[int]) -> None:
    """OffsetFetch, with and without RequireStable, of some and of all partitions, in the versions of both kinds."""
    asked = [{"name": topic, "partition_indexes": indexes}]
    by_id = [{"topic_id": Name(f"id of {topic}"), "partition_indexes": indexes}]
    for stable in (False, True):
        for version, topics in ((9, asked), (10, by_id), (9, None)):
            groups = [{"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}]
            pair.same(ApiKey.OFFSET_FETCH, version, groups=groups, require_stable=stable)
        pair.same(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=asked, require_stable=stable)


def end_version(version: int) -> int:
    return 5 if version >= ADDING else 4


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_offsets_of_transactions(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic, partitions=3)
    group = f"{topic}-group"
    sender = Transactions(pair, f"{topic}-tx")
    commit(pair, group, topic, (0, 1), (1, 2))
    for committed in (True, False):
        if version < ADDING:
            sender.add(group)
        sender.send(version, group, topic, (0, 5), (2, 6))
        fetch(pair, group, topic, [0, 1, 2, 7])
        sender.send(version, group, topic, (0, 7), (9, 1), (-1, 1))
        sender.send(version, group, topic, (1, 8), metadata=None)
        sender.send(version, group, topic, (1, 9), metadata="x" * 4097)
        sender.send(version, group, topic, (9, 9))
        sender.send(version, group, "nowhere", (0, 9), topic_id=UNKNOWN_ID)
        sender.send(version, "", topic, (0, 9))
        sender.send(version, group, topic)
        fetch(pair, group, topic, [0, 1, 2])
        commit(pair, group, topic, (1, 20 + committed))
        fetch(pair, group, topic, [0, 1, 2])
        sender.end(end_version(version), commit=committed)
        fetch(pair, group, topic, [0, 1, 2])


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT))
def test_senders_that_have_no_open_transaction(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    group = f"{topic}-group"
    sender = Transactions(pair, f"{topic}-tx")
    if version < ADDING:
        sender.send(version, group, topic, (0, 1))
    fetch(pair, group, topic, [0])
    sender.send(version, group, topic, (0, 1), producer_epoch=7)
    sender.send(version, group, topic, (0, 1), producer_id=999_999_999)
    sender.send(version, group, topic, (0, 1), transactional_id=f"{topic}-unknown")
    if version < ADDING:
        sender.add(group)
    sender.send(version, group, topic, (0, 2))
    sender.end(end_version(version))
    before = sender.pair.ask(
        ApiKey.INIT_PRODUCER_ID, 5, transactional_id=sender.id, transaction_timeout=60_000, producer_id=-1
    )
    sender.send(version, group, topic, (0, 3))  # by the former producer, which is fenced
    sender.pair_of(before)
    fetch(pair, group, topic, [0])


@pytest.mark.parametrize("version", versions(ApiKey.TXN_OFFSET_COMMIT, since=3))
def test_members_in_transactions(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    group = f"{topic}-group"
    sender = Transactions(pair, f"{topic}-tx")
    if version < ADDING:
        sender.add(group)
        sender.add(f"{group}-new")
    sender.send(version, f"{group}-new", topic, (0, 1), generation_id=1, member_id="stranger")
    member = enter(pair, group)
    sender.send(version, group, topic, (0, 1), member_id=member, generation_id=1)
    settle(pair, group, member)
    for generation in (1, 0, 2, -1):
        for who in (member, "stranger", ""):
            for instance in (None, "i"):
                sender.send(
                    version, group, topic, (0, 1), member_id=who, generation_id=generation, group_instance_id=instance
                )
    pair.same(ApiKey.LEAVE_GROUP, 5, group_id=group, members=[{"member_id": member}])
    sender.send(version, group, topic, (0, 3), member_id=member, generation_id=1)
    sender.send(version, group, topic, (0, 4))
    sender.end(end_version(version))
    fetch(pair, group, topic, [0])


def test_a_member_sends_offsets_during_a_rebalance(pair: Pair, topic: str) -> None:
    pair.create(topic)
    group = f"{topic}-group"
    sender = Transactions(pair, f"{topic}-tx")
    other = pair.another()
    first = enter(pair, group, "first")
    settle(pair, group, first)
    second = other.ask(ApiKey.JOIN_GROUP, 9, **joining(group)).learn("second", lambda answer: answer["member_id"])
    other.send(ApiKey.JOIN_GROUP, 9, **joining(group, member_id=second))
    eventually(lambda: _is(pair, group, "PreparingRebalance"))

    def sends() -> None:
        for generation in (-1, 1, 2):
            for member in (first, second, ""):
                sender.send(5, group, topic, (0, 1), member_id=member, generation_id=generation)

    sends()
    join(pair, 9, group, member_id=first)
    other.receive(ApiKey.JOIN_GROUP, 9).check("the second joins")
    sends()  # CompletingRebalance
    sender.end(5)
    fetch(pair, group, topic, [0])
    other.close()


def _is(pair: Pair, group: str, state: str) -> None:
    for answer in pair.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group]).both:
        assert answer["groups"][0]["group_state"] == state


def test_offsets_of_open_transactions_are_deleted(pair: Pair, topic: str) -> None:
    pair.create(topic, partitions=3)
    group = f"{topic}-group"
    sender = Transactions(pair, f"{topic}-tx")
    commit(pair, group, topic, (0, 1))
    sender.send(5, group, topic, (0, 5), (1, 6), (2, 7))
    asked = [{"name": topic, "partitions": [{"partition_index": index} for index in (0, 1)]}]
    pair.same(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=asked)
    fetch(pair, group, topic, [0, 1, 2])
    sender.end(5)
    fetch(pair, group, topic, [0, 1, 2])
    sender.send(5, group, topic, (0, 8))
    sender.send(5, f"{group}-new", topic, (0, 9))
    pair.same(ApiKey.DELETE_GROUPS, 2, groups_names=[group, f"{group}-new"])
    fetch(pair, group, topic, [0, 1, 2])
    sender.end(5)
    fetch(pair, group, topic, [0, 1, 2])
    fetch(pair, f"{group}-new", topic, [0])
    pair.same(ApiKey.DELETE_GROUPS, 2, groups_names=[group])


@pytest.mark.parametrize("seed", range(6))
def test_random_offsets_of_transactions(pair: Pair, topic: str, seed: int) -> None:
    """Two producers and a consumer without a transaction commit the offsets of one group."""
    random = Random(seed)
    pair.create(topic, partitions=2)
    group = f"{topic}-group"
    senders = [Transactions(pair, f"{topic}-{one}") for one in range(2)]
    is_open = [False, False]
    for offset in range(60):
        partitions = [(index, offset) for index in random.choice([(0,), (1,), (0, 1)])]
        one = random.randrange(2)
        match random.choices(range(5), weights=(4, 10, 8, 1, 1))[0]:
            case 0:
                commit(pair, group, topic, *partitions)
            case 1:
                senders[one].send(random.choice([5, 6]), group, topic, *partitions)
                is_open[one] = True
            case 2 if is_open[one]:
                senders[one].end(5, commit=random.random() < 0.7)
                is_open[one] = False
            case 3:
                asked = [{"name": topic, "partitions": [{"partition_index": partitions[0][0]}]}]
                pair.same(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=asked)
            case 4:
                pair.same(ApiKey.DELETE_GROUPS, 2, groups_names=[group])
        groups = [
            {"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}
            for topics in ([{"name": topic, "partition_indexes": [0, 1]}], None)
        ]
        for stable in (False, True):
            pair.same(ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=stable)
