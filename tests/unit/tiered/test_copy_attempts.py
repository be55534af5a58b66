"""When a copy that failed is tried again."""

from __future__ import annotations

import pytest

from milena.tiered.shared.copy_attempts import CopyAttempts
from milena.tiered.store.remote_storage import RemoteStorageError, RetriableRemoteStorageError
from tests.unit.broker.hand_clock import HandClock

INTERVAL = 0.5


class Store:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.attempts = CopyAttempts(self.clock, RetriableRemoteStorageError)

    def fail(self, error: Exception | None = None) -> None:
        with pytest.raises(RemoteStorageError), self.attempts.attempt(INTERVAL):
            raise error or RetriableRemoteStorageError("full")

    def tries_in(self, seconds: float, rounds: float = INTERVAL) -> int:
        """Of so many partitions as you like, each in each of its rounds."""
        count = 0
        for _ in range(int(seconds / rounds)):
            if self.attempts.may_begin:
                self.fail()
                count += 1
            self.clock.advance(rounds)
        return count


def test_a_store_that_refuses_is_tried_ever_more_rarely() -> None:
    store = Store()
    assert [store.tries_in(10), store.tries_in(100), store.tries_in(1000)] == [5, 4, 33]


def test_many_partitions_try_no_more_often() -> None:
    assert Store().tries_in(10, rounds=0.01) == 5


def test_one_attempt_is_made_at_a_time_until_one_succeeds() -> None:
    store = Store()
    store.fail()
    store.clock.advance(INTERVAL)
    with store.attempts.attempt(INTERVAL):
        assert not store.attempts.may_begin
    assert store.attempts.may_begin


def test_attempts_that_fail_together_count_once() -> None:
    store = Store()
    with pytest.raises(RemoteStorageError), store.attempts.attempt(INTERVAL):
        store.fail()
        raise RetriableRemoteStorageError("full")
    store.clock.advance(INTERVAL)
    assert store.attempts.may_begin


def test_what_is_no_fault_of_the_store_does_not_hold_up_others() -> None:
    store = Store()
    store.fail(RemoteStorageError("the log's own file is gone"))
    assert store.attempts.may_begin


def test_an_attempt_can_be_requested() -> None:
    store = Store()
    store.fail()
    assert not store.attempts.may_begin
    store.attempts.forget()
    assert store.attempts.may_begin
