"""The purgatory and its deadlines, on a clock moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import pytest

from broker.deadlines import Deadlines
from broker.purgatory import OffsetReached, Purgatory
from runtime.containment import Containment
from tests.unit.broker.hand_clock import HandClock


@dataclass(eq=False)
class Operation:
    """Ready when its flag says so; notes what happened to it."""

    is_ready: bool = False
    ended: list[str] = field(default_factory=list)
    then: Callable[[], object] | None = None
    breaks_in: str = ""

    def ready(self, key: Hashable) -> bool:
        self._break("ready")
        return self.is_ready

    def _break(self, step: str) -> None:
        if step == self.breaks_in:
            raise ZeroDivisionError(step)

    def complete(self) -> None:
        self._break("complete")
        self.ended.append("complete")
        if self.then is not None:
            self.then()

    def expire(self) -> None:
        self._break("expire")
        self.ended.append("expire")

    def abandon(self) -> None:
        self.ended.append("abandon")


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def purgatory(clock: HandClock) -> Purgatory:
    return Purgatory(clock, Containment(clock))


def test_deadlines_run_in_order_of_time_on_one_timer(clock: HandClock) -> None:
    deadlines, heard = Deadlines(clock), list[str]()
    deadlines.after(0.3, lambda: heard.append("c"))
    deadlines.after(0.1, lambda: heard.append("a"))
    deadlines.after(0.2, lambda: heard.append("b"))
    assert clock.armed() == 1
    clock.advance(0.25)
    assert heard == ["a", "b"]
    clock.advance(1)
    assert heard == ["a", "b", "c"]
    assert clock.armed() == 0 and len(deadlines) == 0


def test_a_cancelled_deadline_is_never_heard_and_leaves_the_heap(clock: HandClock) -> None:
    deadlines, heard = Deadlines(clock), list[int]()
    made = [deadlines.after(1 + n / 1000, lambda n=n: heard.append(n)) for n in range(1000)]  # type: ignore[misc]
    for deadline in made[1:]:
        deadline.cancel()
        deadline.cancel()
    assert len(deadlines) == 1 and len(deadlines._heap) < 200
    clock.advance(5)
    assert heard == [0]


def test_a_deadline_may_set_another_one(clock: HandClock) -> None:
    deadlines, heard = Deadlines(clock), list[str]()
    deadlines.after(1, lambda: deadlines.after(1, lambda: heard.append("second")))
    clock.advance(1.5)
    assert heard == []
    clock.advance(1)
    assert heard == ["second"]


def test_an_operation_completes_when_a_key_it_watches_changes(purgatory: Purgatory, clock: HandClock) -> None:
    operation = Operation()
    purgatory.wait(operation, ["a", "b"], 1.0)
    purgatory.changed("b")
    assert operation.ended == []
    operation.is_ready = True
    purgatory.changed("elsewhere")
    assert operation.ended == []
    purgatory.changed("a")
    purgatory.changed("b")
    clock.advance(5)
    assert operation.ended == ["complete"] and len(purgatory) == 0


def test_an_operation_expires_once(purgatory: Purgatory, clock: HandClock) -> None:
    operation = Operation()
    purgatory.wait(operation, ["a"], 1.0)
    clock.advance(1.0)
    operation.is_ready = True
    purgatory.changed("a")
    assert operation.ended == ["expire"]


def test_a_completion_that_changes_the_same_key_does_not_complete_twice(purgatory: Purgatory) -> None:
    first, second = Operation(is_ready=True), Operation(is_ready=True)
    first.then = lambda: purgatory.changed("a")
    purgatory.wait(first, ["a"], 1.0)
    purgatory.wait(second, ["a"], 1.0)
    purgatory.changed("a")
    assert first.ended == ["complete"] and second.ended == ["complete"]


def test_an_operation_that_left_hears_nothing_more(purgatory: Purgatory, clock: HandClock) -> None:
    operation = Operation(is_ready=True)
    ticket = purgatory.wait(operation, ["a"], 1.0)
    purgatory.leave(ticket)
    purgatory.leave(ticket)
    purgatory.changed("a")
    clock.advance(2)
    assert operation.ended == [] and purgatory._watchers == {}


def test_closing_abandons_in_order(purgatory: Purgatory) -> None:
    operations = [Operation() for _ in range(3)]
    for operation in operations:
        purgatory.wait(operation, ["a"], 1.0)
    purgatory.close()
    assert [operation.ended for operation in operations] == [["abandon"]] * 3


def test_an_offset_is_awaited_until_it_is_reached_lost_or_late(purgatory: Purgatory, clock: HandClock) -> None:
    state: dict[str, bool | None] = {"reached": False}
    heard: list[tuple[str, bool]] = []

    def waiter(name: str) -> OffsetReached:
        return OffsetReached(lambda: state["reached"], lambda ok: heard.append((name, ok)))

    purgatory.wait(waiter("reached"), ["p"], 1.0)
    purgatory.changed("p")
    assert heard == []
    state["reached"] = True
    purgatory.changed("p")
    state["reached"] = False
    purgatory.wait(waiter("lost"), ["p"], 1.0)
    state["reached"] = None
    purgatory.changed("p")
    state["reached"] = False
    purgatory.wait(waiter("late"), ["p"], 1.0)
    clock.advance(1.0)
    assert heard == [("reached", True), ("lost", False), ("late", False)]


@pytest.mark.parametrize("step", ["ready", "complete", "expire"])
def test_an_error_in_one_operation_is_neither_the_callers_nor_the_others(
    purgatory: Purgatory, clock: HandClock, step: str
) -> None:
    broken, other, late = Operation(is_ready=True, breaks_in=step), Operation(is_ready=step != "expire"), Operation()
    for operation, seconds in ((broken, 1), (other, 1), (late, 2)):
        purgatory.wait(operation, ["key"], seconds)
    if step != "expire":
        purgatory.changed("key")
    clock.advance(1)
    assert broken.ended == ["abandon"]
    assert other.ended == ["complete" if step != "expire" else "expire"]
    clock.advance(1)
    assert late.ended == ["expire"] and len(purgatory) == 0


def test_an_error_in_one_deadline_keeps_no_other_from_being_met(clock: HandClock) -> None:
    deadlines, heard = Deadlines(clock), list[str]()
    deadlines.after(0.1, lambda: 1 / 0)
    deadlines.after(0.1, lambda: heard.append("same time"))
    deadlines.after(0.2, lambda: heard.append("later"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(0.1)
    clock.advance(1)
    assert heard == ["same time", "later"]
