"""Waiting requests: an error is sent to the client, and a disconnect ends the wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from milena.broker.apis import (
    delete_records,
    fetch,
    join_group,
    list_offsets,
    produce,
    sync_group,
)
from milena.broker.groups import requested_offsets
from milena.broker.groups.model import JoinAnswer, ReplyOnce
from milena.broker.reading.fetching import Fetch
from milena.broker.reading.producing import PendingAppend
from milena.broker.reading.remote_reads import RemoteReads
from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.controller.log.long_poll import LongPolls
from milena.node.api import RequestContext
from milena.node.metrics import Metrics
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.schemas.undecodable import DecodeError
from milena.protocol.types import Offset
from tests.fixtures.forms import ON_PURE
from tests.unit.broker import fixtures
from tests.unit.broker.consumer_fetches import fetch as fetching
from tests.unit.broker.consumer_fetches import want
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, batch, led_by, set_isr
from tests.unit.broker.groups.served import Groups
from tests.unit.broker.produces import produce as producing

Make = Callable[[Bench], Request]


def broken(*_: object, **__: object) -> Any:
    raise ZeroDivisionError


def a_fetch(bench: Bench) -> Request:
    bench.led()
    return fetching(bench, want())


def a_produce(bench: Bench) -> Request:
    set_isr(bench.led(), ME, OTHER)
    return producing(bench, batch(b"a"), acks=ACKS_ALL)


def a_deletion(bench: Bench) -> Request:
    topic = bench.topic("t", led_by(ME, replicas=(1, 2)))
    partition = bench.host(topic, 0)
    partition.become(led_by(ME, replicas=(1, 2)))
    partition.append(batch(b"a"), 1)
    return ask(bench, delete_records, ApiKey.DELETE_RECORDS, 2, topics=topics(offset=-1), timeout_ms=1000)


def a_search(bench: Bench) -> Request:
    """A ListOffsets request by timestamp that waits for the tier."""
    bench.led().online_log.remote_enabled = True
    pool = SimpleNamespace(submit=lambda *_: None, leave=lambda *_: None)
    late = Metrics().counter("late", "")
    reads = SimpleNamespace(pool=pool, purgatory=bench.purgatory, reader=None, _expired_searches=late)
    bench.remote_reads = SimpleNamespace(  # type: ignore[assignment]
        search=lambda *given: RemoteReads.search(cast(RemoteReads, reads), *given)
    )
    given = {"current_leader_epoch": -1, "timestamp": 5}
    fields = {"replica_id": -1, "isolation_level": 0, "topics": topics(**given), "timeout_ms": 1000}
    return ask(bench, list_offsets, ApiKey.LIST_OFFSETS, 10, **fields)


def topics(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "t", "partitions": [{"partition_index": 0, **fields}]}]


def ask(bench: Bench, api: Any, key: ApiKey, version: int, **fields: Any) -> Request:
    return Groups.send(cast(Groups, SimpleNamespace(node=bench)), api.handle, key, version, **fields)


KINDS: dict[str, tuple[Make, Any, str]] = {
    "Fetch": (a_fetch, fetch, "encode_fetch_response"),
    "Produce": (a_produce, produce, "encode_produce_response"),
    "DeleteRecords": (a_deletion, RequestContext, "respond_fields"),
    "ListOffsets": (a_search, RequestContext, "respond_fields"),
}
EACH_KIND = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=ON_PURE) if kind == "ListOffsets" else kind for kind in KINDS]
)

WRITTEN = {"Produce": 1, "DeleteRecords": 1}
"""The number of records in the log afterwards: appended records stay."""


@EACH_KIND
def test_a_request_that_cannot_be_answered_closes_its_connection(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, where, name = KINDS[kind]
    request = make(bench)
    assert not request.answered and len(bench.purgatory) == 1
    monkeypatch.setattr(where, name, broken)
    bench.clock.advance(1)
    assert request.answers.reason == f"a {request.ctx.api.name} request failed while it waited"
    assert len(bench.purgatory) == 0 and bench.contained.count


@EACH_KIND
def test_no_request_waits_after_its_client_disconnects(bench: Bench, kind: str) -> None:
    request = KINDS[kind][0](bench)
    request.answers.closed = True
    assert request.ctx.forget is not None
    request.ctx.forget()
    assert len(bench.purgatory) == 0 and not bench.contained.count
    assert bench.partitions.get("t", 0).online_log.log_end_offset == WRITTEN.get(kind, 0)


@EACH_KIND
def test_no_request_waits_for_an_already_disconnected_client(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection may be closed while a large request is handled, or while a fault rule delays it."""
    monkeypatch.setattr(fixtures, "Answers", partial(fixtures.Answers, closed=True))
    request = KINDS[kind][0](bench)
    assert len(bench.purgatory) == 0 and len(bench.purgatory.deadlines) == 0 and request.ctx.forget is None
    assert not bench.contained.count
    assert bench.partitions.get("t", 0).online_log.log_end_offset == WRITTEN.get(kind, 0)


