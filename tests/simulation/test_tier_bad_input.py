"""A damaged or missing tier: log events and metrics report it, no record is lost, copies resume after a repair."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from milena.client import admin
from milena.client.cluster import Cluster
from milena.client.consumer import Consumer
from milena.client.producer import Producer
from milena.lab.cluster import SimulatedCluster, host_of
from milena.lab.world.power import Inode
from milena.protocol.errors import ErrorCode
from milena.protocol.types import NodeId
from milena.storage.files.names import LOG, OFFSET_INDEX
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.metadata.serialization import serialize
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState, RemoteLogSegmentUpdate
from milena.tiered.store.tier_identity import IDENTITY
from milena.tiered.store.tier_names import SUFFIXES, object_path
from tests.simulation.fetches import fetch
from tests.simulation.steps import until, values, write
from tests.simulation.tiered_topics import ROOT, TIER, bases, finished, in_tier, known_segments, log_of, with_tier

TOPIC = "kafka_server_brokertopicmetrics"
COPY_FAILED = "remote log: copy failed"
SEGMENTS = [0, 4, 8, 12, 16]
WRITING = ("append", "rename", "remove", "write")
"""The operations that a read-only folder refuses."""


class Said:
    """The events that the nodes have logged to standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._lines: list[dict[str, Any]] = []

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of this name so far. Fails if a stack trace was logged."""
        text = self._capsys.readouterr().err
        assert "Traceback" not in text, text
        self._lines += [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in self._lines if line["event"] == event]

    def reasons(self, event: str) -> set[str]:
        return {str(line["reason"]) for line in self.of(event)}


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return Said(capsys)


def counted(cluster: SimulatedCluster, name: str) -> float:
    return cluster.brokers[1].metrics.value(f"{TOPIC}_{name}persec_total", topic="t")


def object_of(cluster: SimulatedCluster, start: int, suffix: str) -> Inode:
    [found] = [
        inode for path, inode in cluster.world.tier.files.items() if f"/{start:020d}-" in path and path.endswith(suffix)
    ]
    return found


async def filled(cluster: SimulatedCluster, client: Cluster) -> None:
    """Write 22 records, and wait until 20 of them are only in the tier."""
    await write(client, 22)
    await until(lambda: bases(cluster) == [20])


async def read_at(client: Cluster, offset: int) -> tuple[ErrorCode, list[int]]:
    found = (await fetch(client, {("t", 0): offset})).partitions["t", 0]
    return found.error, found.values


async def restart(cluster: SimulatedCluster) -> None:
    await cluster.kill(host_of(1))
    await cluster.start_broker(1)


# -- the folder


def read_only(cluster: SimulatedCluster) -> None:
    for operation in WRITING:
        cluster.world.tier.fail(TIER, errno.EROFS, operation=operation)


def full(cluster: SimulatedCluster) -> None:
    cluster.world.tier.capacity = cluster.world.tier.used() + 100


@pytest.mark.parametrize(("spoil", "reason"), [(read_only, "Read-only file system"), (full, "No space left on device")])
def test_a_full_or_read_only_folder_is_read_and_new_segments_stay_on_the_local_disk(
    spoil: Callable[[SimulatedCluster], None], reason: str, said: Said
) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        assert counted(cluster, "remotecopyerrors") == 0
        spoil(cluster)
        await write(client, 12, first=22)
        await until(lambda: counted(cluster, "remotecopyerrors") > 2)
        assert bases(cluster) == [20, 24, 28, 32] and in_tier(cluster) == SEGMENTS
        assert await values(client, 34) == list(range(34))
        assert all("cannot copy segment" in one and reason in one for one in said.reasons(COPY_FAILED))
        await restart(cluster)
        assert await values(client, 34) == list(range(34))
        cluster.world.tier.capacity = None
        cluster.world.tier.heal()
        await until(lambda: bases(cluster) == [32])
        assert in_tier(cluster) == [*SEGMENTS, 20, 24, 28]
        assert await values(client, 34) == list(range(34))
        assert {one["level"] for one in said.of(COPY_FAILED)} == {"warning"}

    with_tier(scenario)


@contextmanager
def unmounted(cluster: SimulatedCluster) -> Iterator[None]:
    """Replace the folder by an empty one that no process may write to, as of a mount point."""
    tier = cluster.world.tier
    files, folders = dict(tier.files), dict(tier.folders)
    tier.wipe()
    tier.folders[TIER] = None
    tier.fail(TIER, errno.EACCES, operation="write")
    yield
    assert not tier.files
    tier.heal()
    tier.files.update(files)
    tier.folders.update(folders)


@pytest.mark.parametrize("restarted", [False, True])
def test_no_record_is_lost_while_the_folder_is_not_mounted(restarted: bool, said: Said) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        with unmounted(cluster):
            if restarted:
                await restart(cluster)
                assert ROOT in said.reasons("remote storage cannot be used").pop()
            await write(client, 12, first=22)
            await until(lambda: len(said.of(COPY_FAILED)) > 2)
            assert counted(cluster, "remotecopyerrors") > 2
            assert await read_at(client, 0) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
            assert (await read_at(client, 20))[1] == [20, 21, 22, 23]
            assert counted(cluster, "remotefetcherrors") == 1
            assert all(ROOT in one for one in said.reasons("remote read failed") | said.reasons(COPY_FAILED))
            assert log_of(cluster).log_start_offset == 0
        await until(lambda: bases(cluster) == [32])
        assert await values(client, 34) == list(range(34))

    with_tier(scenario)


@pytest.mark.parametrize("mounted", [True, False], ids=["mounted later", "created again by hand"])
def test_a_broker_does_not_create_a_tier_where_there_was_one(mounted: bool, said: Said) -> None:
    """The broker starts before the folder is mounted, and could create another folder in its place."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        tier = cluster.world.tier
        files, folders = dict(tier.files), dict(tier.folders)
        tier.wipe()
        await restart(cluster)
        assert "mount it" in said.reasons("remote storage cannot be used").pop()
        assert [one["folder"] for one in said.of("folder of the tier created: it is empty")] == [ROOT]
        assert await read_at(client, 0) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
        assert (counted(cluster, "remotefetcherrors"), len(said.of("remote read failed"))) == (1, 1)
        await write(client, 12, first=22)
        await until(lambda: counted(cluster, "remotecopyerrors") > 2)
        assert (bases(cluster), log_of(cluster).log_start_offset) == ([20, 24, 28, 32], 0)
        assert not tier.files
        if mounted:
            tier.files.update(files)
            tier.folders.update(folders)
        else:
            tier.folders.update(dict.fromkeys((TIER, ROOT)))
        await until(lambda: bases(cluster) == [32])
        assert in_tier(cluster) == [*(SEGMENTS if mounted else []), 20, 24, 28]
        if mounted:
            assert await values(client, 34) == list(range(34))

    with_tier(scenario)


