"""A real process whose files cannot be written, or were torn by a crash."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from milena.client.cluster import Cluster
from milena.client.producer import OutcomeUnknown
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.records import Record, build_batch
from milena.runtime.process import real_runtime
from tests.simulation.steps import batches_in, create, send_batch, values, write
from tests.wire.command import Node, node
from tests.wire.properties import combined
from tests.wire.properties import write as write_properties

pytestmark = pytest.mark.slow

RECORDS = 50
SEGMENT_BYTES = 3000
TOO_LONG = 100_000
"""Largest size of a file, in bytes, in the test of a file size limit."""


@pytest.fixture
def properties(tmp_path: Path) -> str:
    """Configuration of a combined node with two log directories, and the metadata log in a third."""
    changes = {"replica_high_watermark_checkpoint_interval_ms": 200, "metadata_log_dir": tmp_path / "metadata"}
    return write_properties(
        tmp_path, combined(tmp_path, **changes) | {"log.dirs": f"{tmp_path}/data-1,{tmp_path}/data-2"}
    )


@contextlib.asynccontextmanager
async def client_of(running: Node) -> AsyncIterator[Cluster]:
    host, _, port = running.address.rpartition(":")
    client = Cluster(real_runtime(), [(host, int(port))])
    yield client
    client.close()


def folder_of(tmp_path: Path, partition: int) -> Path:
    (found,) = tmp_path.glob(f"data-*/t-{partition}")
    return found


async def produce_until_refused(client: Cluster, value: bytes) -> tuple[int, ErrorCode]:
    """Write records to ``t-0``, one batch each, until one fails. Return how many were acknowledged, and the error."""
    channel, _, _ = await client.leader("t", 0)
    for number in range(10_000):
        data = build_batch([Record(0, 0, None, b"%d" % number + value)], base_timestamp=client.runtime.clock.time_ms())
        answer = await send_batch(channel, data)
        if answer.error_code:
            return number, ErrorCode(answer.error_code)
    raise AssertionError("nothing was refused")


async def check_that_only_the_first_is_offline(client: Cluster, tmp_path: Path) -> None:
    """Assert that the directory of ``t-0`` is offline, that ``t-1`` is served, and that clients see both."""
    leaders, attempt = {0: 1}, 0
    while leaders[0] != -1:
        await client.pause(attempt)
        attempt += 1
        topic = (await client.metadata(["t"])).topics["t"]
        leaders = {number: partition.leader for number, partition in topic.partitions.items()}
    assert leaders == {0: -1, 1: 1}
    channel = await client.any_channel()
    response = await channel.request(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
    errors = {Path(result.log_dir): ErrorCode(result.error_code) for result in response.results}
    assert errors[folder_of(tmp_path, 0).parent] is ErrorCode.KAFKA_STORAGE_ERROR
    assert errors[folder_of(tmp_path, 1).parent] is ErrorCode.NONE
    await write(client, RECORDS, partition=1)
    assert await values(client, RECORDS, partition=1) == list(range(RECORDS))


async def test_a_directory_fails_when_a_log_file_reaches_the_size_limit(tmp_path: Path, properties: str) -> None:
    """The kernel writes a part of the last append and then returns EFBIG."""
    with node(tmp_path, properties) as running:
        async with client_of(running) as client:
            await create(client, partitions=2)
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (TOO_LONG, TOO_LONG))
            count, code = await produce_until_refused(client, b"x" * 1000)
            assert code is ErrorCode.KAFKA_STORAGE_ERROR
            assert 50 < count < 100
            await check_that_only_the_first_is_offline(client, tmp_path)
    with node(tmp_path, properties) as running:
        async with client_of(running) as client:
            channel, _, _ = await client.leader("t", 0)
            again = build_batch([Record(0, 0, None, b"more")], base_timestamp=client.runtime.clock.time_ms())
            assert (await send_batch(channel, again)).base_offset == count


async def test_a_directory_fails_when_the_disk_is_full_at_a_new_segment(tmp_path: Path, properties: str) -> None:
    """The second segment is a link to /dev/full."""
    with node(tmp_path, properties) as running:
        async with client_of(running) as client:
            await create(client, partitions=2, configs={"internal.segment.bytes": str(SEGMENT_BYTES)})
            size = len(build_batch([Record(0, 0, None, b"0" + b"y" * 499)]))
            fitting = SEGMENT_BYTES // size
            (folder_of(tmp_path, 0) / f"{fitting:020}.log").symlink_to("/dev/full")
            count, code = await produce_until_refused(client, b"y" * 499)
            assert (count, code) == (fitting, ErrorCode.KAFKA_STORAGE_ERROR)
            await check_that_only_the_first_is_offline(client, tmp_path)
    assert "No space left on device" in running.log.read_text()


async def test_a_directory_fails_when_the_disk_is_full_at_a_checkpoint(tmp_path: Path, properties: str) -> None:
    with node(tmp_path, properties) as running:
        async with client_of(running) as client:
            await create(client, partitions=2)
            (folder_of(tmp_path, 0).parent / "replication-offset-checkpoint.tmp").symlink_to("/dev/full")
            with contextlib.suppress(OutcomeUnknown):  # the checkpoint may be written before the record is
                await write(client, 1)
            await check_that_only_the_first_is_offline(client, tmp_path)


def torn(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 30)


def zeros(file: Path) -> None:
    os.truncate(file, file.stat().st_size + 5000)


def garbage(file: Path) -> None:
    with file.open("ab") as log:
        log.write(b"no batch at all " * 20)


@pytest.mark.parametrize(("damage", "lost"), [(torn, 1), (zeros, 0), (garbage, 0)])
async def test_a_torn_log_end_is_truncated_and_logged(
    tmp_path: Path, properties: str, damage: Callable[[Path], None], lost: int
) -> None:
    with node(tmp_path, properties, code=-signal.SIGKILL) as running:
        async with client_of(running) as client:
            await create(client)
            await write(client, RECORDS)
        running.process.kill()
    file = folder_of(tmp_path, 0) / f"{0:020}.log"
    damage(file)
    size = file.stat().st_size
    with node(tmp_path, properties) as running:
        async with client_of(running) as client:
            assert await values(client, RECORDS - lost) == list(range(RECORDS - lost))
            await write(client, 1, first=RECORDS - lost)
            assert await values(client, RECORDS - lost + 1) == list(range(RECORDS - lost + 1))
    assert len(batches_in(file.read_bytes())) == RECORDS - lost + 1
    (said,) = [line for line in running.log.read_text().splitlines() if "log truncated in recovery" in line]
    cut = size - sum(batch.size_in_bytes for batch in batches_in(file.read_bytes())[:-1])
    assert f'"next_offset": {RECORDS - lost}' in said and f'"bytes_truncated": {cut}' in said
