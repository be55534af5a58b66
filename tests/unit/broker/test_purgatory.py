"""The purgatory and its deadlines, with a manual clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import pytest

from milena.broker.waiting import deadlines as deadlines_module
from milena.broker.waiting.deadlines import Deadlines
from milena.broker.waiting.purgatory import (
    COMPLETION_COST,
    COMPLETIONS_PER_TURN,
    OPERATIONS_PER_ITERATION,
    OffsetReached,
    Purgatory,
)
from milena.protocol.invariants import BrokenInvariant
from milena.runtime.containment import Containment
from tests.unit.broker.hand_clock import HandClock


@dataclass(eq=False)
class Operation:
    """An operation that is ready if its flag is set, and stores the calls."""

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


def test_a_cancelled_deadline_is_not_called_and_leaves_the_heap(clock: HandClock) -> None:
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


def test_a_removed_operation_is_not_called(purgatory: Purgatory, clock: HandClock) -> None:
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


def test_a_wait_for_an_offset_ends_when_it_is_reached_lost_or_expired(purgatory: Purgatory, clock: HandClock) -> None:
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
def test_an_error_in_one_operation_affects_neither_the_caller_nor_the_others(
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


def test_an_error_in_one_deadline_does_not_delay_the_others(clock: HandClock) -> None:
    deadlines, heard = Deadlines(clock), list[str]()
    deadlines.after(0.1, lambda: 1 / 0)
    deadlines.after(0.1, lambda: heard.append("same time"))
    deadlines.after(0.2, lambda: heard.append("later"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(0.1)
    clock.advance(1)
    assert heard == ["same time", "later"]


def one_go(clock: HandClock) -> None:
    """Run what is due now, but not what that schedules."""
    for timer in [one for one in clock.timers if one.callback is not None and one.when <= clock.now]:
        callback, timer.callback = timer.callback, None
        assert callback is not None
        callback()


def ended(operations: list[Operation]) -> int:
    return sum(bool(one.ended) for one in operations)


def test_many_completions_of_one_change_run_in_several_iterations_in_order(
    purgatory: Purgatory, clock: HandClock
) -> None:
    heard: list[int] = []
    many = [Operation(is_ready=True, then=lambda n=n: heard.append(n)) for n in range(5 * OPERATIONS_PER_ITERATION)]  # type: ignore[misc]
    for one in many:
        purgatory.wait(one, ["t"], 10)
    purgatory.hold()
    purgatory.changed("t")
    purgatory.release()
    for iterations in range(1, 6):
        assert ended(many) == iterations * OPERATIONS_PER_ITERATION, "each iteration completes this number"
        one_go(clock)
    assert heard == list(range(len(many))) and not len(purgatory)


@pytest.mark.parametrize("keys", [2, 50])
def test_many_completions_of_several_partitions_run_in_several_iterations(
    purgatory: Purgatory, clock: HandClock, keys: int
) -> None:
    many = [Operation(is_ready=True) for _ in range(5 * OPERATIONS_PER_ITERATION)]
    for number, one in enumerate(many):
        purgatory.wait(one, [number % keys], 10)
    purgatory.hold()
    for key in range(keys):
        purgatory.changed(key)
    purgatory.release()
    iterations, before = 0, 0
    while len(purgatory):
        assert 0 < ended(many) - before <= 2 * OPERATIONS_PER_ITERATION + COMPLETIONS_PER_TURN
        before = ended(many)
        one_go(clock)
        iterations += 1
    assert iterations <= 6


def test_operations_of_another_key_do_not_wait_for_a_crowded_one(purgatory: Purgatory, clock: HandClock) -> None:
    crowds = [[Operation(is_ready=True) for _ in range(5 * OPERATIONS_PER_ITERATION)] for _ in range(2)]
    alone = Operation(is_ready=True)
    for key, crowd in enumerate(crowds):
        for one in crowd:
            purgatory.wait(one, [key], 10)
    purgatory.wait(alone, ["t"], 10)
    purgatory.changed(0)
    purgatory.changed("t")
    assert alone.ended and ended(crowds[0]) == OPERATIONS_PER_ITERATION
    purgatory.changed(1)
    one_go(clock)
    assert ended(crowds[1]) == OPERATIONS_PER_ITERATION // 2, "two crowds take turns"


def test_many_checks_run_in_several_iterations(purgatory: Purgatory, clock: HandClock) -> None:
    looks: list[int] = []

    class Looked(Operation):
        def ready(self, key: Hashable) -> bool:
            looks.append(1)
            return False

    many = [Looked() for _ in range(3 * OPERATIONS_PER_ITERATION * COMPLETION_COST)]
    for one in many:
        purgatory.wait(one, ["t"], 10)
    purgatory.changed("t")
    assert len(looks) == OPERATIONS_PER_ITERATION * COMPLETION_COST
    purgatory.changed("t")
    assert len(looks) == OPERATIONS_PER_ITERATION * COMPLETION_COST, (
        "a further change while they have their turns is not one more go"
    )
    clock.advance(0)
    assert len(looks) >= len(many) + OPERATIONS_PER_ITERATION * COMPLETION_COST, (
        "those who were looked at before the second change are again"
    )
    assert len(purgatory) == len(many)


def test_a_completion_that_changes_its_key_does_not_starve_other_keys(purgatory: Purgatory, clock: HandClock) -> None:
    many = [Operation(is_ready=True, then=lambda: purgatory.changed("t")) for _ in range(4 * OPERATIONS_PER_ITERATION)]
    for one in many:
        purgatory.wait(one, ["t"], 10)
    purgatory.changed("t")
    assert ended(many) == OPERATIONS_PER_ITERATION
    clock.advance(0)
    assert ended(many) == len(many)


def test_a_failing_operation_does_not_stop_the_iterations(purgatory: Purgatory, clock: HandClock) -> None:
    def fail() -> None:
        raise OSError

    many = [Operation(is_ready=True) for _ in range(2 * OPERATIONS_PER_ITERATION)]
    many[3].then = fail
    for one in many:
        purgatory.wait(one, ["t"], 10)
    purgatory.changed("t")
    clock.advance(0)
    assert ended(many) == len(many)


def test_many_expirations_run_in_several_iterations(purgatory: Purgatory, clock: HandClock) -> None:
    many = [Operation() for _ in range(3 * deadlines_module.CALLBACKS_PER_ITERATION)]
    for one in many:
        purgatory.wait(one, ["t"], 1)
    clock.now = 1.0
    for iterations in range(1, 4):
        one_go(clock)
        assert ended(many) == iterations * deadlines_module.CALLBACKS_PER_ITERATION
    assert all(one.ended == ["expire"] for one in many)


def test_holding_changes_cannot_be_nested(purgatory: Purgatory) -> None:
    purgatory.hold()
    with pytest.raises(BrokenInvariant, match="changes are held already"):
        purgatory.hold()


def test_no_key_is_watched_without_waiting_operations(purgatory: Purgatory) -> None:
    purgatory.wait(Operation(), ("a",), 5)
    purgatory._tickets.clear()
    with pytest.raises(BrokenInvariant, match="1 keys are watched"):
        purgatory.close()


def test_an_operation_that_its_own_check_has_completed_is_not_completed_again(purgatory: Purgatory) -> None:
    """A read of ``ready`` can fail and take the partition offline, which completes the operation."""

    class Failing(Operation):
        def ready(self, key: Hashable) -> bool:
            if key != "offline":
                purgatory.changed("offline")
            return True

    operation = Failing()
    purgatory.wait(operation, ["key", "offline"], 1)
    purgatory.changed("key")
    assert operation.ended == ["complete"]
