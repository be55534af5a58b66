"""Offsets of deleted topics are removed; those of topics that are not in the image yet stay."""

from __future__ import annotations

from collections.abc import Callable, Generator
from uuid import UUID

import pytest

from milena.broker.groups import offsets
from milena.broker.groups.model import CommittedOffset
from milena.broker.groups.offsets import OffsetPredicate
from milena.broker.groups.shard import OFFSETS_PER_YIELD, Shard
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import ZERO_UUID
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard
from tests.unit.broker.groups.coordinators import NEW, OLD, Coordinated


def read_again(coordinated: Coordinated) -> dict[str, int]:
    """The offsets that the next leader loads, which knows all topics."""
    coordinated.topics |= {OLD, NEW}
    coordinated.elect()
    coordinated.tasks.run()
    return coordinated.offsets()


def test_offsets_of_deleted_topics_are_removed_after_the_load(coordinated: Coordinated) -> None:
    coordinated.commit(5, OLD)
    coordinated.commit(6, NEW, "u")
    coordinated.commit(7, ZERO_UUID, "v")
    coordinated.topics.remove(OLD)
    coordinated.current = [lambda: True]
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {"u": 6, "v": 7}
    assert read_again(coordinated) == {"u": 6, "v": 7}


def test_offsets_of_topics_not_yet_in_the_image_stay(coordinated: Coordinated) -> None:
    """The broker is not current twice, then the metadata arrive."""
    coordinated.commit(5, OLD)
    coordinated.commit(6, NEW, "u")
    coordinated.topics.clear()

    def come() -> bool:
        coordinated.topics.add(NEW)
        return True

    seen: list[dict[str, int]] = []

    def too_late() -> bool:
        seen.append(coordinated.offsets())
        return False

    coordinated.current = [too_late, too_late, come]
    coordinated.elect()
    coordinated.tasks.run()
    assert seen == [{"t": 5, "u": 6}] * 2
    assert not coordinated.current and coordinated.offsets() == {"u": 6}


def test_the_controller_is_not_queried_if_all_topics_are_known(coordinated: Coordinated) -> None:
    coordinated.commit(5, OLD)
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {"t": 5}


def test_a_resigned_shard_is_not_cleaned(coordinated: Coordinated) -> None:
    coordinated.commit(5, OLD)
    coordinated.topics.remove(OLD)

    def resigned() -> bool:
        coordinated.groups.resigned(0)
        return True

    coordinated.current = [resigned]
    coordinated.elect()
    coordinated.tasks.run()
    assert read_again(coordinated) == {"t": 5}


