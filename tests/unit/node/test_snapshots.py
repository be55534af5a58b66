"""Snapshots keep an image, are found again, and are refused when they are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.node.metadata.image import Delta, MetadataImage
from milena.node.metadata.replay import apply
from milena.node.metadata.snapshots import (
    BATCH_BYTES,
    CorruptMetadataSnapshot,
    MetadataSnapshotId,
    SnapshotStore,
    image_batches,
    image_id,
    load_image,
    parse_file_name,
    read_records,
)
from milena.protocol import metadata_records as r
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.control_records import SnapshotFooter, SnapshotHeader
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.files import RealDisk
from tests.unit.node.every_record import EVERYTHING, entries


def some_image(records: list[r.MetadataRecord]) -> MetadataImage:
    image = MetadataImage(offset=Offset(41), epoch=LeaderEpoch(3), timestamp_ms=1234)
    for record in records:
        apply(image, Delta(), record)
    return image


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    store = SnapshotStore(RealDisk(), str(tmp_path / "__cluster_metadata-0"))
    store.open()
    return store


def test_names_have_twenty_and_ten_digits() -> None:
    snapshot = MetadataSnapshotId(Offset(42), LeaderEpoch(3))
    assert snapshot.file_name == "00000000000000000042-0000000003.checkpoint"
    assert parse_file_name(snapshot.file_name) == snapshot
    assert parse_file_name("00000000000000000042-0000000003.checkpoint.part") is None
    assert parse_file_name("bootstrap.checkpoint") is None


def test_an_image_is_written_and_read_back(store: SnapshotStore, tmp_path: Path) -> None:
    image = some_image(EVERYTHING)
    store.write(image_id(image), image_batches(image, now_ms=5000))
    again = SnapshotStore(RealDisk(), str(tmp_path / "__cluster_metadata-0"))
    again.open()
    assert again.ids == [MetadataSnapshotId(Offset(42), LeaderEpoch(3))]
    loaded = load_image(again, again.ids[0])
    assert entries(loaded) == entries(image)
    assert (loaded.offset, loaded.epoch, loaded.timestamp_ms) == (41, 3, 1234)


def test_a_snapshot_begins_with_its_header_ends_with_its_footer_and_counts_on() -> None:
    data = b"".join(image_batches(some_image(EVERYTHING), now_ms=5000))
    found = list(read_records(memoryview(data)))
    assert isinstance(found[0], SnapshotHeader) and isinstance(found[-1], SnapshotFooter)
    expected = 0
    for batch in iter_batches(memoryview(data)):
        assert (batch.base_offset, batch.leader_epoch) == (expected, 3)
        expected = batch.next_offset


def test_a_large_image_is_cut_into_batches() -> None:
    configs: list[r.MetadataRecord] = [
        r.ConfigRecord(resource_type=2, resource_name=f"t{number}", name="k", value="v" * 30_000)
        for number in range(100)
    ]
    batches = list(image_batches(some_image(configs), now_ms=1))
    assert len(batches) == 2 + 3
    assert max(map(len, batches)) <= BATCH_BYTES


@pytest.mark.parametrize("damage", ["cut", "footer", "bit", "tail"])
def test_a_damaged_snapshot_is_refused_by_name(store: SnapshotStore, damage: str) -> None:
    image = some_image(EVERYTHING)
    batches = list(image_batches(image, now_ms=5000))
    data = bytearray(b"".join(batches))
    match damage:
        case "cut":
            del data[-1]
        case "footer":
            del data[-len(batches[-1]) :]
        case "bit":
            data[len(batches[0]) + 90] ^= 1
        case _:
            data += bytes(5)
    store.write(image_id(image), [bytes(data)])
    with pytest.raises(CorruptMetadataSnapshot, match="00000000000000000042-0000000003"):
        load_image(store, image_id(image))


def test_an_unfinished_snapshot_is_removed_at_the_next_start(store: SnapshotStore, tmp_path: Path) -> None:
    partial = store.create(MetadataSnapshotId(Offset(7), LeaderEpoch(1)))
    partial.append(b"half")
    assert partial.size == 4
    store.open()
    assert store.ids == [] and list((tmp_path / "__cluster_metadata-0").iterdir()) == []


def test_old_snapshots_are_deleted_before_a_given_one(store: SnapshotStore) -> None:
    ids = [MetadataSnapshotId(Offset(offset), LeaderEpoch(1)) for offset in (30, 10, 20)]
    for snapshot in ids:
        store.write(snapshot, [b"x"])
    assert (store.earliest(), store.latest()) == (ids[1], ids[0])
    assert store.read_at(ids[0], 0, 10) == b"x" and store.size(ids[0]) == 1
    store.delete_before(ids[2])
    assert store.ids == [ids[2], ids[0]] and ids[1] not in store
