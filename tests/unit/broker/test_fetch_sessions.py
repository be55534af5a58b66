"""Fetch sessions: the rules of KIP-227, the contents of responses, and evictions."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from milena.broker.replica.fetch_sessions import EVICTION_MS, FetchPlan, FetchSessions, RequestedPartition, Session
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.randomness import Randomness
from tests.unit.broker.hand_clock import HandClock


def wanted(index: int, offset: int = 0, topic: str = "t") -> RequestedPartition:
    return RequestedPartition(topic, None, index, offset, 1 << 20, None, None)


class Client:
    """Uses the sessions like a consumer."""

    def __init__(self, slots: int = 10, max_partitions: int = 1_000) -> None:
        self.clock = HandClock()
        self.sessions = FetchSessions(self.clock, Randomness(1), slots, max_partitions)

    def fetch(
        self,
        session: int,
        epoch: int,
        *want: RequestedPartition,
        forget: tuple[int, ...] = (),
        privileged: bool = False,
    ) -> FetchPlan:
        return self.sessions.plan(
            session, epoch, list(want), [("t", index) for index in forget], privileged=privileged, uses_topic_ids=False
        )


def included(plan: FetchPlan, high_watermark: int = 0, always: bool = False, failed: bool = False) -> list[int]:
    return [
        one.index
        for one in plan.partitions
        if plan.includes(one, high_watermark=high_watermark, log_start=0, always=always, failed=failed)
    ]


def test_a_sessionless_fetch_returns_all_partitions_and_creates_no_session() -> None:
    client = Client()
    plan = client.fetch(0, -1, wanted(0), wanted(1))
    assert plan.session_id == 0 and included(plan) == [0, 1] and included(plan) == [0, 1]
    assert len(client.sessions) == 0


@pytest.mark.parametrize("epoch", [-1, 0])
def test_of_a_partition_that_is_listed_twice_the_last_entry_counts_at_the_place_of_the_first(epoch: int) -> None:
    plan = Client().fetch(0, epoch, wanted(0, offset=3), wanted(1), wanted(0, offset=5))
    assert [(one.index, one.offset) for one in plan.partitions] == [(0, 5), (1, 0)]


def test_an_incremental_fetch_includes_only_changed_partitions() -> None:
    client = Client()
    first = client.fetch(0, 0, wanted(0), wanted(1))
    assert first.session_id != 0 and included(first, high_watermark=5) == [0, 1]
    assert included(client.fetch(first.session_id, 1), high_watermark=5) == []
    assert included(client.fetch(first.session_id, 2), high_watermark=6) == [0, 1]
    assert included(client.fetch(first.session_id, 3), high_watermark=6, always=True) == [0, 1]


def test_a_session_without_partitions_ends_and_the_request_is_sessionless() -> None:
    client = Client()
    session = client.fetch(0, 0, wanted(0)).session_id
    last = client.fetch(session, 1, wanted(0, offset=3), forget=(0,))
    assert last.session_id == 0 and included(last) == [0]
    assert len(client.sessions) == 0


def test_an_error_is_included_and_so_is_the_next_result() -> None:
    client = Client()
    session = client.fetch(0, 0, wanted(0)).session_id
    assert included(client.fetch(session, 1), failed=True) == [0]
    assert included(client.fetch(session, 2)) == [0]
    assert included(client.fetch(session, 3)) == []


def test_a_session_adds_updates_and_forgets_partitions() -> None:
    client = Client()
    session = client.fetch(0, 0, wanted(0), wanted(1)).session_id
    plan = client.fetch(session, 1, wanted(1, offset=7), wanted(2), forget=(0,))
    assert [(one.index, one.offset) for one in plan.partitions] == [(1, 7), (2, 0)]
    empty = client.fetch(session, 2, forget=(1, 2))
    assert empty.session_id == 0 and empty.partitions == [] and len(client.sessions) == 0


def test_partitions_that_had_records_are_read_last() -> None:
    client = Client()
    plan = client.fetch(0, 0, wanted(0), wanted(1), wanted(2))
    assert plan.session is not None
    plan.session.move_to_end(plan.partitions[0])
    assert [one.index for one in client.fetch(plan.session_id, 1).partitions] == [1, 2, 0]


@dataclass
class FakePartition:
    """A partition that notifies its listeners."""

    listeners: dict[RequestedPartition, Session] = field(default_factory=dict)

    def change(self) -> None:
        heard = dict(self.listeners)
        self.listeners.clear()
        for one, session in heard.items():
            session.note_changed(one)


class TestChangedPartitions:
    def cooled(self, client: Client) -> tuple[int, list[RequestedPartition], list[FakePartition]]:
        """A session of three partitions without changes."""
        plan = client.fetch(0, 0, wanted(0), wanted(1), wanted(2))
        assert plan.session is not None
        partitions, speakers = plan.partitions, [FakePartition(), FakePartition(), FakePartition()]
        for one, speaker in zip(partitions, speakers, strict=True):
            plan.session.read_on_change(one, speaker)
        return plan.session_id, partitions, speakers

    def test_only_changed_partitions_are_read_again(self) -> None:
        client = Client()
        session, _, speakers = self.cooled(client)
        assert client.fetch(session, 1).partitions == []
        speakers[1].change()
        assert [one.index for one in client.fetch(session, 2).partitions] == [1]
        assert [one.index for one in client.fetch(session, 3).partitions] == [1], "until it is cool again"

    def test_partitions_that_the_client_updates_are_read_again(self) -> None:
        client = Client()
        session, _, _ = self.cooled(client)
        plan = client.fetch(session, 1, wanted(2, offset=5))
        assert [(one.index, one.offset) for one in plan.partitions] == [(2, 5)]

    def test_a_change_is_notified_once(self) -> None:
        client = Client()
        session, partitions, speakers = self.cooled(client)
        plan = client.fetch(session, 1)
        assert plan.session is not None
        speakers[0].change()
        speakers[0].change()
        assert plan.session.take_changed() == [partitions[0]] and plan.session.take_changed() == []

    def test_forgotten_evicted_and_closed_partitions_do_not_listen(self) -> None:
        client = Client()
        session, partitions, speakers = self.cooled(client)
        client.fetch(session, 1, forget=(0,))
        assert [len(speaker.listeners) for speaker in speakers] == [0, 1, 1]
        closed = client.fetch(session, -1)
        assert closed.session_id == 0
        assert [len(speaker.listeners) for speaker in speakers] == [0, 0, 0]
        speakers[1].change()
        assert partitions[1].source is None


def test_wrong_ids_and_epochs_are_refused() -> None:
    client = Client()
    session = client.fetch(0, 0, wanted(0)).session_id
    with pytest.raises(KafkaError) as unknown:
        client.fetch(session + 1, 1)
    with pytest.raises(KafkaError) as epoch:
        client.fetch(session, 2)
    with pytest.raises(KafkaError) as ids:
        client.sessions.plan(session, 1, [], [], privileged=False, uses_topic_ids=True)
    assert [error.value.code for error in (unknown, epoch, ids)] == [
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ]


def test_the_epoch_wraps_to_one() -> None:
    client = Client()
    plan = client.fetch(0, 0, wanted(0))
    assert plan.session is not None
    plan.session.epoch = 2**31 - 1
    client.fetch(plan.session_id, 2**31 - 1)
    assert plan.session.epoch == 1


def test_epoch_zero_and_minus_one_close_the_named_session() -> None:
    client = Client()
    first = client.fetch(0, 0, wanted(0)).session_id
    second = client.fetch(first, 0, wanted(0)).session_id
    assert second not in (0, first) and len(client.sessions) == 1
    assert client.fetch(second, -1, wanted(0)).session_id == 0 and len(client.sessions) == 0


def test_without_a_slot_there_is_no_session() -> None:
    client = Client(slots=1)
    first = client.fetch(0, 0, wanted(0)).session_id
    assert client.fetch(0, 0, wanted(0), wanted(1)).session_id == 0
    assert client.fetch(first, 1).session_id == first


def test_an_idle_session_is_evicted_by_any_other_and_an_old_one_by_a_larger_one() -> None:
    client = Client(slots=1)
    first = client.fetch(0, 0, wanted(0), wanted(1)).session_id
    client.clock.advance(EVICTION_MS / 1000 + 1)
    second = client.fetch(0, 0, wanted(0)).session_id
    assert second not in (0, first)
    for epoch in range(1, 4):
        client.clock.advance(EVICTION_MS / 2000)
        client.fetch(second, epoch)
    assert client.fetch(0, 0, wanted(0), wanted(1)).session_id not in (0, second)
    assert client.sessions.evictions == 2


def test_a_follower_takes_the_slot_of_a_consumer() -> None:
    client = Client(slots=1)
    client.fetch(0, 0, wanted(0), wanted(1))
    assert client.fetch(0, 0, wanted(0), privileged=True).session_id != 0
    assert client.fetch(0, 0, wanted(0), wanted(1)).session_id == 0


def test_consumers_get_no_session_beyond_the_limit_of_partitions() -> None:
    client = Client(max_partitions=5)
    first = client.fetch(0, 0, *map(wanted, range(3))).session_id
    assert first != 0
    assert client.fetch(0, 0, *map(wanted, range(3))).session_id == 0
    assert client.fetch(0, 0, *map(wanted, range(3)), privileged=True).session_id != 0, "a follower finds room"


def test_a_session_that_exceeds_the_limit_ends() -> None:
    client = Client(max_partitions=5)
    session = client.fetch(0, 0, *map(wanted, range(5))).session_id
    client.fetch(session, 1, wanted(5), forget=(0,))
    with pytest.raises(KafkaError) as refused:
        client.fetch(session, 2, wanted(6))
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.sessions.partitions == 0
