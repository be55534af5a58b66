"""The checker of histories: a valid history has no violations, and each planted anomaly is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milena.lab.histories import events
from milena.lab.histories.checker import Anomaly, Checker, Violation, check, counts
from milena.lab.histories.events import (
    AllowedDeletion,
    AllTopics,
    Event,
    FinalLog,
    FinalTopic,
    Hole,
    Poll,
    RequestOutcome,
    Send,
    TopicChange,
    Void,
)
from tests.fixtures.properties import examples
from tests.unit.lab.histories import PARTITION, PLANTS, Parts, valid

SEEDS = st.integers(0, 1 << 32)


@given(SEEDS)
def test_a_valid_history_has_no_violations(seed: int) -> None:
    assert check(valid(seed).events()) == []


@pytest.mark.parametrize(("plant", "anomaly"), PLANTS, ids=lambda one: getattr(one, "__name__", ""))
@given(seed=SEEDS)
@settings(max_examples=examples(30))
def test_a_planted_anomaly_is_found(plant: Callable[[Parts], Parts], anomaly: Anomaly, seed: int) -> None:
    assert anomaly in counts(check(plant(valid(seed)).events()))


@given(SEEDS)
@settings(max_examples=examples(30))
def test_a_history_is_unchanged_after_writing_and_reading(seed: int) -> None:
    parts = valid(seed).events()
    rest: list[Event] = [
        Void(PARTITION, 3.5, "an unclean election"),
        Void(PARTITION, 4.5, "led on", since=3.5, kept=7),
        AllowedDeletion(PARTITION, 5, "DeleteRecords"),
        AllowedDeletion(PARTITION, None, "retention"),
        Hole(PARTITION, 3, 5),
        FinalLog(PARTITION, ((0, "v0", 0),), dense=True, holes=((1, 2),)),
        TopicChange("made", True, RequestOutcome.UNKNOWN, {"a": "b"}),
        FinalTopic("made", {"a": "b"}),
        AllTopics(1),
    ]
    assert list(events.read(events.write([*parts, *rest]))) == [*parts, *rest]


@pytest.mark.parametrize("line", ['{"event":"nothing"}', "{}", "[", '{"event":"send","value":"v"}'])
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(ValueError):
        events.from_line(line)


def send(number: int, offset: int, acks: int = -1) -> Send:
    return Send(PARTITION, f"v{number}", number, number + 0.5, RequestOutcome.OK, offset, acks)


def log(*numbers: int) -> FinalLog:
    return FinalLog(PARTITION, tuple((offset, f"v{number}", 0) for offset, number in enumerate(numbers)), dense=True)


def texts(*history: Event) -> list[str]:
    return [str(one) for one in check(history)]


def test_a_voided_promise_explains_losses_of_earlier_records_only() -> None:
    assert texts(send(0, 0), send(1, 1), Void(PARTITION, 2.0, "unclean"), log(0)) == []
    late = texts(send(0, 0), send(1, 1), Void(PARTITION, 0.9, "unclean"), log(0))
    assert late == ["lost write: t-0: v1 was acknowledged at 1 and is gone"]
    assert texts(send(0, 0), send(1, 1), Void(("t", 1), 2.0, "unclean"), log(0)) == late


def test_another_record_may_get_the_offset_of_a_record_whose_promise_is_void() -> None:
    lost, after = send(1, 1), send(2, 1)
    assert texts(send(0, 0), lost, Void(PARTITION, 1.8, "unclean"), after, log(0, 2)) == []
    assert len(texts(send(0, 0), lost, after, log(0, 2))) == 2


def test_a_log_may_lose_its_end_but_no_record_before_a_kept_one() -> None:
    void = Void(PARTITION, 9.0, "unclean")
    unknown = Send(PARTITION, "v3", 3, 4, RequestOutcome.UNKNOWN)
    found = texts(send(0, 0), send(1, 1), send(2, 2), unknown, void, log(0, 3, 2))
    assert found == ["lost write: t-0: v1 is gone, but not v2, which followed it in the log"]


def test_a_former_leader_may_acknowledge_records_until_it_learns_of_its_successor() -> None:
    """The former leader's earlier record, at a lower offset, is lost; the new leader's later record is not."""
    one, other = send(2, 2), send(3, 3)
    end = FinalLog(PARTITION, ((0, "v0", 0), (1, "v1", 0), (3, "v3", 1)))
    history: list[Event] = [send(0, 0), send(1, 1), one, other, end]
    assert texts(*history, Void(PARTITION, 1.9, "unclean"), Void(PARTITION, 9.0, "led on", since=2.2)) == []
    assert texts(*history, Void(PARTITION, 1.9, "unclean"), Void(PARTITION, 9.0, "later")) == [
        "lost write: t-0: v2 is gone, but not v3, which followed it in the log"
    ]


def test_a_reader_may_have_skipped_records_of_a_log_whose_promises_are_void() -> None:
    sends = [send(number, number) for number in range(3)]
    read = Poll(PARTITION, "r", 4.0, ((0, "v0"), (2, "v2")))
    history: list[Event] = [*sends, read, log(0, 1, 2)]
    assert "unseen: t-0: v1 at 1 was not read" in texts(*history)
    assert texts(*history, Void(PARTITION, 3.0, "unclean")) == []


def test_a_write_with_acks_1_may_be_lost_until_it_was_read() -> None:
    weak, other = send(1, 1, acks=1), send(2, 1)
    assert texts(send(0, 0), weak, other, log(0, 2)) == []
    read = Poll(PARTITION, "r", 5, ((0, "v0"), (1, "v1")))
    assert {one.anomaly for one in check([send(0, 0), weak, read, log(0)])} == {Anomaly.LOST_WRITE}


def test_of_two_copies_written_with_acks_1_the_one_that_was_read_must_stay() -> None:
    weak = replace(send(1, 5, acks=1), once=False)
    reads = Poll(PARTITION, "r", 3.0, ((2, weak.value),)), Poll(PARTITION, "again", 3.0, ((5, "v3"),))
    history: tuple[Event, ...] = (weak, *reads, send(3, 5), AllowedDeletion(PARTITION, 4, "asked"))
    assert texts(*history, FinalLog(PARTITION, ((5, "v3", 0),), 4)) == []
    violations = check([*history, FinalLog(PARTITION, ((5, "v3", 0),), 1)])
    assert [one.anomaly for one in violations] == [Anomaly.LOST_WRITE]


def test_without_a_final_log_a_record_is_lost_when_readers_have_passed_it() -> None:
    history: list[Event] = [send(0, 0), send(1, 1), send(2, 2)]
    assert texts(*history, Poll(PARTITION, "r", 5, ((0, "v0"),))) == []
    assert {one.anomaly for one in check([*history, Poll(PARTITION, "r", 5, ((0, "v0"), (2, "v2")))])} == {
        Anomaly.LOST_WRITE,
        Anomaly.INTERNAL_POLL_SKIP,
    }


@pytest.mark.parametrize("outcome", [RequestOutcome.UNKNOWN, RequestOutcome.FAILED])
def test_a_loss_is_found_although_the_value_was_sent_again(outcome: RequestOutcome) -> None:
    again = Send(PARTITION, "v0", 5, 6, outcome)
    assert texts(send(0, 0), again, log()) == ["lost write: t-0: v0 was acknowledged at 0 and is gone"]


def test_a_producer_that_is_not_idempotent_may_write_twice() -> None:
    twice = replace(send(0, 1), once=False)
    assert texts(twice, log(0, 0)) == []
    assert texts(send(0, 1), log(0, 0)) == ["duplicate: t-0: v0 is at 1 and 0"]


def test_records_deleted_by_retention_are_neither_lost_nor_skipped() -> None:
    end = FinalLog(PARTITION, ((2, "v2", 0),), start=2)
    polls = (Poll(PARTITION, "r", 5, ((0, "v0"),)), Poll(PARTITION, "r", 6, ((2, "v2"),)))
    history: list[Event] = [send(0, 0), send(1, 1), send(2, 2), *polls, end]
    for before in (None, 2, 3):
        assert texts(*history, AllowedDeletion(PARTITION, before, "a client asked for it")) == []


def test_the_log_start_must_not_rise_further_than_deletions_allow() -> None:
    sends = [send(number, number) for number in range(4)]
    end = FinalLog(PARTITION, ((2, "v2", 0), (3, "v3", 0)), start=2)
    read = [Poll(PARTITION, "r", 5, ((2, "v2"), (3, "v3")))]
    for reads in (read, []):
        assert texts(*sends, *reads, end) == [
            "lost write: t-0: v0 was acknowledged at 0 and is gone",
            "lost write: t-0: v1 was acknowledged at 1 and is gone",
            "log start: t-0: it begins at 2, and may begin at 0",
        ]
        assert texts(*sends, *reads, end, AllowedDeletion(PARTITION, 1, "DeleteRecords"))[1:] == [
            "log start: t-0: it begins at 2, and may begin at 1"
        ]
    skipping = Poll(PARTITION, "r", 5, ((0, "v0"), (2, "v2"), (3, "v3")))
    found = counts(check([*sends, skipping, end, AllowedDeletion(PARTITION, 1, "DeleteRecords")]))
    assert Anomaly.INTERNAL_POLL_SKIP in found
    assert texts(send(0, 0), FinalLog(PARTITION, (), start=1)) != []


def test_a_reader_may_go_back_to_offsets_that_only_a_former_leader_has_deleted() -> None:
    """DeleteRecords moves the log start of a leader, which loses its leadership before the followers learn of it."""
    sends = [send(number, number) for number in range(4)]
    first = Poll(PARTITION, "r", 5, ((0, "v0"), (1, "v1"), (2, "v2")))
    polls = [first, Poll(PARTITION, "r", 6, ((1, "v1"), (2, "v2"), (3, "v3")))]
    history: list[Event] = [*sends, *polls, log(0, 1, 2, 3)]
    back = ["non-monotonic poll: t-0: r read 1 after 2"]
    assert texts(*history) == texts(*history, AllowedDeletion(PARTITION, 3, "DeleteRecords")) == back
    assert texts(*history, AllowedDeletion(PARTITION, 4, "DeleteRecords")) == []


def test_a_reader_may_start_where_only_a_former_leader_has_deleted() -> None:
    """Its log starts where DeleteRecords asked for, and the other replicas keep the records."""
    sends = [send(number, number) for number in range(5)]
    whole = Poll(PARTITION, "other", 5, tuple((number, f"v{number}") for number in range(5)))
    deleted = AllowedDeletion(PARTITION, 3, "DeleteRecords")
    history: list[Event] = [*sends, whole, log(0, 1, 2, 3, 4), AllowedDeletion(PARTITION, None, "retention")]
    rest = Poll(PARTITION, "r", 6, ((3, "v3"), (4, "v4")), "r")
    skip = ["poll skip: t-0: r has not read v0 at 0, and 2 more up to 2, and has continued after it"]
    assert texts(*history, rest) == skip
    assert texts(*history, rest, deleted) == []
    assert texts(*history, rest, replace(deleted, before=2)) == skip
    assert texts(*history, replace(rest, records=((4, "v4"),)), deleted) == [
        "poll skip: t-0: r has not read v0 at 0, and 3 more up to 3, and has continued after it"
    ]
    first = Poll(PARTITION, "r", 5, ((0, "v0"),), "r")
    assert texts(*history, first, rest, deleted) == []
    assert texts(*history, first, rest, replace(deleted, before=4)) != []
    at_once = replace(rest, records=(*first.records, *rest.records))
    assert "internal poll skip: t-0: r read 3 after 0; v1 is at 1" in texts(*history, at_once, deleted)


def test_no_reader_needs_to_see_records_that_a_former_leader_has_deleted() -> None:
    sends = [send(number, number) for number in range(3)]
    rest: list[Event] = [Poll(PARTITION, "r", 6, ((2, "v2"),), "r"), log(0, 1, 2)]
    unseen = ["unseen: t-0: v0 at 0 was not read", "unseen: t-0: v1 at 1 was not read"]
    assert texts(*sends, *rest)[1:] == unseen
    assert texts(*sends, *rest, AllowedDeletion(PARTITION, 1, "DeleteRecords"))[1:] == unseen[1:]
    assert texts(*sends, *rest, AllowedDeletion(PARTITION, 2, "DeleteRecords")) == []


def unknown(number: int, lane: str = "p, id 1", *, ended: float = 9.0) -> Send:
    return Send(PARTITION, f"v{number}", number, ended, RequestOutcome.UNKNOWN, lane=lane)


def test_records_of_an_idempotent_lane_are_in_order_for_any_outcome() -> None:
    in_lane = replace(send(0, 0), lane="p, id 1", ended=8.0)
    two = [unknown(1), unknown(2)]
    for stored in ((), (0,), (0, 1), (0, 1, 2)):
        assert texts(replace(in_lane, outcome=RequestOutcome.UNKNOWN, offset=-1), *two, log(*stored)) == []
    assert texts(in_lane, *two, log(0, 2, 1)) == [
        "internal non-monotonic send: t-0: v2 is at 1, and v1, sent before it, at 2"
    ]
    assert texts(*two, log(2, 1)) == ["internal non-monotonic send: t-0: v2 is at 0, and v1, sent before it, at 1"]
    assert texts(unknown(1), unknown(2, "p, id 2"), log(2, 1)) == []
    assert texts(replace(unknown(1), once=False), replace(unknown(2), once=False), log(2, 1)) == []
    assert texts(unknown(1), replace(send(2, 0), lane="p, id 1"), log(2, 1)) == [
        "internal non-monotonic send: t-0: v2 is at 0, and v1, sent before it, at 1"
    ]


def test_an_idempotent_lane_stores_no_record_without_those_before_it() -> None:
    gap = ["lost in a lane: t-0: v1 is not there, but v2, which was sent after it"]
    assert texts(unknown(1), unknown(2), log(2)) == gap
    assert texts(unknown(1), unknown(2), log(1)) == []
    assert texts(unknown(1), replace(send(2, 0), lane="p, id 1"), log(2)) == gap
    assert texts(unknown(1), unknown(2, "p, id 2"), log(2)) == []
    refused = replace(unknown(1), outcome=RequestOutcome.FAILED)
    assert texts(refused, unknown(2), log(2)) == []
    assert texts(unknown(1), unknown(2), log(2), Void(PARTITION, 3.0, "unclean")) == []


def test_records_that_may_be_deleted_or_lost_are_no_gap_of_a_lane() -> None:
    first, rest = unknown(0), [unknown(1), unknown(2)]
    deleted = FinalLog(PARTITION, ((1, "v2", 0),), start=1)
    assert texts(*rest, deleted, AllowedDeletion(PARTITION, 1, "DeleteRecords")) == []
    behind = FinalLog(PARTITION, ((1, "v0", 0), (2, "v2", 0)), start=1)
    assert texts(first, *rest, behind, AllowedDeletion(PARTITION, 1, "DeleteRecords")) == [
        "lost in a lane: t-0: v1 is not there, but v2, which was sent after it"
    ]
    refused = FinalLog(PARTITION, ((0, "v0", 0), (2, "v2", 0)), holes=((1, 1),))
    assert texts(first, *rest, refused) == []


def test_a_record_follows_all_records_acknowledged_before_it_was_sent() -> None:
    late = Send(PARTITION, "v5", 5, 6, RequestOutcome.UNKNOWN)
    found = texts(send(1, 1), late, log(5, 1))
    assert found == ["non-monotonic send: t-0: v5 is at 0, and v1, sent before it, at 1"]
    assert texts(replace(send(1, 1), offset=-1), late, log(5, 1)) == found, (
        "acknowledged as known already, untold where"
    )
    assert texts(replace(send(1, 1), offset=-1, once=False), late, log(5, 1)) == [], "another copy may have been before"
    assert texts(send(1, 1), replace(late, begun=1.2), log(5, 1)) == []
    assert texts(send(1, 1), late, log(5, 1), Void(PARTITION, 3.0, "unclean")) == []


def test_an_unread_record_is_found_if_the_partition_had_a_reader() -> None:
    assert texts(send(0, 0), log(0)) == []
    assert texts(send(0, 0), log(0), Poll(PARTITION, "r", 5.0, ())) == ["unseen: t-0: v0 at 0 was not read"]


def test_sessions_of_one_group_together_must_not_skip_records() -> None:
    sends = [send(number, number) for number in range(6)]

    def polls(*sessions: tuple[int, ...], ended: bool = False) -> list[Event]:
        read = [
            Poll(PARTITION, f"session {at}", 8.0 + at, tuple((one, f"v{one}") for one in those), "group")
            for at, those in enumerate(sessions)
        ]
        reader_of_all = Poll(PARTITION, "r", 7.0, tuple((one, f"v{one}") for one in range(6)))
        return [*sends, reader_of_all, *read, *([Poll(PARTITION, "end", 20.0, (), "group")] if ended else [])]

    whole = log(0, 1, 2, 3, 4, 5)
    assert texts(*polls((0, 1, 2), (2, 3)), whole) == []
    assert texts(*polls((4, 5), (0, 1, 2, 3), ended=True), whole) == []
    between = "poll skip: t-0: group has not read v2 at 2, and 1 more up to 3, and has continued after it"
    assert texts(*polls((0, 1), (4, 5)), whole) == [between]
    assert texts(*polls((1,)), whole) == ["poll skip: t-0: group has not read v0 at 0, and has continued after it"]
    assert texts(*polls((0, 1, 2), ended=True), whole)[0].startswith(
        "poll skip: t-0: group has not read v3 at 3, and 2"
    )
    assert texts(*polls((0, 1, 2), (5,)), Hole(PARTITION, 3, 4), whole) == []
    deleted = AllowedDeletion(PARTITION, 2, "DeleteRecords")
    records = tuple((at, f"v{at}", 0) for at in range(2, 6))
    assert texts(*polls((2, 3)), deleted, FinalLog(PARTITION, records, start=2)) == []
    assert texts(*polls((0, 3)), whole, Void(PARTITION, 9.0, "unclean")) == []


def test_a_voided_promise_does_not_explain_losses_below_the_kept_offset() -> None:
    sends = [send(0, 0), send(1, 1), send(2, 2)]
    void = Void(PARTITION, 9.0, "all of the ISR had lost records", kept=2)
    assert texts(*sends, void, log(0, 1)) == []
    lost = "lost write: t-0: {} was acknowledged at {} and is gone"
    assert texts(*sends, void, log(0)) == [lost.format("v1", 1)]
    assert texts(*sends, void, log()) == [lost.format("v0", 0), lost.format("v1", 1)]
    assert texts(*sends, replace(void, kept=0), log()) == []
    assert texts(*sends, void, replace(void, kept=1), log(0)) == []
    earlier = Void(PARTITION, 0.5, "unclean", kept=0)
    assert texts(*sends, void, earlier, log()) == [lost.format("v1", 1)]


def test_records_below_the_kept_offset_are_judged_like_all_others() -> None:
    void = Void(PARTITION, 9.0, "unclean", kept=1)
    other = Send(PARTITION, "v3", 3, 4, RequestOutcome.UNKNOWN)
    assert Anomaly.INCONSISTENT_OFFSETS in counts(check([send(0, 0), other, void, log(3)]))
    assert Anomaly.DUPLICATE in counts(check([send(0, 0), void, log(0, 0)]))
    assert Anomaly.UNSEEN in counts(check([send(0, 0), void, log(0), Poll(PARTITION, "r", 5.0, ())]))
    read = Poll(PARTITION, "r", 12.0, ((0, "v0"), (1, "v10")))
    assert texts(send(0, 0), send(1, 1), void, send(10, 1), log(0, 10), read) == []


def test_a_dense_log_has_no_gaps() -> None:
    assert texts(send(0, 0), send(1, 2), FinalLog(PARTITION, ((0, "v0", 0), (2, "v1", 0)), dense=True)) == [
        "gap: t-0: offset 2 follows 0"
    ]


CREATED = TopicChange("made", True, RequestOutcome.OK, {"retention.ms": "1"})
DELETED = TopicChange("made", False, RequestOutcome.OK)
UNSURE = replace(CREATED, outcome=RequestOutcome.UNKNOWN)
AS_MADE = FinalTopic("made", {"retention.ms": "1"})


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([CREATED, AS_MADE], []),
        ([CREATED], ["topic: made: it should exist"]),
        ([CREATED, FinalTopic("made")], ["topic: made: it has {} and was created with {'retention.ms': '1'}"]),
        ([CREATED, DELETED], []),
        ([CREATED, DELETED, AS_MADE], ["topic: made: it should not exist"]),
        ([CREATED, replace(DELETED, outcome=RequestOutcome.UNKNOWN), AS_MADE], []),
        ([CREATED, replace(DELETED, outcome=RequestOutcome.FAILED)], ["topic: made: it should exist"]),
        ([AS_MADE], ["topic: made: no client created it"]),
        ([replace(CREATED, outcome=RequestOutcome.FAILED), AS_MADE], ["topic: made: no client created it"]),
        ([replace(DELETED, outcome=RequestOutcome.UNKNOWN), AS_MADE], ["topic: made: no client created it"]),
        ([UNSURE], []),
        ([UNSURE, AS_MADE], []),
        ([UNSURE, FinalTopic("made")], ["topic: made: it has {} and was created with {'retention.ms': '1'}"]),
        ([DELETED, UNSURE], []),
        ([DELETED, UNSURE, AS_MADE], []),
        ([DELETED, UNSURE, FinalTopic("made")], ["topic: made: it has {} and was created with {'retention.ms': '1'}"]),
        ([replace(CREATED, config={}), UNSURE, AS_MADE], []),
        ([replace(CREATED, config={}), UNSURE, FinalTopic("made")], []),
        ([CREATED, replace(DELETED, outcome=RequestOutcome.UNKNOWN), UNSURE], []),
        ([UNSURE, CREATED], ["topic: made: it should exist"]),
        ([UNSURE, DELETED, AS_MADE], []),
        ([UNSURE, replace(DELETED, begun=60.0), AS_MADE], ["topic: made: it should not exist"]),
    ],
)
def test_topics_exist_with_the_configuration_of_their_last_change(history: list[Event], found: list[str]) -> None:
    assert texts(*history, AllTopics(sum(isinstance(event, FinalTopic) for event in history))) == found


@pytest.mark.parametrize("history", [[CREATED], [CREATED, DELETED, AS_MADE], [AS_MADE]])
def test_topics_are_not_judged_without_a_complete_list(history: list[Event]) -> None:
    assert not texts(*history)


def _names(violations: list[Violation]) -> list[str]:
    return [one.anomaly.value for one in violations]


def test_only_offsets_of_a_lost_object_may_be_unreadable() -> None:
    sends = [Send(PARTITION, f"v{at}", at, at + 0.5, RequestOutcome.OK, at) for at in range(6)]
    first = Poll(PARTITION, "reader", 10, ((0, "v0"), (1, "v1")))
    behind = Poll(PARTITION, "reader from 4", 11, ((4, "v4"), (5, "v5")))
    hole = Hole(PARTITION, 2, 3)
    records = tuple((at, f"v{at}", 0) for at in (0, 1, 4, 5))
    log = FinalLog(PARTITION, records, dense=True, holes=((2, 3),))
    assert not check([*sends, first, behind, hole, log])
    assert _names(check([*sends, first, behind, hole, replace(log, holes=())])) == ["lost write", "lost write", "gap"]
    assert _names(check([*sends, first, behind, hole, replace(log, holes=((3, 3),))])) == ["lost write", "gap"]
    silent = replace(behind, session="reader")
    whole = FinalLog(PARTITION, tuple((at, f"v{at}", 0) for at in range(6)), dense=True)
    assert _names(check([*sends, first, silent, hole, whole])) == ["poll skip"]
    assert _names(check([*sends, first, behind, whole])) == ["unseen", "unseen"]
    assert not check([*sends, first, behind, hole, whole])
    late = replace(whole, records=whole.records[1:])
    assert "gap" in _names(check([*sends, first, behind, hole, late]))


@pytest.mark.slow
def test_a_long_history_is_checked_in_one_pass() -> None:
    """A checker that compares each operation with each other one exceeds the time limit of tests."""
    checker, count = Checker(), 100_000
    for number in range(count):
        checker.add(Send(PARTITION, f"v{number}", number, number, RequestOutcome.OK, number, lane="p"))
        checker.add(Poll(PARTITION, "r", number, ((number, f"v{number}"),)))
    assert checker.finish() == []


def test_a_later_record_of_a_lane_that_only_a_lost_leader_had_is_in_no_order() -> None:
    """The earlier one was read from the leader that kept it; the later one was acknowledged by one that truncated."""
    before, after = (replace(send(number, at), acks=1, once=False, lane="p") for number, at in ((1, 5), (2, 3)))
    read = Poll(PARTITION, "reader", 3.0, ((5, "v1"),))
    assert texts(before, after, read) == []
    assert texts(before, after, read, replace(read, records=((3, "v2"),), session="other")) == [
        "non-monotonic send: t-0: v2 is at 3, and v1, sent before it, at 5"
    ]


def test_a_record_that_was_deleted_may_be_written_again_by_its_producer() -> None:
    """A follower that starts after the deletion does not know the producer (Kafka's truncateFullyAndStartAt)."""
    read = Poll(PARTITION, "reader", 0.5, ((0, "v0"),))
    duplicate = ["duplicate: t-0: v0 is at 1 and 0"]
    assert texts(send(0, 1), read) == duplicate
    assert texts(send(0, 1), read, AllowedDeletion(PARTITION, 1, "DeleteRecords")) == []
    assert texts(send(0, 1), read, AllowedDeletion(PARTITION, 0, "DeleteRecords")) == duplicate
