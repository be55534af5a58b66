"""Whether a broker counts as having a session, from heartbeats and the age of its metadata."""

from __future__ import annotations

import pytest

from milena.broker.controller_link.session import MIN_FRESHNESS, Session
from tests.unit.broker.hand_clock import HandClock

TIMEOUT = 9.0


class Sessions:
    """A session with a settable age of the metadata."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self.clock = HandClock()
        self.metadata = self.clock.monotonic()
        self.session = Session(self.clock, timeout, lambda: self.metadata)

    def beat(self, *, fenced: bool = False, took: float = 0.0) -> None:
        sent = self.clock.monotonic()
        self.clock.advance(took)
        self.session.answered(sent, fenced=fenced)

    def learn(self) -> None:
        self.metadata = self.clock.monotonic()

    @property
    def current(self) -> bool:
        return self.session.is_current


@pytest.fixture
def it() -> Sessions:
    sessions = Sessions()
    sessions.beat()
    sessions.learn()
    return sessions


def test_there_is_no_session_before_the_first_response() -> None:
    assert not Sessions().current


def test_it_expires_a_timeout_after_the_last_answered_heartbeat_was_sent(it: Sessions) -> None:
    it.beat(took=2)
    it.learn()
    assert it.current
    it.clock.advance(TIMEOUT - 2.1)
    it.learn()
    assert it.current
    it.clock.advance(0.1)
    it.learn()
    assert not it.current


def test_after_an_expiration_it_needs_newer_metadata(it: Sessions) -> None:
    it.clock.advance(TIMEOUT)
    it.metadata = it.clock.monotonic() - 1
    it.beat()
    assert not it.current
    it.learn()
    assert it.current


def test_a_late_response_starts_a_new_session(it: Sessions) -> None:
    it.clock.advance(TIMEOUT - 1)
    it.learn()
    it.beat(took=1)
    assert not it.current


def test_a_fenced_broker_needs_newer_metadata(it: Sessions) -> None:
    it.clock.advance(1)
    it.beat(fenced=True)
    assert not it.current
    it.learn()
    assert it.current


def test_outdated_metadata_end_it(it: Sessions) -> None:
    for _ in range(3):
        it.clock.advance(TIMEOUT / 3)
        it.beat()
    assert not it.current


def test_a_short_session_timeout_allows_for_an_idle_fetch() -> None:
    it = Sessions(timeout=0.1)
    it.beat()
    it.learn()
    for _ in range(9):
        it.clock.advance(0.05)
        it.beat()
    assert it.current
    assert MIN_FRESHNESS > 0.5
