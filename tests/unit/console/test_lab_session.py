"""What a node's answers do to the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from milena.console import lab_place
from milena.console.lab_place import LabNode, LabPlace, LabSession
from milena.console.model import NO_TRANSACTIONS, Model
from milena.console.node_link import CommandError, NodeAway, NodeLink
from milena.up import nodes_file
from milena.up.layout import ClusterDir

ROW: list[Any] = ["L", 0, 0, 5, 5, 7, -1, 700, [0, 0], 0, "", [], [], []]
REGISTERED: list[Any] = [1, 0, 0, [1], [1], [], [], [], 0]


class Link:
    """A node that gives these answers to `observe`, one after the other, and nothing to other commands."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self.pages = list(pages)
        self.knows_session = False
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.transitions: list[dict[str, Any]] = []
        self.faults: list[dict[str, Any]] = []
        self.rules: list[dict[str, Any]] = []
        self.transactions: dict[str, Any] = NO_TRANSACTIONS

    async def call(self, command: str, seconds: float, /, **arguments: Any) -> Any:
        self.asked.append((command, arguments))
        if command == "observe" and not arguments.get("end"):
            if not self.pages:
                raise NodeAway("the node has ended")
            page = {"first": not self.knows_session, **self.pages.pop(0)}
            self.knows_session |= page["next"] is None
            return page
        answers = {
            "faults": self.faults,
            "rules": self.rules,
            "follower_transitions": self.transitions,
            "transactions": {"version": 0, "last": 0, "transitions": [], **self.transactions},
        }
        return {"troubles": {"wall_ms": 1}, **answers}.get(command, [])


def broker_page(
    *rows: list[Any], gone: Any = (), following: int | None = None, transitions: int = 0, transactions: int = 0
) -> dict[str, Any]:
    counted = {"hosts": 2, "leads": 1, "metadata_offset": 9, "transitions": transitions, "transactions": transactions}
    return {"rows": list(rows), "gone": list(gone), "next": following, **counted}


def controller_page(*rows: list[Any], gone: Any = ()) -> dict[str, Any]:
    topics = {row[0]: [f"id of {row[0]}", 1] for row in rows}
    brokers = {"1": [12, False, False, "rack"]}
    return {
        "rows": list(rows),
        "gone": list(gone),
        "next": None,
        "topics": topics,
        "brokers": brokers,
        "metadata_offset": 9,
    }


def session_of(model: Model, link: Link, role: str = "broker") -> LabSession:
    entry: Any = {"id": 1, "roles": [role], "pid": None, "listeners": {}, "log.dirs": []}
    node = LabNode(entry, "socket")
    model.set_node(node.name, lab_place.described(node, None))
    return LabSession(node, cast("NodeLink", link), model)


@pytest.fixture
def model() -> Model:
    return Model(lambda: 0)


async def test_a_round_continues_until_the_node_has_no_further_page(model: Model) -> None:
    link = Link(broker_page(["t", 0, ROW], following=500), broker_page(["t", 1, ROW]))
    await session_of(model, link).round()
    assert [arguments["from"] for command, arguments in link.asked if command == "observe"] == [0, 500]
    assert model.replicas == {("t", 0): {"1": ROW}, ("t", 1): {"1": ROW}}
    assert model.nodes["broker-1"]["hosts"] == 2


async def test_the_controller_has_topics_registrations_and_broker_epochs(model: Model) -> None:
    session_of(model, Link())
    await session_of(model, Link(controller_page(["t", 0, REGISTERED])), "controller").round()
    assert model.registered == {("t", 0): REGISTERED}
    assert model.topics["t"]["id"] == "id of t"
    assert (model.nodes["broker-1"]["epoch"], model.nodes["broker-1"]["rack"]) == (12, "rack")


async def test_what_is_gone_is_removed(model: Model) -> None:
    link = Link(broker_page(["t", 0, ROW], ["t", 1, ROW]), broker_page(gone=[["t", 0]]))
    session = session_of(model, link)
    await session.round()
    await session.round()
    assert list(model.replicas) == [("t", 1)]


@pytest.mark.parametrize("role", ["broker", "controller"])
async def test_a_new_session_removes_what_the_node_no_longer_has(model: Model, role: str) -> None:
    page, row = (broker_page, ROW) if role == "broker" else (controller_page, REGISTERED)
    await session_of(model, Link(page(["t", 0, row], ["u", 0, row])), role).round()
    await session_of(model, Link(page(["u", 0, row])), role).round()
    assert list(model.replicas if role == "broker" else model.registered) == [("u", 0)]


async def test_what_a_node_has_no_longer_is_removed_if_it_has_forgotten_the_session(model: Model) -> None:
    """A node that returns to a snapshot keeps its connections, but not its sessions."""
    link = Link(controller_page(["t", 0, REGISTERED], ["u", 0, REGISTERED]), controller_page(["u", 0, REGISTERED]))
    session = session_of(model, link, "controller")
    await session.round()
    link.knows_session = False
    await session.round()
    assert list(model.registered) == [("u", 0)]


