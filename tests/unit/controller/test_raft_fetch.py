"""Observers fetch the metadata log: every answer, and every refusal, of the leader."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from milena.controller.apis import fetch
from milena.lab.world.world import simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.limits import MAX_OBSERVED
from milena.protocol.metadata_records import NoOpRecord
from milena.protocol.records.batch import iter_batches
from milena.protocol.requests.fetch import EpochEndOffset, SnapshotId
from milena.protocol.requests.fetch_request import FetchPartition, FetchRequest, encode_fetch_request
from milena.protocol.requests.fetch_response import decode_fetch_response
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.schemas.undecodable import TooManyElements
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID
from tests.unit.broker.fixtures import Request
from tests.unit.controller.simulated import HOST, PORT, Site, scenario

LEADER = CurrentLeader(1000, 1)
SMALL = {
    "metadata_log_max_record_bytes_between_snapshots": 3000,
    "metadata_max_retention_bytes": 5000,
    "internal_metadata_log_segment_bytes": 2000,
}


def offsets(records: object) -> tuple[int, int]:
    assert isinstance(records, bytes | memoryview)
    batches = list(iter_batches(memoryview(bytearray(records))))
    return batches[0].base_offset, batches[-1].next_offset


@pytest.mark.parametrize("version", [12, 13, 16, 17, 18])
def test_a_new_observer_gets_the_log_from_its_start_and_learns_the_leader(version: int) -> None:
    async def steps(site: Site) -> None:
        response = await site.fetch(0, last_epoch=0, version=version)
        ((name, topic_id, (partition,)),) = response.topics
        assert name == METADATA_TOPIC if version < 13 else topic_id == METADATA_TOPIC_ID
        assert (partition.error_code, partition.high_watermark, partition.log_start_offset) == (0, 6, 0)
        assert offsets(partition.records) == (0, 6)
        assert partition.current_leader == LEADER
        assert tuple(response.node_endpoints) == ((NodeEndpoint(1000, HOST, PORT),) if version >= 17 else ())

    simulate(scenario(steps), seed=1)


def test_a_version_that_cannot_name_epochs_is_of_no_use_to_an_observer() -> None:
    async def steps(site: Site) -> None:
        assert (await site.fetch_partition(0, last_epoch=0, version=11)).error_code == ErrorCode.INVALID_REQUEST

    simulate(scenario(steps), seed=1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"topic": ("t", None), "version": 12}, ErrorCode.INVALID_REQUEST),
        ({"topic": (None, UUID(int=99))}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_request_for_something_else_is_refused_as_a_whole(fields: dict[str, Any], code: ErrorCode) -> None:
    async def steps(site: Site) -> None:
        response = await site.fetch(0, last_epoch=0, **fields)
        assert (response.error_code, list(response.topics)) == (code, [])

    simulate(scenario(steps), seed=2)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"offset": -1, "last_epoch": 0}, ErrorCode.INVALID_REQUEST),
        ({"offset": 0, "last_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"offset": 0, "last_epoch": 2}, ErrorCode.INVALID_REQUEST),
        ({"offset": 0, "last_epoch": 0, "wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"offset": 0, "last_epoch": 0, "epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"offset": 0, "last_epoch": 0, "epoch": 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_offsets_and_epochs_are_checked_and_every_refusal_names_the_leader(
    fields: dict[str, Any], code: ErrorCode
) -> None:
    async def steps(site: Site) -> None:
        partition = await site.fetch_partition(**fields)
        assert (partition.error_code, partition.current_leader, partition.high_watermark) == (code, LEADER, -1)

    simulate(scenario(steps), seed=3)


def test_a_fetch_at_the_end_waits_for_the_next_commit() -> None:
    async def steps(site: Site) -> None:
        clock = site.controller.runtime.clock
        clock.call_later(0.2, lambda: site.controller.metadata.write([NoOpRecord()]))
        began = clock.monotonic()
        partition = await site.fetch_partition(6, wait_ms=450)
        assert offsets(partition.records) == (6, 7)
        assert partition.high_watermark == 7
        assert 0.2 <= clock.monotonic() - began < 0.3

    simulate(scenario(steps), seed=4)


def test_without_news_the_answer_comes_when_the_time_is_up_and_at_once_for_no_wait() -> None:
    async def steps(site: Site) -> None:
        clock = site.controller.runtime.clock
        for wait_ms in (0, 300):
            began = clock.monotonic()
            partition = await site.fetch_partition(6, wait_ms=wait_ms)
            assert not partition.records
            assert wait_ms / 1000 <= clock.monotonic() - began < wait_ms / 1000 + 0.1
        assert len(site.controller.polls) == 0

    simulate(scenario(steps, metadata_max_idle_interval_ms=0), seed=5)


def test_an_observer_with_an_older_high_watermark_is_answered_at_once() -> None:
    async def steps(site: Site) -> None:
        clock = site.controller.runtime.clock
        began = clock.monotonic()
        assert (await site.fetch_partition(6, wait_ms=400, high_watermark=3)).high_watermark == 6
        assert clock.monotonic() - began < 0.1

    simulate(scenario(steps), seed=6)


def test_a_client_that_leaves_is_forgotten() -> None:
    async def steps(site: Site) -> None:
        site.client.new_tasks("x").spawn(_ignore(site.fetch(6, wait_ms=200)), name="fetch")
        clock = site.controller.runtime.clock
        await clock.sleep(0.05)
        assert len(site.controller.polls) == 1
        site.channel.disconnect()
        await clock.sleep(0.4)
        assert len(site.controller.polls) == 0

    async def _ignore(fetch: Any) -> None:
        with pytest.raises(ConnectionError):
            await fetch

    simulate(scenario(steps, metadata_max_idle_interval_ms=0), seed=7)


def test_an_observer_of_a_lost_epoch_hears_where_the_logs_part() -> None:
    async def steps(site: Site) -> None:
        site.machine.kill()
        site = await site.restart()
        diverged = await site.fetch_partition(9, last_epoch=1)
        assert diverged.diverging_epoch == EpochEndOffset(1, 6)
        beyond = await site.fetch_partition(100, last_epoch=2)
        assert beyond.diverging_epoch == EpochEndOffset(2, site.controller.metadata.log.log_end_offset)
        assert offsets((await site.fetch_partition(6, last_epoch=1)).records)[0] == 6

    simulate(scenario(steps), seed=8)


def test_who_lacks_what_was_deleted_is_sent_to_the_snapshot_and_gets_it_in_pieces() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        for number in range(50):
            await site.create(f"t{number}", 2)
            await site.controller.runtime.clock.sleep(0.1)
        latest = site.controller.metadata.snapshots.latest()
        assert latest is not None
        expected = SnapshotId(latest.end_offset, latest.epoch)
        assert (await site.fetch_partition(0, last_epoch=0)).snapshot_id == expected
        assert (await site.fetch_partition(3, last_epoch=1)).snapshot_id == expected
        assert (await site.fetch_partition(latest.end_offset, last_epoch=1)).snapshot_id is None
        data, size = b"", 1
        while len(data) < size:
            piece = await snapshot(site, latest.end_offset, latest.epoch, len(data))
            assert (piece.error_code, piece.position) == (0, len(data))
            assert (piece.current_leader.leader_id, piece.current_leader.leader_epoch) == LEADER
            data, size = data + bytes(piece.unaligned_records), piece.size
        assert data == site.controller.metadata.snapshots.read(latest)

    async def snapshot(site: Site, end: int, epoch: int, position: int, **fields: Any) -> Any:
        wanted = {
            "partition": 0,
            "current_leader_epoch": 1,
            "snapshot_id": {"end_offset": end, "epoch": epoch},
            "position": position,
        }
        answer = await site.ask(
            ApiKey.FETCH_SNAPSHOT,
            replica_id=7,
            max_bytes=700,
            topics=[{"name": METADATA_TOPIC, "partitions": [wanted | fields]}],
        )
        assert [node.host for node in answer.node_endpoints] == [HOST]
        return answer.topics[0].partitions[0]

    async def refusals(site: Site) -> None:
        await steps(site)
        latest = site.controller.metadata.snapshots.latest()
        assert latest is not None
        end, size = latest.end_offset, site.controller.metadata.snapshots.size(latest)
        for expected, call in [
            (ErrorCode.SNAPSHOT_NOT_FOUND, (0, 0, 0, {})),
            (ErrorCode.SNAPSHOT_NOT_FOUND, (end + 1, 1, 0, {})),
            (ErrorCode.POSITION_OUT_OF_RANGE, (end, 1, size, {})),
            (ErrorCode.POSITION_OUT_OF_RANGE, (end, 1, -1, {})),
            (ErrorCode.FENCED_LEADER_EPOCH, (end, 1, 0, {"current_leader_epoch": 0})),
            (ErrorCode.UNKNOWN_LEADER_EPOCH, (end, 1, 0, {"current_leader_epoch": 2})),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, (end, 1, 0, {"partition": 1})),
        ]:
            *where, fields = call
            assert (await snapshot(site, *where, **fields)).error_code == expected

    simulate(scenario(refusals, **SMALL), seed=9)


@pytest.mark.parametrize(("count", "code"), [(MAX_OBSERVED - 1, ErrorCode.INVALID_REQUEST), (MAX_OBSERVED, None)])
def test_more_partitions_than_an_observer_could_want_are_not_even_read(count: int, code: ErrorCode | None) -> None:
    async def steps(site: Site) -> None:
        partitions = [FetchPartition(0, 0, 1)] * count
        body = encode_fetch_request(13, FetchRequest(0, 0, 1, [(None, METADATA_TOPIC_ID, partitions)]))
        request = Request(ApiKey.FETCH, 13)
        if code is None:
            with pytest.raises(TooManyElements):
                fetch.handle(site.controller, request.ctx, memoryview(body))
        else:
            fetch.handle(site.controller, request.ctx, memoryview(body))
            assert decode_fetch_response(13, request.body).error_code == code

    simulate(scenario(steps), seed=1)