@pytest.mark.parametrize("known", [ZERO_UUID, OLD])
def test_a_refused_tombstone_is_written_later(
    coordinated: Coordinated, known: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinated.commit(5, known)
    refusals = 2
    log = coordinated.groups._led[0].log
    append = log.append

    def refusing(batch: bytes, guard: VerificationGuard = NO_GUARD, transaction_version: int = 0) -> int:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return append(batch, guard, transaction_version)

    monkeypatch.setattr(log, "append", refusing)
    coordinated.groups.topics_deleted({OLD: "t"})
    assert coordinated.offsets() == {"t": 5}
    coordinated.tasks.run()
    assert not refusals and coordinated.offsets() == {}


@pytest.mark.parametrize("groups", [1, 5_000])
def test_many_offsets_are_removed_in_bounded_steps(coordinated: Coordinated, groups: int) -> None:
    shard = coordinated.groups.shard("g")
    for number in range(groups):
        for first in range(0, 5_000 // groups, OFFSETS_PER_YIELD):
            some = range(first, min(first + OFFSETS_PER_YIELD, 5_000 // groups))
            offsets = {("t", one): CommittedOffset(1, -1, "", 0, -1, OLD) for one in some}
            shard.commit(shard.get_or_create(f"g{number}"), offsets, lambda error: None)
    coordinated.groups.topics_deleted({OLD: "t"})
    left = sum(len(group.offsets) for group in shard.groups.values())
    assert left >= 5_000 - OFFSETS_PER_YIELD, (
        "the step in which the deletion is heard of does not grow with the offsets"
    )
    coordinated.tasks.run()
    assert coordinated.tasks.turns >= 4
    assert not any(group.offsets for group in shard.groups.values())


def drained(steps: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return bool(done.value)


@pytest.mark.parametrize("work", [Shard.remove_offsets_where, Shard.any_offset])
def test_offsets_removed_between_two_steps_are_skipped(
    coordinated: Coordinated, work: Callable[[Shard, OffsetPredicate], Generator[None, None, bool]]
) -> None:
    shard = coordinated.groups.shard("g")
    offsets = {("t", number): CommittedOffset(1, -1, "", 0, -1, OLD) for number in range(2 * OFFSETS_PER_YIELD)}
    shard.commit(shard.get_or_create("g"), offsets, lambda error: None)
    steps = work(shard, lambda key, offset: key[1] < OFFSETS_PER_YIELD and work is Shard.remove_offsets_where)
    next(steps)
    gone = [("t", number) for number in range(OFFSETS_PER_YIELD, 2 * OFFSETS_PER_YIELD)]
    shard.remove_offsets(shard.groups["g"], gone, lambda error: None)
    assert drained(steps) is (work is Shard.remove_offsets_where)


def test_a_group_with_more_offsets_than_one_batch_expires(coordinated: Coordinated) -> None:
    shard = coordinated.groups.shard("g")
    for number in range(40):
        offsets = {("t" * 40, number * 500 + one): CommittedOffset(1, -1, "", 0, 5, OLD) for one in range(500)}
        shard.commit(shard.get_or_create("g"), offsets, lambda error: None)
    steps = shard.expire_offsets(1_000)
    for left in range(20_000, 1_000, -1_000):
        assert len(shard.groups["g"].offsets) >= left - OFFSETS_PER_YIELD
        next(steps)
    list(steps)
    assert not shard.groups
    assert read_again(coordinated) == {}


def test_an_offset_committed_during_the_expiration_stays(coordinated: Coordinated) -> None:
    shard = coordinated.groups.shard("g")
    group = shard.get_or_create("g")
    for first in (0, 1_000, 2_000):
        offsets = {("t", first + one): CommittedOffset(1, -1, "", 0, 5, OLD) for one in range(1_000)}
        shard.commit(group, offsets, lambda error: None)
    steps = shard.expire_offsets(1_000)
    for _ in range(2):
        next(steps)
    shard.commit(group, {("t", 2_999): CommittedOffset(7, -1, "", 0, 5, OLD)}, lambda error: None)
    list(steps)
    assert {partition: one.offset for partition, one in group.offsets.items()} == {("t", 2_999): 7}
    assert shard.get("g") is group


@pytest.mark.parametrize("slices", [0, 1])
def test_work_interrupted_by_an_unexpected_error_is_retried(
    coordinated: Coordinated, monkeypatch: pytest.MonkeyPatch, slices: int
) -> None:
    """The error occurs in the first step or in a later one; there is no other deletion or load."""
    coordinated.commit(5, OLD)
    error = ValueError("unforeseen")
    remove, broken = Shard.remove_offsets_where, [error, error]

    def failing(shard: Shard, chosen: offsets.OffsetPredicate) -> Generator[None, None, bool]:
        if broken:
            yield from [None] * slices
            raise broken.pop()
        return (yield from remove(shard, chosen))

    monkeypatch.setattr(Shard, "remove_offsets_where", failing)
    coordinated.groups.topics_deleted({OLD: "t"})
    coordinated.tasks.run()
    assert coordinated.noted == [error, error]
    assert coordinated.offsets() == {}


def test_a_failed_query_of_the_controller_is_retried(coordinated: Coordinated) -> None:
    coordinated.commit(5, OLD)
    coordinated.topics.remove(OLD)
    error = ValueError("unforeseen")

    def fail() -> bool:
        raise error

    coordinated.current = [fail, lambda: True]
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.noted == [error]
    assert coordinated.offsets() == {}
