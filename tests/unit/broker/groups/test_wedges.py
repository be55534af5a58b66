"""After an unexpected error in a group, all requests are answered and timers continue."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest

from milena.broker.groups.group import Group
from milena.broker.groups.model import GroupState
from milena.broker.groups.shard import Shard
from milena.protocol.errors import ErrorCode
from milena.runtime.limited_log import BURST
from tests.unit.broker.fixtures import Bench
from tests.unit.broker.groups.served import Groups

TWICE = (("range", b"first"), ("range", b"second"))


@pytest.fixture
def groups(bench: Bench) -> Groups:
    return Groups(bench)


def broken(*_: object) -> Any:
    raise StopIteration


def test_a_repeated_protocol_counts_once_at_its_first_position(groups: Groups) -> None:
    joined = groups.joining(version=3, protocols=TWICE).response
    assert (joined.error_code, joined.protocol_name) == (ErrorCode.NONE, "range")
    assert [bytes(one.metadata) for one in joined.members] == [b"first"]


def test_two_members_with_a_repeated_protocol_get_a_generation(groups: Groups) -> None:
    first = groups.joining(version=3, protocols=(("sticky", b""), ("range", b"")))
    second = groups.joining(version=3, protocols=TWICE)
    again = groups.joining(first.response.member_id, version=3, protocols=(("sticky", b""), ("range", b"")))
    assert (second.response.protocol_name, again.response.generation_id) == ("range", 2)


def test_an_error_in_a_timer_ends_the_generation_and_answers_waiting_members(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = groups.joining(version=3).response.member_id
    groups.syncing(silent, 1, {})
    waiting = groups.joining(version=3)
    monkeypatch.setattr(Group, "select_protocol", broken)
    groups.clock.advance(10.0)
    assert waiting.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.heartbeat(silent, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    monkeypatch.undo()
    assert groups.joining(version=3).response.generation_id > 2, "the group can be used again"


def test_an_error_in_a_join_ends_the_generation_and_answers_the_join(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups.commit(9, 0)
    monkeypatch.setattr(Group, "select_protocol", broken)
    assert groups.joining(version=3).response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.state() == GroupState.EMPTY.value and groups.fetched() == 5
    groups.reload()
    assert groups.state() == GroupState.EMPTY.value and groups.fetched() == 5


def test_an_error_after_a_write_ends_the_generation(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    member = groups.joining(version=3).response.member_id
    groups.log.hold = True
    waiting = groups.syncing(member, 1, {})
    monkeypatch.setattr(Group, "sync_answer", broken)
    groups.log.commit()
    assert waiting.response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.state() == GroupState.EMPTY.value


def test_a_response_that_cannot_be_encoded_becomes_an_error(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, a name is too long for the version of the request."""
    monkeypatch.setattr(Group, "joined_members", _once_broken(Group.joined_members))
    assert groups.joining(version=3).response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.joining(version=3).response.error_code == ErrorCode.NONE


def test_a_failing_write_ends_the_generation(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    member = groups.joining(version=3).response.member_id
    monkeypatch.setattr(Shard, "persist", broken)
    assert groups.syncing(member, 1, {}).response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_that_cannot_be_written_leaves_no_group(groups: Groups) -> None:
    with pytest.raises(ValueError, match="longer than"):
        groups.commit(9, 0, group="x" * 40_000)
    assert not groups.shard.groups


def test_a_repeatedly_failing_group_is_logged_with_a_limit(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, logged: StringIO
) -> None:
    monkeypatch.setattr(Group, "select_protocol", broken)
    for _ in range(100):
        groups.joining(version=3)
    assert logged.getvalue().count("group failed, generation ended") == BURST


def _once_broken(real: Callable[..., Any]) -> Callable[..., Any]:
    calls: list[object] = []

    def run(*args: Any) -> Any:
        calls.append(None)
        return broken() if len(calls) == 1 else real(*args)

    return run