@EACH_KIND
def test_a_completed_request_is_not_referenced(bench: Bench, kind: str) -> None:
    request = KINDS[kind][0](bench)
    bench.clock.advance(1)
    assert request.answered and request.ctx.forget is None


@pytest.mark.parametrize(
    ("make", "where", "step"),
    [
        (a_fetch, Fetch, "_read_partition"),
        (a_produce, PendingAppend, "check"),
        (a_deletion, Partition, "high_watermark"),
    ],
)
def test_an_error_during_a_check_ends_the_wait(
    bench: Bench, make: Make, where: Any, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = make(bench)
    if step == "high_watermark":
        where, step = delete_records._Deletion, "check"
    monkeypatch.setattr(where, step, broken)
    bench.purgatory.changed(bench.partitions.get("t", 0))
    assert request.answers.closed


def test_an_error_during_a_session_fetch_ends_the_wait(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = bench.led()
    request = fetching(bench, want(), session_id=0, session_epoch=0)
    monkeypatch.setattr(Fetch, "_read_partition", broken)
    partition.append(batch(b"a"), 1)
    assert request.answers.closed and partition.high_watermark == Offset(1)


class TestGroups:
    @pytest.fixture
    def groups(self, bench: Bench) -> Groups:
        return Groups(bench)

    @pytest.mark.parametrize("step", ["joining", "syncing"])
    def test_a_member_that_cannot_be_answered_is_disconnected(
        self, groups: Groups, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        member = groups.member()
        second = groups.joining(version=3)
        if step == "syncing":
            groups.joining(member, version=3)
            second = groups.syncing(second.response.member_id, 2, {})
        assert not second.answered
        for api in (join_group, sync_group):
            monkeypatch.setattr(api, "_fields", broken)
        groups.clock.advance(120)
        assert second.answers.closed

    def test_a_commit_that_cannot_be_answered_closes_its_connection(
        self, groups: Groups, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        groups.log.hold = True
        request = groups.committing(9, 0)
        monkeypatch.setattr(requested_offsets, "_set_error", broken)
        with pytest.raises(ZeroDivisionError):
            groups.log.commit()
        assert request.answers.closed

    def test_a_commit_in_a_transaction_that_cannot_be_answered_closes_its_connection(
        self, groups: Groups, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        groups.log.hold = True
        request = groups.sending(5, 0)
        monkeypatch.setattr(requested_offsets, "_set_error", broken)
        with pytest.raises(ZeroDivisionError):
            groups.log.commit()
        assert request.answers.closed

    def test_a_reply_is_retried_until_an_error_response_fails(self) -> None:
        lost: list[bool] = []
        reply = ReplyOnce[JoinAnswer](broken, lambda: lost.append(True))
        for error, known in ((ErrorCode.NONE, []), (ErrorCode.UNKNOWN_SERVER_ERROR, [True])):
            with pytest.raises(ZeroDivisionError):
                reply(JoinAnswer(error, ""))
            assert lost == known
        reply(JoinAnswer(ErrorCode.NONE, ""))


def test_a_failing_waiter_affects_neither_the_commit_nor_other_waiters(bench: Bench) -> None:
    polls, heard = LongPolls(bench.clock, bench.contained), list[str]()

    def failing(final: bool) -> bool:
        if polls:
            raise DecodeError("in the log")
        return False

    def answered(final: bool) -> bool:
        heard.append("answered")
        return len(heard) > 1

    polls.wait(1, failing, lambda: heard.append("lost"))
    polls.wait(1, answered, lambda: None)
    polls.commit()
    assert heard == ["answered", "lost", "answered"] and not polls
    polls.wait(1, lambda final: final and broken(), lambda: heard.append("late"))
    bench.clock.advance(1)
    assert heard[-1] == "late" and not polls
