"""Events of scenarios: requests and their answers in the documents' terms."""

from __future__ import annotations

from typing import Any

import pytest

from milena.lab.scenarios.events import Event, EventKind, without_repetitions
from milena.lab.scenarios.exchange_events import ExchangeEvents
from milena.lab.scenarios.played import epochs_sentence
from milena.lab.scenarios.recorder import Recorder
from milena.lab.scenarios.tables import Mark, Row, Table


def shown(exchange: dict[str, Any], *, node: str = "A", events: ExchangeEvents | None = None) -> list[str]:
    events = events or ExchangeEvents({"t": "t", "u": "u"})
    return [event.line for event in events.of(node, 0.0, exchange, lambda epoch: f"LE-{epoch}")]


def fetch(
    offset: int | None, *, epoch: int = -1, replica: int = 2, broker_epoch: int = 7, current: int = -1, **answer: Any
) -> dict[str, Any]:
    """A Fetch; without an offset an incremental one that names no partition."""
    asked = {"partition": 0, "fetch_offset": offset, "last_fetched_epoch": epoch, "current_leader_epoch": current}
    found = {"partition_index": 0, "error_code": "NONE", "high_watermark": 4, "records": 0} | answer
    return {
        "api": "FETCH",
        "request": {
            "replica_state": {"replica_id": replica, "replica_epoch": broker_epoch},
            "topics": [] if offset is None else [{"topic": "t", "partitions": [asked]}],
        },
        "response": {"responses": [{"topic": "t", "partitions": [found]}]},
    }


def test_a_fetch_shows_offset_epoch_and_error() -> None:
    events = ExchangeEvents({"t": "t"})
    moved = fetch(0, error_code="OFFSET_MOVED_TO_TIERED_STORAGE")
    line = "B -> A Fetch offset 0, no epoch, broker epoch 7: OFFSET_MOVED_TO_TIERED_STORAGE"
    assert shown(moved, events=events) == [line]
    (event,) = events.of("A", 0.0, fetch(3, epoch=1, records=70), lambda epoch: f"LE-{epoch}")
    assert event.line == "B -> A Fetch offset 3, LE-1: records, high watermark 4"
    assert not event.error


def test_a_fetch_without_records_is_shown_only_if_it_is_the_first_of_an_incarnation() -> None:
    events = ExchangeEvents({"t": "t"})
    assert shown(fetch(0), events=events) == ["B -> A Fetch offset 0, no epoch, broker epoch 7: no records"]
    assert shown(fetch(0), events=events) == []
    assert shown(fetch(0, broker_epoch=9), events=events) == [
        "B -> A Fetch offset 0, no epoch, broker epoch 9: no records"
    ]


def test_an_incremental_fetch_has_the_position_that_was_sent_before() -> None:
    events = ExchangeEvents({"t": "t"})
    shown(fetch(3, epoch=1, records=70), events=events)
    assert shown(fetch(None, records=70), events=events) == ["B -> A Fetch offset 3, LE-1: records, high watermark 4"]


def test_a_consumer_is_shown_with_its_current_leader_epoch() -> None:
    fenced = fetch(3, replica=-1, broker_epoch=-1, current=1, error_code="FENCED_LEADER_EPOCH")
    assert shown(fenced) == ["consumer -> A Fetch 3, current leader epoch LE-1: FENCED_LEADER_EPOCH"]


def test_a_diverging_epoch_is_shown() -> None:
    diverging = fetch(3, epoch=2, diverging_epoch={"epoch": 0, "end_offset": 5})
    assert shown(diverging)[0].endswith("Fetch offset 3, LE-2, broker epoch 7: diverging epoch LE-0, end offset 5")


def test_topics_that_are_not_part_of_the_scenario_are_left_out() -> None:
    assert shown(fetch(0), events=ExchangeEvents({"u": "u"})) == []


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"error_code": "NONE", "offset": 6, "leader_epoch": 2}, "6, LE-2"),
        ({"error_code": "NONE", "offset": -1, "leader_epoch": -1}, "none"),
        ({"error_code": "NOT_LEADER_OR_FOLLOWER", "offset": -1, "leader_epoch": -1}, "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_list_offsets_shows_the_name_of_its_timestamp(answer: dict[str, Any], result: str) -> None:
    asked = {"name": "t", "partitions": [{"partition_index": 0, "timestamp": -4}]}
    found = {"name": "t", "partitions": [{"partition_index": 0} | answer]}
    exchange = {"request": {"replica_id": 2, "topics": [asked]}, "response": {"topics": [found]}}
    assert shown({"api": "LIST_OFFSETS", **exchange}) == [f"B -> A ListOffsets EARLIEST_LOCAL_TIMESTAMP: {result}"]


def test_offset_for_leader_epoch_shows_the_epoch_and_its_end() -> None:
    asked = {"topic": "u", "partitions": [{"partition": 1, "leader_epoch": 1}]}
    found = {"topic": "u", "partitions": [{"partition": 1, "error_code": "NONE", "leader_epoch": 0, "end_offset": 5}]}
    exchange = {"request": {"replica_id": 1, "topics": [asked]}, "response": {"topics": [found]}}
    line = "A -> B OffsetForLeaderEpoch u-1 LE-1: LE-0, end offset 5"
    assert shown({"api": "OFFSET_FOR_LEADER_EPOCH", **exchange}, node="B") == [line]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"error_code": "INELIGIBLE_REPLICA"}, "INELIGIBLE_REPLICA"),
        ({"error_code": "NONE", "isr": [1, 2], "partition_epoch": 3}, "ISR [A, B], partition epoch 3"),
    ],
)
def test_alter_partition_shows_the_broker_epochs_of_the_members(answer: dict[str, Any], result: str) -> None:
    members = [{"broker_id": 1, "broker_epoch": -1}, {"broker_id": 2, "broker_epoch": 12}]
    asked = {"topic_id": "t", "partitions": [{"partition_index": 0, "new_isr_with_epochs": members}]}
    found = {"topic_id": "t", "partitions": [{"partition_index": 0} | answer]}
    exchange = {
        "api": "ALTER_PARTITION",
        "request": {"broker_id": 1, "topics": [asked]},
        "response": {"error_code": "NONE", "topics": [found]},
    }
    assert shown(exchange, node="controller") == [f"A -> controller AlterPartition [A, B@12]: {result}"]


