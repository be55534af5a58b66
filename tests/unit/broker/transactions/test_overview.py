"""What the lab command `transactions` returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from milena.broker.transactions import overview as module
from milena.broker.transactions.overview import overview
from milena.broker.transactions.transition_log import KEPT, Cause, TransitionLog
from milena.protocol.cooperative import run_now
from milena.protocol.records.transaction_records import TransactionState
from tests.unit.broker.hand_clock import HandClock
from tests.unit.broker.transactions.worlds import A, B, World, transaction

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, COMMITTED = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT


def shown(*worlds: World, since: int | None = None, loading: int = 0) -> Any:
    """The answer of a broker that leads the shards of these worlds."""
    coordinator: Any = SimpleNamespace(
        led=lambda: iter([world.shard for world in worlds]),
        transitions=worlds[0].transitions,
        loading_count=loading,
    )
    return overview(coordinator, since)


def opened(start_ms: int) -> Any:
    return transaction(ONGOING, A, B, start_ms=start_ms)


@pytest.fixture
def world() -> World:
    return World()


def test_ids_are_counted_by_state(world: World) -> None:
    other = World()
    for shard, name in ((world, "a"), (world, "b"), (other, "c")):
        shard.change(name, transaction())
    world.change("b", opened(400))
    answer = shown(world, other, loading=2)
    assert answer["counts"] == {"Empty": 2, "Ongoing": 1}
    assert (answer["total"], answer["loading"]) == (3, 2)


def test_open_ids_come_first_and_the_oldest_of_all_shards_before_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LISTED", 2)
    other = World()
    for shard, name, start_ms in ((world, "late", 300), (other, "first", 100), (world, "later", 400)):
        shard.change(name, transaction())
        shard.change(name, opened(start_ms))
    world.change("idle", transaction())
    assert list(shown(world, other)["ids"]) == ["first", "late", "idle"]


def test_open_ids_that_were_loaded_are_in_the_order_of_their_starts(world: World) -> None:
    world.load({"young": opened(300), "old": opened(100), "ended": transaction()})
    run_now(world.shard.begin())
    world.change("new", transaction())
    world.change("new", opened(900))
    answer = shown(world)
    assert list(answer["ids"])[:3] == ["old", "young", "new"]
    assert answer["counts"] == {"Empty": 1, "Ongoing": 3}


def test_ids_that_are_prepared_are_listed_until_the_markers_are_written(world: World) -> None:
    world.change("x", transaction())
    world.change("x", opened(400))
    world.change("x", transaction(PREPARE_COMMIT, A, B, start_ms=400))
    assert shown(world)["ids"]["x"]["state"] == "PrepareCommit"
    world.markers[0][2]()
    assert shown(world)["ids"]["x"]["state"] == "CompleteCommit"
    assert not world.shard.census.prepared


def test_of_other_ids_those_that_changed_last_are_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED", 2)
    world.load({f"loaded-{number}": transaction() for number in range(3)})
    assert list(shown(world)["ids"]) == ["loaded-2", "loaded-1"]
    world.change("loaded-0", transaction(epoch=4))
    assert list(shown(world)["ids"]) == ["loaded-0", "loaded-2"]


def test_a_row_says_what_is_pending(world: World) -> None:
    world.change("x", transaction())
    world.log.hold = True
    world.change("x", opened(400))
    row = shown(world)["ids"]["x"]
    assert (row["state"], row["pending"], row["partitions"]) == ("Empty", "Ongoing", 0)
    world.log.commit()
    row = shown(world)["ids"]["x"]
    assert (row["state"], row["pending"], row["partitions"], row["start_ms"]) == ("Ongoing", None, 2, 400)


def test_transitions_name_their_cause_and_the_version_changes(world: World) -> None:
    world.change("x", transaction())
    before = shown(world)
    assert before["transitions"] == []
    world.change("x", opened(400))
    world.clock.advance(100)
    run_now(world.shard.abort_timed_out(world.ids.next))
    after = shown(world, since=before["last"])
    assert [(one["before"], one["after"], one["cause"]) for one in after["transitions"]] == [
        ("Empty", "Ongoing", "request"),
        ("Ongoing", "PrepareAbort", "timeout"),
    ]
    assert after["version"] > before["version"]


def test_an_id_that_expires_is_counted_no_more(world: World) -> None:
    world.change("x", transaction())
    world.clock.advance(10)
    run_now(world.shard.expire(1_000))
    answer = shown(world, since=1)
    assert (answer["counts"], answer["ids"]) == ({}, {})
    assert [one["after"] for one in answer["transitions"]] == [None]


def test_partitions_that_are_added_are_no_transition(world: World) -> None:
    world.change("x", transaction())
    world.change("x", transaction(ONGOING, A, start_ms=400))
    last = shown(world)["last"]
    world.change("x", opened(400))
    assert shown(world, since=last)["transitions"] == []


def test_the_oldest_transitions_are_dropped() -> None:
    log = TransitionLog(HandClock(), keeps=True)
    for number in range(KEPT + 5):
        log.add(f"id-{number}", None, transaction(), Cause.REQUEST)
    assert [one.transactional_id for one in log.since(KEPT + 3)] == [f"id-{KEPT + 3}", f"id-{KEPT + 4}"]
    assert len(log.since(0)) == KEPT


def test_outside_of_a_lab_no_transition_is_kept() -> None:
    log = TransitionLog(HandClock(), keeps=False)
    log.add("x", None, transaction(), Cause.REQUEST)
    assert log.since(0) == []
