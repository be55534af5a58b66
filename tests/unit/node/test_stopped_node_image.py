"""The metadata in a stopped node's folder: the latest snapshot, and the log behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milena.node.metadata.snapshots import CorruptMetadataSnapshot, MetadataSnapshotId, SnapshotStore, snapshot_batches
from milena.node.metadata.stopped_node_image import read_image
from milena.protocol.metadata_records import LATEST_METADATA_VERSION, RemoveTopicRecord, encode_record
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.files import RealDisk
from tests.unit.node.quorum import topic

EPOCH = LeaderEpoch(3)


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    disk = RealDisk()
    yield disk
    disk.close()


def write_snapshot(disk: RealDisk, folder: Path, end: int, *records: Any) -> None:
    store = SnapshotStore(disk, str(folder))
    store.open()
    batches = snapshot_batches(records, EPOCH, metadata_version=LATEST_METADATA_VERSION, last_timestamp=0, now_ms=0)
    store.write(MetadataSnapshotId(Offset(end), EPOCH), batches)


def batch(base: int, *records: Any) -> bytes:
    builder = BatchBuilder()
    for record in records:
        builder.append(timestamp=0, value=encode_record(record, LATEST_METADATA_VERSION))
    return builder.build(base_offset=Offset(base), leader_epoch=EPOCH)


def test_the_latest_snapshot_counts_and_the_log_goes_on_behind_it(disk: RealDisk, tmp_path: Path) -> None:
    a, b, c = topic("a", 1), topic("b", 2), topic("c", 3)
    write_snapshot(disk, tmp_path, 2, a)
    write_snapshot(disk, tmp_path, 5, a, b)
    (tmp_path / f"{9:020d}-{3:010d}.checkpoint.part").write_bytes(b"half")
    (tmp_path / f"{3:020d}.log").write_bytes(batch(3, topic("old", 9), topic("older", 8)) + batch(5, c))
    (tmp_path / f"{6:020d}.log").write_bytes(batch(6, RemoveTopicRecord(topic_id=a.topic_id)) + batch(7, a)[:-1])
    before = sorted(tmp_path.iterdir())
    image = read_image(disk, str(tmp_path))
    assert (sorted(image.topics), image.offset, image.epoch) == (["b", "c"], 6, EPOCH)
    assert sorted(tmp_path.iterdir()) == before


def test_without_a_snapshot_the_log_is_all_and_without_either_there_is_nothing(disk: RealDisk, tmp_path: Path) -> None:
    assert read_image(disk, str(tmp_path)).offset == -1
    (tmp_path / f"{0:020d}.log").write_bytes(batch(0, topic("a", 1)))
    assert list(read_image(disk, str(tmp_path)).topics) == ["a"]


def test_behind_a_hole_or_damage_nothing_is_read(disk: RealDisk, tmp_path: Path) -> None:
    damaged = bytearray(batch(1, topic("b", 2)))
    damaged[-1] ^= 1
    for second in (batch(2, topic("b", 2)), bytes(damaged) + batch(2, topic("c", 3))):
        (tmp_path / f"{0:020d}.log").write_bytes(batch(0, topic("a", 1)) + second)
        assert list(read_image(disk, str(tmp_path)).topics) == ["a"]


def test_a_damaged_snapshot_is_an_error(disk: RealDisk, tmp_path: Path) -> None:
    write_snapshot(disk, tmp_path, 2, topic("a", 1))
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptMetadataSnapshot):
        read_image(disk, str(tmp_path))
