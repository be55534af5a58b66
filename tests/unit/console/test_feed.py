"""The events that follow from two successive states."""

from __future__ import annotations

from typing import Any

import pytest

from milena.console.feed import MOST_PENDING, Feed

REGISTERED: list[Any] = [1, 4, 0, [1, 2], [1, 2], [], [], [], 0]
REPLICA: list[Any] = ["L", 0, 0, 5, 5, 7, -1, 700, [0, 0], 4, "", [], [], []]
NODE = {"state": "up", "pid": 11, "epoch": 3, "fenced": False, "links": []}
KEY = ("t", 0)


def changed(row: list[Any], **positions: Any) -> list[Any]:
    """``row`` with other values at positions, given as ``p5=9``."""
    row = list(row)
    for name, value in positions.items():
        row[int(name[1:])] = value
    return row


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"p0": 2, "p1": 5}, "election", "t-0: leader 1 -> 2, leader epoch 5"),
        ({"p0": -1, "p1": 5}, "leaderless", "t-0: no leader, the last one was 1"),
        ({"p4": [1]}, "isr", "t-0: ISR [1, 2] -> [1]"),
        ({"p5": [3]}, "reassignment", "t-0: adding [3], removing []"),
    ],
)
def test_a_changed_registration(change: dict[str, Any], kind: str, text: str) -> None:
    feed = Feed(lambda: 7)
    feed.registration_changed(KEY, REGISTERED, changed(REGISTERED, **change))
    assert [(event["kind"], event["text"], event["at_ms"]) for event in feed.take()] == [(kind, text, 7)]


@pytest.mark.parametrize(
    ("before", "change", "kind", "text"),
    [
        (REPLICA, {"p5": 6}, "truncated", "log end 7 -> 6"),
        (REPLICA, {"p6": 3}, "uploaded", "offsets to 3 are in the tier"),
        (REPLICA, {"p1": 2, "p2": 2}, "retention", "log start 0 -> 2"),
        (changed(REPLICA, p6=3), {"p2": 2}, "local_deleted", "local log start 0 -> 2"),
        (changed(REPLICA, p6=3, p2=4), {"p1": 2}, "tier_expired", "log start 0 -> 2"),
        (REPLICA, {"p7": 500}, "cleaned", "700 -> 500 bytes"),
        (REPLICA, {"p0": "O", "p5": -1}, "ended", "log offline"),
        (REPLICA, {"p12": [1, 2, 3]}, "isr", "ISR [1, 2, 3] is proposed"),
    ],
)
def test_a_changed_replica(before: list[Any], change: dict[str, Any], kind: str, text: str) -> None:
    feed = Feed(lambda: 7)
    feed.replica_changed(KEY, "1", before, changed(before, **change))
    assert [(event["kind"], event["text"]) for event in feed.take()] == [(kind, f"t-0 at broker 1: {text}")]


def test_a_write_is_no_event() -> None:
    feed = Feed(lambda: 7)
    feed.replica_changed(KEY, "1", REPLICA, changed(REPLICA, p3=8, p5=9, p7=900))
    assert feed.take() == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"state": "down", "pid": None}, "ended"),
        ({"state": "paused"}, "paused"),
        ({"state": "starting", "pid": 12}, "started"),
        ({"epoch": 9}, "registered"),
        ({"fenced": True}, "fenced"),
        ({"links": [{"peer": "2", "direction": "in"}]}, "fault"),
    ],
)
def test_a_changed_node(change: dict[str, Any], kind: str) -> None:
    feed = Feed(lambda: 7)
    feed.node_changed("broker-1", NODE, NODE | change)
    assert [event["kind"] for event in feed.take()] == [kind]


def test_a_new_rule_and_one_that_has_ended() -> None:
    feed = Feed(lambda: 7)
    feed.rules_changed(
        "broker-1", [{"rule": 1}], [{"rule": 2, "command": "delay", "api": "FETCH", "client_id": "c", "ms": 5}]
    )
    assert [event["text"] for event in feed.take()] == [
        "broker-1: rule 2, delay api=FETCH client_id=c ms=5",
        "broker-1: rule 1 has ended",
    ]


def test_a_follower_changes_its_state() -> None:
    feed = Feed(lambda: 7)
    change = {"topic": "t", "partition": 0, "from": None, "to": "Fetching", "event": None, "offset": 6}
    feed.follower_changed("2", change)
    feed.follower_changed("2", change | {"from": "Fetching", "to": "LocatingLocalStart", "event": "MOVED_TO_TIER"})
    assert [event["text"] for event in feed.take()] == [
        "t-0 at broker 2: Fetching -> LocatingLocalStart at offset 6 (MOVED_TO_TIER)"
    ]


def test_topics_that_exist_at_the_start_are_no_event() -> None:
    feed = Feed(lambda: 7)
    feed.topic_changed("old", None, {"id": "x", "count": 1})
    feed.starting = False
    feed.topic_changed("new", None, {"id": "y", "count": 1})
    assert [event["topic"] for event in feed.take()] == ["new"]


def test_of_too_many_events_the_newest_are_kept() -> None:
    feed = Feed(lambda: 7)
    for number in range(MOST_PENDING + 5):
        feed.add("log", str(number))
    assert len(feed.take()) == MOST_PENDING
    assert feed.newest()[-1]["text"] == str(MOST_PENDING + 4)


@pytest.mark.parametrize(
    ("after", "cause", "kind", "text", "error"),
    [
        ("Empty", "request", "transactional_id", "pay: initialized, producer id 7, epoch 3", False),
        ("Ongoing", "request", "transaction_begun", "pay: transaction begun, producer id 7, epoch 3", False),
        ("PrepareCommit", "request", "transaction_prepared", "pay: commit prepared for 1 partition", False),
        ("PrepareAbort", "request", "transaction_prepared", "pay: abort prepared for 1 partition", False),
        ("CompleteCommit", "request", "transaction_completed", "pay: transaction committed, 1 partition", False),
        ("CompleteAbort", "request", "transaction_completed", "pay: transaction aborted, 1 partition", False),
        ("PrepareAbort", "timeout", "transaction_timed_out", "pay: transaction timed out, abort prepared", True),
        ("PrepareAbort", "fenced", "producer_fenced", "pay: producer fenced by InitProducerId, abort", True),
        ("Ongoing", "refused", "producer_refused", "pay: request of a fenced producer refused, producer id 7", True),
        (None, "expired", "transactional_id", "pay: removed, it was not used", False),
    ],
)
def test_a_transition_of_a_transactional_id(after: str | None, cause: str, kind: str, text: str, error: bool) -> None:
    feed = Feed(lambda: 7)
    change = {"transactional_id": "pay", "after": after, "cause": cause, "producer_id": 7, "epoch": 3, "partitions": 1}
    feed.transaction_changed("broker-1", change)
    (event,) = feed.take()
    assert (event["kind"], event["node"], event["error"]) == (kind, "broker-1", error)
    assert event["text"].startswith(text)