async def test_changes_of_followers_after_the_first_round_are_events(model: Model) -> None:
    link = Link(broker_page(transitions=7), broker_page(transitions=8))
    link.transitions = [
        {"topic": "t", "partition": 0, "from": "Fetching", "to": "Failed", "event": "FENCED", "offset": 6}
    ]
    session = session_of(model, link)
    await session.round()
    assert not model.feed.newest()
    await session.round()
    assert ("follower_transitions", {"since": 7}) in link.asked
    assert [event["kind"] for event in model.feed.newest()] == ["follower_state"]


async def test_too_many_changes_of_followers_are_one_event(model: Model) -> None:
    link = Link(broker_page(transitions=0), broker_page(transitions=lab_place.MOST_TRANSITIONS + 1))
    session = session_of(model, link)
    await session.round()
    await session.round()
    assert [event["text"] for event in model.feed.newest()] == ["broker-1: 201 changes of followers' states"]


ID: dict[str, Any] = {
    "state": "Ongoing", "producer_id": 7, "producer_epoch": 1, "start_ms": 5, "update_ms": 5, "timeout_ms": 60_000,
    "partitions": 1, "pending": None,
}  # fmt: skip


def transition(number: int, after: str = "Ongoing", cause: str = "request") -> dict[str, Any]:
    changed = {"before": "Empty", "after": after, "cause": cause, "partitions": 1}
    return {"at_ms": 0, "transactional_id": f"id-{number}", "producer_id": 7, "epoch": 1, **changed}


def coordinating(version: int, last: int, *transitions: dict[str, Any]) -> dict[str, Any]:
    block = {"counts": {"Ongoing": 1}, "total": 1, "loading": 0, "ids": {"id-1": ID}}
    return {"version": version, "last": last, "transitions": list(transitions), **block}


async def test_transactional_ids_are_asked_for_when_their_version_has_changed(model: Model) -> None:
    link = Link(*[broker_page(transactions=version) for version in (4, 4, 5)])
    link.transactions = coordinating(4, 2)
    session = session_of(model, link)
    for _ in range(3):
        await session.round()
    assert [given for command, given in link.asked if command == "transactions"] == [{"since": None}, {"since": 2}]
    assert model.transactions["broker-1"]["ids"] == {"id-1": ID}


async def test_transitions_after_the_first_round_are_events(model: Model) -> None:
    link = Link(broker_page(transactions=1), broker_page(transactions=2))
    link.transactions = coordinating(1, 0, transition(0))
    session = session_of(model, link)
    await session.round()
    assert not model.feed.newest()
    link.transactions = coordinating(2, 2, transition(1), transition(2, "PrepareAbort", "timeout"))
    await session.round()
    assert [(event["kind"], event["error"]) for event in model.feed.newest()] == [
        ("transaction_begun", False),
        ("transaction_timed_out", True),
    ]


async def test_too_many_transitions_are_one_event(model: Model) -> None:
    link = Link(broker_page(transactions=1), broker_page(transactions=2))
    link.transactions = coordinating(1, 0)
    session = session_of(model, link)
    await session.round()
    many = [transition(number) for number in range(lab_place.MOST_TRANSACTION_EVENTS + 1)]
    link.transactions = coordinating(2, 1_021, *many)
    await session.round()
    assert [event["text"] for event in model.feed.newest()] == ["broker-1: 21 begun, and 1,000 further changes"]


async def test_a_node_that_is_down_coordinates_nothing(model: Model, tmp_path: Path) -> None:
    link = Link(broker_page(transactions=1))
    link.transactions = coordinating(1, 0)
    await session_of(model, link).round()
    cluster = ClusterDir(str(tmp_path))
    down: Any = {"id": 1, "roles": ["broker"], "pid": None, "listeners": {}, "log.dirs": []}
    nodes_file.write(cluster.nodes, [down])
    place = LabPlace([cluster], cast("Any", None))
    place.describe(place.nodes()["broker-1"], model)
    assert model.transactions == {}


async def test_the_end_of_a_session_is_said_to_the_node_unless_it_is_away(model: Model) -> None:
    link = Link(broker_page())
    session = session_of(model, link)
    await session.round()
    await session.end()
    assert link.asked[-1][1]["end"] is True
    asked = len(link.asked)
    with pytest.raises(NodeAway):
        await session.round()
    await session.end()
    assert len(link.asked) == asked + 1


async def test_a_node_that_refuses_the_end_is_no_error(model: Model) -> None:
    class Refusing(Link):
        async def call(self, command: str, seconds: float, /, **arguments: Any) -> Any:
            raise CommandError("no")

    await session_of(model, Refusing()).end()


async def test_faults_of_a_node_end_with_its_process(model: Model, tmp_path: Path) -> None:
    link = Link(broker_page())
    link.faults = [{"command": "jump_clock", "ms": 5000}]
    link.rules = [{"rule": 1, "command": "drop"}]
    await session_of(model, link).round()
    assert model.nodes["broker-1"]["faults"] == link.faults
    assert model.rules == {"broker-1": link.rules}
    cluster = ClusterDir(str(tmp_path))
    down: Any = {"id": 1, "roles": ["broker"], "pid": None, "listeners": {}, "log.dirs": []}
    nodes_file.write(cluster.nodes, [down])
    place = LabPlace([cluster], cast("Any", None))
    place.describe(place.nodes()["broker-1"], model)
    assert model.nodes["broker-1"]["faults"] == []
    assert model.rules == {}
