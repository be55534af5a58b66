"""Produce requests for many partitions, which are appended cooperatively and in order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from milena.broker.apis import produce
from milena.broker.reading.producing import CommitWait, PendingAppend
from milena.broker.replica.partition import ACKS_ALL
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.produce import ProduceRequest, encode_produce_request
from milena.protocol.types import Offset
from tests.unit.broker.fixtures import OTHER, Bench, Request, batch, led_by
from tests.unit.broker.long_produces import Produced, end, goes

COUNT = 30


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "MAX_IMMEDIATE_ELEMENTS", 10)
    monkeypatch.setattr(produce, "PARTITIONS_PER_YIELD", 5)


async def test_many_partitions_are_appended_cooperatively_and_hold_the_connection(bench: Bench) -> None:
    bench.led(count=COUNT)
    produced = Produced(bench, *[batch(b"x")] * COUNT)
    logs = [partition.online_log for partition in bench.partitions]
    seen = []
    assert produced.task is not None
    while not produced.task.done():
        assert produced.held and not produced.request.answered
        seen.append(sum(map(end, logs)))
        await produced.slice()
    assert [one.error_code for one in produced.results] == [0] * COUNT
    assert seen[0] == 0 and all(after - before <= 5 for before, after in pairwise(seen))
    assert not produced.held and bench.scheduler.reserved == 0


async def test_batches_of_one_partition_keep_their_order(bench: Bench) -> None:
    bench.led()
    produced = Produced(bench, *[batch(b"%d" % number) for number in range(COUNT)], twice=True)
    assert [one.base_offset for one in await produced.finish()] == list(range(COUNT))


async def test_a_leadership_lost_between_two_steps_is_reported(bench: Bench) -> None:
    bench.led(count=COUNT)
    produced = Produced(bench, *[batch(b"x")] * COUNT)
    last = bench.partitions.get("t", COUNT - 1)
    while end(bench.partitions.get("t", 0).online_log) == 0:
        await produced.slice()
    last.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
    codes = [one.error_code for one in await produced.finish()]
    assert codes == [0] * (COUNT - 1) + [ErrorCode.NOT_LEADER_OR_FOLLOWER] and end(last.online_log) == 0


async def test_unknown_partitions_are_handled_cooperatively_too(bench: Bench) -> None:
    bench.led()
    produced = Produced(bench, *[batch(b"x")] * COUNT)
    slices = 0
    assert produced.task is not None
    while not produced.task.done():
        await produced.slice()
        slices += 1
    assert slices > COUNT // 5
    assert [one.error_code for one in produced.results] == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (COUNT - 1)


async def test_undecodable_requests_are_refused(bench: Bench) -> None:
    bench.led()
    topics: list[Any] = [("t", None, [(0, None)] * COUNT)]
    cut = encode_produce_request(9, ProduceRequest(None, 1, 0, topics))[: -2 * COUNT]
    request = Request(ApiKey.PRODUCE, 9)
    task = bench.serve(request, produce.handle, bytearray(cut))
    assert task is not None
    while not task.done():
        await goes(bench.clock)
    assert "undecodable" in (request.answers.reason or "")
    assert bench.scheduler.reserved == 0


def test_only_the_changed_partition_is_checked_for_its_commit(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of partitions in one request, checking all of them would be quadratic."""
    topic = bench.topic("t", *[led_by(1, replicas=(1, 2), isr=(1, 2))] * COUNT)
    appends = [PendingAppend(bench.host(topic, index), 0, Offset(1)) for index in range(COUNT)]
    looked: list[PendingAppend] = []
    committed: list[PendingAppend] = []

    def check(append: PendingAppend) -> bool:
        looked.append(append)
        return append in committed

    monkeypatch.setattr(PendingAppend, "check", check)
    wait = CommitWait(appends, lambda: None)
    for append in appends:
        assert not wait.ready(append.partition)
    assert len(looked) == COUNT
    for append in appends:
        committed.append(append)
        assert wait.ready(append.partition) is (append is appends[-1])
    assert len(looked) == 2 * COUNT


async def test_appends_committed_or_lost_between_two_steps_are_not_waited_for(bench: Bench) -> None:
    """No later change of the partitions might end the wait."""
    topic = bench.topic("t", *[led_by(1, replicas=(1, 2), isr=(1, 2))] * COUNT)
    for index in range(COUNT):
        bench.host(topic, index).become(topic.partitions[index])
    first, second, *others = bench.partitions
    produced = Produced(bench, *[batch(b"x")] * COUNT, acks=ACKS_ALL)
    while end(second.online_log) == 0:
        await produced.slice()
    shrunk = led_by(1, replicas=(1, 2), isr=(1,), partition_epoch=1)
    first.become(shrunk)
    second.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
    assert produced.task is not None
    for partition in others:
        partition.become(shrunk)
    while not produced.task.done():
        await produced.slice()
    codes = [one.error_code for one in produced.results]
    assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER] + [0] * (COUNT - 2)
    assert len(bench.purgatory) == 0
