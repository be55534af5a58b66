"""An observer of a node gets each change once."""

from __future__ import annotations

import pytest

from milena.node.observed_changes import MOST_SESSIONS, Session, Sessions


def round_of(session: Session[str, int], rows: dict[str, int], size: int = 2) -> list[str]:
    """The changed keys of one round in pages of ``size``."""
    found, start, complete = list[str](), 0, False
    while not complete:
        changed, complete = session.page(iter(list(rows.items())[start:]), size)
        found += [key for key, _ in changed]
        start += size
    return found


def test_the_first_round_has_all_rows_and_the_next_ones_the_changes() -> None:
    session, rows = Session[str, int](), {"a": 1, "b": 2, "c": 3, "d": 4}
    assert round_of(session, rows) == ["a", "b", "c", "d"]
    assert round_of(session, rows) == []
    rows |= {"c": 5, "e": 6}
    assert round_of(session, rows) == ["c", "e"]


def test_rows_that_no_longer_exist_are_named_once() -> None:
    session, rows = Session[str, int](), {"a": 1, "b": 2}
    round_of(session, rows)
    del rows["a"]
    assert session.gone(rows.__contains__) == ["a"]
    assert session.gone(rows.__contains__) == []


def test_two_observers_get_the_same_changes() -> None:
    sessions, rows = Sessions[str, int](), {"a": 1}
    assert round_of(sessions.use("one", start=0), rows) == round_of(sessions.use("two", start=0), rows) == ["a"]


def test_the_session_used_longest_ago_makes_room() -> None:
    sessions = Sessions[str, int]()
    for number in range(MOST_SESSIONS):
        sessions.use(str(number), start=0)
    sessions.use("0", start=0)
    sessions.use("new", start=0)
    assert len(sessions) == MOST_SESSIONS
    sessions.use("0", start=500)
    with pytest.raises(LookupError, match="no session '1'"):
        sessions.use("1", start=500)


def test_the_first_round_of_a_session_ends_with_the_next_first_page() -> None:
    sessions = Sessions[str, int]()
    assert [sessions.use("one", start=start).first for start in (0, 500, 0, 500)] == [True, True, False, False]


def test_an_ended_session_is_forgotten() -> None:
    sessions = Sessions[str, int]()
    sessions.use("one", start=0)
    sessions.end("one")
    assert len(sessions) == 0