def test_a_heartbeat_is_shown_when_a_broker_is_fenced_or_unfenced() -> None:
    events = ExchangeEvents({})

    def heartbeat(*, fenced: bool) -> list[str]:
        request = {"broker_id": 2, "broker_epoch": 7}
        response = {"error_code": "NONE", "is_fenced": fenced}
        exchange = {"api": "BROKER_HEARTBEAT", "request": request, "response": response}
        return shown(exchange, node="controller", events=events)

    assert heartbeat(fenced=False) == ["B -> controller BrokerHeartbeat broker epoch 7: unfenced"]
    assert heartbeat(fenced=False) == []
    assert heartbeat(fenced=True) == ["B -> controller BrokerHeartbeat broker epoch 7: fenced"]


def test_an_event_that_repeats_is_shown_three_times_and_counted() -> None:
    one = Event(at=0.0, kind=EventKind.STATE, source="B", text="Truncating")
    other = Event(at=0.0, kind=EventKind.STATE, source="B", text="Fetching")
    lines = [event.line for event in without_repetitions([one, other] * 5)]
    assert lines == ["B: Truncating", "B: Fetching"] * 2 + ["B: Truncating (3 times)", "B: Fetching (3 times)"]


async def test_a_change_of_state_has_its_partition_and_the_reason_of_a_failure() -> None:
    changes = [
        {"topic": "t", "partition": 0, "to": "Fetching", "event": None, "offset": 4},
        {"topic": "u", "partition": 1, "to": "Fetching", "event": None, "offset": 0},
        {"topic": "u", "partition": 1, "to": "Failed", "event": "FENCED", "offset": 0},
        {"topic": "t", "partition": 0, "to": "Failed", "event": "BROKEN", "offset": 4},
    ]

    async def command(_node: str, name: str, **_arguments: object) -> Any:
        numbered = [change | {"number": number, "at": 0.0} for number, change in enumerate(changes, 1)]
        return {"trace": {"rule": 1}, "traced": [], "follower_transitions": numbered}[name]

    recorder = Recorder(lambda: 0.0, command)
    recorder.topics |= {"t": "t", "u": "u"}
    await recorder.watch("B")
    await recorder.collect("B")
    assert [event.line for event in recorder.take(str, str)] == [
        "B: Fetching at offset 4",
        "B: u-1 Fetching at offset 0",
        "B: u-1 Failed, fenced until it knows the new leader epoch",
        "B: Failed",
    ]


def test_a_row_that_differs_is_marked_and_one_that_is_not_expected_is_not_compared() -> None:
    found = Table(log={0: ("msg 0", 0), 1: ("msg 9", 1)}, epochs={0: 0}, committed=1)
    expected = Table(log={0: ("msg 0", 0), 1: ("msg 1", 1), 2: ("msg 2", 1)})
    assert expected.compared(found) == [
        Row("0: msg 0 LE-0", "0: msg 0 LE-0", Mark.SAME),
        Row("1: msg 1 LE-1", "1: msg 9 LE-1 (HW)", Mark.DIFFERS),
        Row("2: msg 2 LE-1", None, Mark.DIFFERS),
        Row(None, "leader_epochs", Mark.UNCHECKED),
        Row(None, "LE-0, 0", Mark.UNCHECKED),
    ]


def test_the_high_watermark_is_compared_if_it_is_expected() -> None:
    found = Table(log={0: ("msg 0", 0)}, committed=0)
    assert Table(log={0: ("msg 0", 0)}).compared(found)[0].mark is Mark.SAME
    assert Table(log={0: ("msg 0", 0)}, committed=-1).compared(found)[0].mark is Mark.DIFFERS


def test_the_sentence_names_only_leader_epochs_with_other_numbers() -> None:
    assert epochs_sentence({0: 0, 2: 3}) == "LE-2 is leader epoch 3 in this run"
    assert epochs_sentence({0: 0}) == ""
