"""The description of a remote segment, which every adapter stores outside of the folder of LocalTieredStorage: it is
written and deleted with its segment."""

from __future__ import annotations

from dataclasses import replace

from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import INCOMPLETE_AGE_MS
from tests.contract.tiers import CONTENTS, HOME, PARTITION, Tier, later, object_path, on_all_tiers, segment

TEXT = b"what was announced"


def path(metadata: RemoteLogSegmentMetadata) -> str:
    return object_path(metadata, ".metadata").replace("kafka-tiered-storage/", "milena-segments/")


async def stored_description(tier: Tier, metadata: RemoteLogSegmentMetadata) -> bytes | None:
    return await tier.storage.description(metadata.segment_id, metadata.start_offset)


@on_all_tiers
async def test_a_description_is_written_and_deleted_with_its_segment(tier: Tier) -> None:
    await tier.storage.copy(segment(7), replace(tier.files(), description=TEXT))
    await tier.storage.copy(segment(8), tier.files())
    assert (await stored_description(tier, segment(7)), await stored_description(tier, segment(8))) == (TEXT, None)
    files = tier.objects()
    assert files.pop(path(segment(7))) == TEXT
    assert set(files) == {object_path(segment(number), suffix) for number in (7, 8) for suffix in CONTENTS}
    assert all(name.startswith(HOME) for name in files)
    assert await tier.storage.foreign() == []
    await tier.storage.copy(segment(7), replace(tier.files(), description=TEXT))
    for number in (7, 8, 7):
        await tier.storage.delete(segment(number))
    assert tier.objects() == {}
    assert await stored_description(tier, segment(7)) is None


@on_all_tiers
async def test_a_repeated_deletion_removes_what_an_interrupted_one_left(tier: Tier) -> None:
    tier.door.write(object_path(segment(8), ".log"), b"another")
    await tier.storage.delete(segment(8))
    tier.door.write(path(segment(7)), TEXT)
    await tier.storage.delete(segment(7))
    assert tier.objects() == {}


@on_all_tiers
async def test_an_old_description_without_a_segment_is_swept(tier: Tier) -> None:
    await tier.storage.copy(segment(7), replace(tier.files(), description=TEXT))
    tier.door.write(path(segment(8)), TEXT)
    tier.door.write(path(segment(9)), TEXT)
    assert await tier.storage.sweep_incomplete(PARTITION, ()) == []
    storage = tier.again(later(tier.it.runtime, INCOMPLETE_AGE_MS + 60_000))
    swept = await storage.sweep_incomplete(PARTITION, {segment(9).id})
    assert swept == [segment(8).segment_id]
    assert await stored_description(tier, segment(7)) == TEXT
    assert path(segment(8)) not in tier.objects() and path(segment(9)) in tier.objects()
