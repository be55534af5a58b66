"""The follower's side of a fetch session, with the leader's side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milena.broker.follower.follower_state import FollowerState
from milena.broker.follower.session import FollowerSession, SessionFetch
from milena.broker.follower.transition_log import TransitionLog
from milena.broker.replica.fetch_sessions import FetchSessions, RequestedPartition
from milena.node.metadata.image import PartitionImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import Offset
from milena.runtime.randomness import Randomness
from tests.unit.broker.fixtures import OTHER, Bench, batch, led_by
from tests.unit.broker.hand_clock import HandClock

COUNT = 4


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[FollowerState]]:
    bench = Bench(tmp_path_factory.mktemp("followed"))
    yield [following(bench, f"t{number}") for number in range(COUNT)]
    bench.close()


def following(bench: Bench, name: str = "t", image: PartitionImage | None = None) -> FollowerState:
    image = image or led_by(OTHER, replicas=(OTHER, 1))
    partition = bench.host(bench.topic(name, image), 0)
    partition.become(image)
    return FollowerState(partition, TransitionLog(bench.clock, keeps=False))


def requested_topics(fetch: SessionFetch) -> list[str]:
    return [one.partition.topic for one in fetch.partitions]


def opened(session: FollowerSession, number: int = 77) -> None:
    assert session.next_fetch().session_epoch == 0
    assert session.response_received(number, 0)


def test_the_first_fetch_names_all_partitions_and_later_ones_only_changed_ones(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    a, b = following(bench, "a"), following(bench, "b")
    session = FollowerSession()
    session.add(a)
    session.add(b)
    first = session.next_fetch()
    assert (first.session_id, first.session_epoch, requested_topics(first)) == (0, 0, ["a", "b"])
    session.response_received(77, 0)
    second = session.next_fetch()
    assert (second.session_id, second.session_epoch, requested_topics(second)) == (77, 1, [])
    session.response_received(77, 0)
    a.log.append_as_leader(batch(b"1"), leader_epoch=a.leader_epoch)
    session.move_to_end(a)
    third = session.next_fetch()
    assert (third.session_epoch, requested_topics(third)) == (2, ["a"])
    assert a.sent is not None
    assert (a.sent.offset, a.sent.last_fetched_epoch) == (1, 0)
    bench.close()


def test_a_removed_partition_is_forgotten_and_named_again_when_it_is_added(
    followed: list[FollowerState],
) -> None:
    a, b = followed[:2]
    session = FollowerSession()
    session.add(a)
    session.add(b)
    opened(session)
    session.remove(a)
    fetch = session.next_fetch()
    assert (requested_topics(fetch), fetch.forgotten) == ([], [(a.partition.topic, *a.key)])
    session.response_received(77, 0)
    session.add(a)
    fetch = session.next_fetch()
    assert (requested_topics(fetch), fetch.forgotten) == ([a.partition.topic], [])


def test_a_partition_added_again_before_the_next_fetch_is_not_forgotten(followed: list[FollowerState]) -> None:
    a = followed[0]
    session = FollowerSession()
    session.add(a)
    opened(session)
    session.remove(a)
    session.add(a)
    fetch = session.next_fetch()
    assert (requested_topics(fetch), fetch.forgotten) == ([a.partition.topic], [])


def test_a_lost_session_is_replaced_by_a_full_fetch(followed: list[FollowerState]) -> None:
    session = FollowerSession()
    for one in followed:
        session.add(one)
    opened(session)
    session.next_fetch()
    assert not session.response_received(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    fetch = session.next_fetch()
    assert (fetch.session_id, fetch.session_epoch, len(fetch.partitions)) == (0, 0, COUNT)


def test_a_broken_connection_replaces_the_session(followed: list[FollowerState]) -> None:
    session = FollowerSession()
    session.add(followed[0])
    opened(session)
    session.next_fetch()
    session.reset()
    fetch = session.next_fetch()
    assert (fetch.session_id, fetch.session_epoch) == (77, 0)


def test_without_a_session_fetches_are_full_and_partitions_with_records_come_last(
    followed: list[FollowerState],
) -> None:
    session = FollowerSession()
    for one in followed:
        session.add(one)
    assert requested_topics(session.next_fetch()) == ["t0", "t1", "t2", "t3"]
    session.response_received(0, 0)
    session.move_to_end(followed[0])
    fetch = session.next_fetch()
    assert (fetch.session_epoch, requested_topics(fetch)) == (0, ["t1", "t2", "t3", "t0"])


def test_an_empty_session_sends_no_fetch(followed: list[FollowerState]) -> None:
    session = FollowerSession()
    assert not session.pending
    session.add(followed[0])
    session.remove(followed[0])
    assert not session.pending


Action = tuple[str, int]
actions = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "move_to_end", "fetch", "fetch", "break", "evict"]), st.integers(0, COUNT - 1)
    ),
    max_size=40,
)


@given(actions)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_the_leaders_session_always_has_the_followers_partitions(
    followed: list[FollowerState], history: list[Action]
) -> None:
    """After additions, removals and lost requests, both sides have the same partitions after a fetch."""
    session, leader = FollowerSession(), FetchSessions(HandClock(), Randomness(1), 5)
    ready: set[str] = set()
    for what, number in history:
        one = followed[number]
        match what:
            case "add":
                session.add(one)
                ready.add(one.partition.topic)
            case "remove":
                session.remove(one)
                ready.discard(one.partition.topic)
            case "move_to_end":
                session.move_to_end(one)
            case "evict":
                leader = FetchSessions(HandClock(), Randomness(number), 5)
            case "break" if session.pending:
                ask(leader, session.next_fetch())
                session.reset()
            case "fetch" if session.pending:
                held, error = ask(leader, session.next_fetch())
                session_id, topics = held
                if session.response_received(session_id, error):
                    assert topics == ready


def ask(leader: FetchSessions, fetch: SessionFetch) -> tuple[tuple[int, set[str]], int]:
    """The leader's session after a fetch, and the error of the response."""
    requested = []
    for one in fetch.partitions:
        topic, (topic_id, index) = one.partition.topic, one.key
        requested.append(RequestedPartition(topic, topic_id, index, Offset(0), 1, 0, None))
    forgotten = [(topic_id, index) for _, topic_id, index in fetch.forgotten]
    try:
        plan = leader.plan(
            fetch.session_id, fetch.session_epoch, requested, forgotten, privileged=True, uses_topic_ids=True
        )
    except KafkaError as error:
        return (0, set()), error.code
    if plan.session is None:
        return (0, {one.topic or "" for one in plan.requested}), 0
    return (plan.session.id, {one.topic or "" for one in plan.session.partitions.values()}), 0
