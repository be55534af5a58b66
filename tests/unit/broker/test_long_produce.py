"""Produce requests whose check takes several iterations of the event loop, and changes in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from pytest import MonkeyPatch

from milena.broker.replica.partition import ACKS_ALL, Partition
from milena.config.topic_config import TopicConfig
from milena.node.metadata.image import TopicImage
from milena.node.serving.scheduler import LARGE_JOB_BYTES, MAX_CONCURRENT_JOBS, MAX_RESERVED_BYTES, Scheduler
from milena.protocol.errors import ErrorCode
from milena.protocol.records import validation
from milena.protocol.records.batch import BatchView, Codec, iter_batches
from milena.protocol.records.record_scan import pieces_of
from milena.protocol.types import Offset
from tests.unit.broker.fixtures import ME, OTHER, Bench, batch, led_by, set_isr
from tests.unit.broker.hand_clock import HandClock
from tests.unit.broker.long_produces import Produced, end, goes

MANY = [b"%d" % number for number in range(9000)]


def large(codec: Codec = Codec.ZSTD, **options: Any) -> memoryview:
    return batch(*MANY, codec=codec, **options)


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_long_check_is_cooperative_and_holds_the_connection(bench: Bench, codec: Codec) -> None:
    log = bench.led().online_log
    produced = Produced(bench, large(codec))
    slices = 0
    while produced.task is not None and not produced.task.done():
        assert produced.held and not produced.request.answered and end(log) == 0
        await produced.slice()
        slices += 1
    assert slices >= len(MANY) // 2000
    assert (produced.results[0].error_code, produced.results[0].base_offset, end(log)) == (0, 0, len(MANY))
    assert not produced.held and bench.scheduler.reserved == 0


async def test_a_small_request_is_handled_without_a_yield(bench: Bench) -> None:
    bench.led(count=3)
    few = batch(*MANY[:500], codec=Codec.ZSTD)
    produced = Produced(bench, few, batch(*MANY[:900]), batch(b"x" * 500_000))
    assert produced.task is None and [one.error_code for one in produced.results] == [0, 0, 0]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
async def test_a_batch_of_a_megabyte_is_decompressed_once(bench: Bench, codec: Codec, monkeypatch: MonkeyPatch) -> None:
    opened: list[int] = []

    def counted(found: BatchView) -> Iterator[bytes | memoryview]:
        for piece in pieces_of(found):
            opened.append(len(piece))
            yield piece

    monkeypatch.setattr(validation, "pieces_of", counted)
    words = random.Random(1)
    values = [b" ".join(b"%06d" % words.randrange(10_000) for _ in range(150)) for _ in range(1000)]
    bench.led()
    produced = Produced(bench, batch(*values, codec=codec))
    results = produced.results if produced.task is None else await produced.finish()
    assert results[0].error_code == 0
    assert 1_000_000 <= sum(opened) <= 1_200_000


async def test_a_small_batch_that_decompresses_to_a_large_one_is_checked_cooperatively(bench: Bench) -> None:
    log = bench.led().online_log
    produced = Produced(bench, batch(bytes(30 << 20), codec=Codec.ZSTD))
    assert produced.task is not None and end(log) == 0
    await goes(bench.clock, 20)
    assert end(log) == 0, "a slice is little work"
    assert (await produced.finish())[0].error_code == 0


async def test_many_small_batches_are_checked_cooperatively_after_the_first(bench: Bench) -> None:
    bench.led(count=20)
    produced = Produced(bench, *[batch(*MANY[:900])] * 20)
    ends = [end(partition.online_log) for partition in bench.partitions]
    assert 0 < ends.count(900) < 5 and ends.count(0) > 15
    assert [one.error_code for one in await produced.finish()] == [0] * 20


async def test_an_invalid_batch_is_refused_and_the_next_partition_is_appended(bench: Bench) -> None:
    bench.led(count=2)
    wrong = batch(*MANY, codec=Codec.NONE)
    wrong[-1] = 1
    wrong = batch_with_crc(wrong)
    results = await Produced(bench, wrong, batch(b"fine")).finish()
    assert [one.error_code for one in results] == [ErrorCode.INVALID_RECORD, 0]


def batch_with_crc(data: memoryview) -> memoryview:
    from milena.protocol.records.crc import crc32c

    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return data


def forget(bench: Bench, partition: Partition) -> None:
    """Delete the topic."""
    log = partition.online_log
    bench.partitions.remove(partition)
    log.close()
    del bench.image.topics_by_id[bench.image.topics.pop("t").id]


class TestMeanwhile:
    """Each test starts a long check, changes something, and lets the check finish."""

    async def answered(self, bench: Bench, meanwhile: Callable[[], object], **options: Any) -> Any:
        produced = Produced(bench, large(**options.pop("fields", {})), **options)
        await produced.slice()
        meanwhile()
        return (await produced.finish())[0]

    async def test_the_leadership_is_lost(self, bench: Bench) -> None:
        partition = bench.led()
        lost = led_by(OTHER, replicas=(1, 2), leader_epoch=1)
        answer = await self.answered(bench, lambda: partition.become(lost))
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and end(partition.online_log) == 0

    async def test_the_leadership_is_lost_and_won_again(self, bench: Bench) -> None:
        partition = bench.led()

        def and_back() -> None:
            partition.become(led_by(OTHER, replicas=(1, 2), leader_epoch=1))
            partition.become(led_by(ME, leader_epoch=2))

        assert (await self.answered(bench, and_back, acks=ACKS_ALL)).error_code == 0
        log = partition.online_log
        (stored,) = iter_batches(log.read_bytes(Offset(0), 1 << 20, upper=log.log_end_offset, min_one=True))
        assert stored.leader_epoch == 2 and partition.high_watermark == len(MANY)

    async def test_the_topic_is_deleted(self, bench: Bench) -> None:
        partition = bench.led()

        def delete() -> None:
            forget(bench, partition)

        answer = await self.answered(bench, delete)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize(("version", "code"), [(9, 0), (13, ErrorCode.UNKNOWN_TOPIC_ID)])
    async def test_the_topic_is_created_again(self, bench: Bench, version: int, code: int) -> None:
        """A name matches the new topic, an id does not."""
        partition = bench.led()

        def again() -> None:
            forget(bench, partition)
            bench.folder = bench.folder / "again"
            bench.folder.mkdir()
            bench.image.topics["other"] = TopicImage("other", UUID(int=1), {})
            bench.led()

        assert (await self.answered(bench, again, version=version)).error_code == code
        assert end(bench.partitions.get("t", 0).online_log) == (0 if code else len(MANY))

    async def test_the_directory_fails(self, bench: Bench) -> None:
        partition = bench.led()
        log = partition.online_log
        answer = await self.answered(bench, partition.take_offline)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR and end(log) == 0
        log.close()

    async def test_the_topic_gets_another_configuration(self, bench: Bench) -> None:
        """The batch is stored by the new configuration."""
        partition = bench.led()
        config = TopicConfig.effective(bench.config, {"cleanup.policy": "compact"})
        answer = await self.answered(bench, lambda: partition.online_log.update_config(config))
        assert answer.error_code == ErrorCode.INVALID_RECORD and answer.record_errors
        assert end(partition.online_log) == 0

    async def test_the_same_batch_arrives_on_another_connection(self, bench: Bench) -> None:
        partition = bench.led()
        fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        answer = await self.answered(bench, lambda: partition.append(large(**fields), 1), fields=fields)
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert end(partition.online_log) == len(MANY), "a duplicate is not written twice"

    async def test_a_newer_producer_epoch_fences_the_batch(self, bench: Bench) -> None:
        partition = bench.led()
        fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        newer = batch(b"x", producer_id=7, producer_epoch=1, base_sequence=0)
        answer = await self.answered(bench, lambda: partition.append(newer, 1), fields=fields)
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH and end(partition.online_log) == 1

    async def test_the_isr_falls_below_min_insync_replicas(self, bench: Bench) -> None:
        topic = bench.topic("t", led_by(ME, replicas=(1, 2)))
        partition = bench.host(topic, 0, min_insync_replicas=2)
        partition.become(led_by(ME, replicas=(1, 2), isr=(1, 2)))

        def shrink() -> None:
            set_isr(partition, ME)

        answer = await self.answered(bench, shrink, acks=ACKS_ALL)
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS and end(partition.online_log) == 0

    async def test_log_append_time_is_the_time_of_the_append(self, bench: Bench) -> None:
        bench.led(message_timestamp_type="LogAppendTime")
        answer = await self.answered(bench, lambda: bench.clock.advance(60))
        assert answer.log_append_time_ms == bench.clock.time_ms()

    @pytest.mark.parametrize(("acks", "appended"), [(0, len(MANY)), (1, 0), (ACKS_ALL, 0)])
    async def test_the_client_disconnects(self, bench: Bench, acks: int, appended: int) -> None:
        """No response was sent yet. A client with acks=0 may disconnect right after sending."""
        log = bench.led().online_log
        produced = Produced(bench, large(), acks=acks)
        await produced.slice()
        produced.request.answers.closed = True
        assert produced.task is not None
        while not produced.task.done():
            await produced.slice()
        assert end(log) == appended and bench.scheduler.reserved == 0 and not produced.held

    async def test_the_node_stops(self, bench: Bench) -> None:
        log = bench.led().online_log
        produced = Produced(bench, large())
        await produced.slice()
        assert produced.task is not None
        produced.task.cancel()
        await goes(bench.clock, 3)
        assert produced.task.cancelled() and end(log) == 0 and bench.scheduler.reserved == 0
        assert (await Produced(bench, large()).finish())[0].error_code == 0, "other requests are handled"


async def test_without_acks_an_error_closes_the_connection(bench: Bench) -> None:
    bench.led(cleanup_policy="compact")
    produced = Produced(bench, large(), acks=0)
    assert produced.task is not None
    while not produced.task.done():
        await produced.slice()
    assert produced.request.answers.closed and "INVALID_RECORD" in (produced.request.answers.reason or "")


async def test_a_produce_that_waits_for_replicas_does_not_hold_the_connection(bench: Bench) -> None:
    partition = bench.led()
    set_isr(partition, ME, OTHER)
    produced = Produced(bench, large(), acks=ACKS_ALL)
    assert produced.task is not None
    while not produced.task.done():
        await produced.slice()
    assert end(partition.online_log) == len(MANY) and not produced.held and not produced.request.answered
    set_isr(partition, ME)
    partition.become(led_by(ME))
    assert produced.results[0].error_code == 0


async def test_batches_of_a_repeated_partition_keep_their_order(bench: Bench) -> None:
    bench.led()
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    one, two = large(base_sequence=0, **fields), batch(b"then", base_sequence=len(MANY), **fields)
    results = await Produced(bench, one, two, twice=True).finish()
    assert [(each.error_code, each.base_offset) for each in results] == [(0, 0), (0, len(MANY))]


async def test_requests_beyond_the_held_limit_close_their_connection(bench: Bench) -> None:
    log = bench.led().online_log
    bench.scheduler.reserve(MAX_RESERVED_BYTES)
    produced = Produced(bench, large())
    assert produced.task is None and produced.request.answers.closed and end(log) == 0


class TestTurns:
    async def worked(self, *memories: int, slices: int = 5) -> list[int]:
        """The order in which jobs run that are submitted together."""
        clock, order = HandClock(), []
        work = Scheduler(clock)

        def one(number: int) -> Any:
            for _ in range(slices):
                order.append(number)
                yield

        async def run(number: int, memory: int) -> None:
            async with work.slot(memory) as slot:
                await slot.run(one(number))

        tasks: list[Awaitable[None]] = [
            asyncio.ensure_future(run(number, memory)) for number, memory in enumerate(memories)
        ]
        while not all(task.done() for task in tasks):  # type: ignore[attr-defined]
            await goes(clock)
        return order

    async def test_jobs_take_turns(self) -> None:
        assert await self.worked(0, 0, 0) == [0, 1, 2] * 5

    async def test_the_number_of_concurrent_jobs_is_limited(self) -> None:
        order = await self.worked(*[0] * (MAX_CONCURRENT_JOBS + 2))
        assert set(order[: MAX_CONCURRENT_JOBS * 5]) == set(range(MAX_CONCURRENT_JOBS))

    async def test_large_jobs_run_one_at_a_time_concurrently_with_small_ones(self) -> None:
        order = await self.worked(LARGE_JOB_BYTES + 1, LARGE_JOB_BYTES + 1, 0)
        assert [number for number in order if number != 2] == [0] * 5 + [1] * 5
        assert order[:6] == [0, 2] * 3

    async def test_one_step_runs_per_iteration_of_the_loop(self) -> None:
        clock = HandClock()
        work = Scheduler(clock)
        tasks = [asyncio.ensure_future(work.turn()) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert clock.armed() == 1
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