def test_creating_the_folder_of_the_tier_is_retried(said: Said) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        cluster.world.tier.fail("/", errno.EROFS, operation="write")
        await write(client, 22)
        await until(lambda: len(said.of(COPY_FAILED)) > 2)
        assert all("Read-only file system" in one for one in said.reasons(COPY_FAILED))
        assert len(bases(cluster)) > 1
        cluster.world.tier.heal()
        await until(lambda: bases(cluster) == [20])
        assert in_tier(cluster) == SEGMENTS

    with_tier(scenario)


# -- objects


def test_a_truncated_object_is_an_error_only_for_reads_beyond_its_end(said: Said) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        inode = object_of(cluster, 8, LOG)
        whole = bytes(inode.data)
        del inode.data[len(whole) // 2 :]
        assert await read_at(client, 11) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])
        assert [(await read_at(client, offset))[1] for offset in (4, 12)] == [[4, 5, 6, 7], [12, 13, 14, 15]]
        assert counted(cluster, "remotefetcherrors") == 1
        [reason] = said.reasons("remote read failed")
        assert f"has {len(whole) // 2} of its segment's {len(whole)} bytes" in reason
        inode.data[:] = whole
        assert await values(client, 22) == list(range(22))

    with_tier(scenario)


@pytest.mark.parametrize("length", [-3, 5, 0])
def test_with_a_damaged_index_batches_are_searched_in_the_log(length: int, said: Said) -> None:
    """The damage is logged once for each segment, however often the segment is read."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        for start in (4, 8):
            inode = object_of(cluster, start, OFFSET_INDEX)
            inode.data[:] = b"\x00" * (8 + length) if length else b"\xff" * 8
        for _ in range(2):
            assert await values(client, 22) == list(range(22))
        assert await read_at(client, 10) == (ErrorCode.NONE, [10, 11])
        reported = said.of("remote indexes cannot be used")
        assert len({one["segment"] for one in reported}) == len(reported) == 2
        assert all("in the remote storage: " in one["reason"] for one in reported)
        assert counted(cluster, "remotefetcherrors") == 0

    with_tier(scenario)


def test_foreign_files_in_the_tier_are_kept_and_have_no_effect(said: Said) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        tier = cluster.world.tier
        home = next(path.rpartition("/")[0] for path in tier.files if path.endswith(LOG))
        foreign = [f"{ROOT}/README", f"{TIER}/lost+found", f"{home}/.nfs0001", f"{home}/{0:020d}-copy.log"]
        for path in foreign:
            tier.files[path] = Inode(0)
            tier.files[path].data += b"not ours"
        await restart(cluster)
        await write(client, 12, first=22)
        await until(lambda: bases(cluster) == [32])
        assert await values(client, 34) == list(range(34))
        assert await admin.delete_records(client, {("t", 0): 9}) == {("t", 0): 9}
        await until(lambda: finished(cluster)[0] == (8, 11))
        assert await admin.delete_topics(client, ["t"]) == {"t": None}
        await until(lambda: set(tier.files) == {*foreign, f"{TIER}/{IDENTITY}"})
        assert not said.of("segments remain in the tier")

    with_tier(scenario)


# -- the metadata topic


async def metadata_records(client: Cluster, count: int) -> list[tuple[int, bytes]]:
    """(partition, value) of the first ``count`` records."""
    consumer = Consumer(client)
    consumer.assign({(REMOTE_LOG_METADATA_TOPIC, partition): 0 for partition in range(3)})
    found: list[tuple[int, bytes]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [(record.partition, bytes(record.value or b"")) for record in await consumer.poll(1)]
    await consumer.close()
    return found


async def publish(client: Cluster, records: list[tuple[int, bytes]]) -> None:
    producer = Producer(client)
    for partition, value in records:
        await producer.send(REMOTE_LOG_METADATA_TOPIC, value, partition=partition)
    await producer.close()


async def check_that_it_works(cluster: SimulatedCluster, client: Cluster) -> None:
    """Check that copies, reads and the known segments are right, also after restarts that read the metadata again."""
    for first, last in ((22, 28), (28, 34)):
        await write(client, last - first, first=first)
        expected = [start for start in range(0, last, 4) if start + 4 < last]
        await until(lambda: bases(cluster)[0] == expected[-1] + 4)  # noqa: B023 - awaited within
        assert in_tier(cluster) == expected
        assert finished(cluster) == [(start, start + 3) for start in expected]
        assert await values(client, last) == list(range(last))
        await restart(cluster)


def test_metadata_of_an_unknown_version_is_skipped_and_logged(said: Said) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        [(partition, _), *_] = await metadata_records(client, 10)
        await publish(client, [(partition, b"\x01\x00\x07 of the future"), (partition, b"\x01\x63\x00")])
        await until(lambda: len(said.of("remote log metadata record skipped")) == 2)
        assert [one["error"].partition(": ")[2] for one in said.of("remote log metadata record skipped")] == [
            "RemoteLogSegmentMetadataRecord of version 7 is not known",
            "type 99 is not known",
        ]
        await check_that_it_works(cluster, client)

    with_tier(scenario)


def test_repeated_metadata_records_change_nothing(said: Said) -> None:
    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        records = await metadata_records(client, 10)
        await publish(client, records)
        await until(
            lambda: len(said.of("remote log metadata record dropped: invalid state transition")) == len(SEGMENTS)
        )
        assert len(known_segments(cluster)) == len(SEGMENTS)
        await check_that_it_works(cluster, client)

    with_tier(scenario)


def test_of_two_segments_with_the_same_offsets_one_is_read_and_both_are_deleted(said: Said) -> None:
    """As after a copy that seemed to fail but succeeded: the same offsets under two ids, both complete."""

    async def scenario(cluster: SimulatedCluster, client: Cluster) -> None:
        await filled(cluster, client)
        [(partition, _), *_] = await metadata_records(client, 10)
        tier, records = cluster.world.tier, list[tuple[int, bytes]]()
        for number, segment in enumerate(known_segments(cluster).segments()):
            twin = replace(segment, segment_id=replace(segment.segment_id, id=UUID(int=number + 1)))
            for suffix in SUFFIXES:
                inode = tier.files.get(f"{TIER}/{object_path(segment, suffix)}")
                if inode is not None:
                    copy = tier.files[f"{TIER}/{object_path(twin, suffix)}"] = Inode(0)
                    copy.data += inode.data
            begun = replace(twin, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
            confirmed = RemoteLogSegmentUpdate(twin.segment_id, NodeId(1), 1, None, twin.state)
            records += [(partition, serialize(begun)), (partition, serialize(confirmed))]
        await publish(client, records)
        await until(lambda: len(finished(cluster)) == 2 * len(SEGMENTS))
        for _ in range(2):
            assert await values(client, 22) == list(range(22))
            await restart(cluster)
        assert await admin.delete_records(client, {("t", 0): 9}) == {("t", 0): 9}
        await until(lambda: in_tier(cluster) == [8, 8, 12, 12, 16, 16])
        assert (await read_at(client, 9))[1] == [9, 10, 11]
        assert bases(cluster) == [20]

    with_tier(scenario)
