"""The contract of remote storage: what every adapter does with whole, missing, cut, foreign and unwritable objects."""

from __future__ import annotations

import asyncio
import errno
from uuid import UUID

import pytest

from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata
from milena.tiered.store.remote_storage import (
    INCOMPLETE_AGE_MS,
    IndexType,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
    TruncatedObject,
)
from tests.contract.tiers import (
    CONTENTS,
    HOME,
    LOG,
    PARTITION,
    Tier,
    folder,
    later,
    object_path,
    on,
    on_all_tiers,
    on_file_systems,
    on_tiers_that_can_fail,
    segment,
    simulated_folder,
)

WRITES_OF_A_COPY = 5
"""How many writing steps of a copy the tests let fail, one after the other."""


async def contents(tier: Tier, metadata: RemoteLogSegmentMetadata, start: int = 0, end: int | None = None) -> bytes:
    return await (await tier.storage.fetch(metadata, start, end)).read()


@on_all_tiers
async def test_a_copied_segment_and_its_indexes_can_be_fetched(tier: Tier) -> None:
    assert await tier.storage.copy(segment(7), tier.files()) is None
    assert await contents(tier, segment(7)) == LOG
    for index in IndexType:
        assert await tier.storage.fetch_index(segment(7), index) == CONTENTS[index.value]


@on_all_tiers
async def test_objects_have_the_names_and_contents_of_local_tiered_storage(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    await tier.storage.copy(segment(8, 1100), tier.files(txn=False))
    expected = {object_path(segment(7), suffix): data for suffix, data in CONTENTS.items()}
    expected |= {
        object_path(segment(8, 1100), suffix): CONTENTS[suffix] for suffix in CONTENTS if suffix != ".txnindex"
    }
    assert tier.objects() == expected
    assert f"{HOME}/00000000000000001000-AAAAAAAAAAAAAAAAAAAABw.leader_epoch_checkpoint" in expected


@on_all_tiers
async def test_a_copy_may_be_repeated(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    before = tier.objects()
    await tier.storage.copy(segment(7), tier.files())
    assert tier.objects() == before


@on_all_tiers
async def test_any_range_can_be_fetched(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    for start, end in ((0, 0), (5, 5), (990, 1010), (999, 4001), (10, None), (len(LOG) - 1, None), (0, len(LOG) - 1)):
        found = await tier.storage.fetch(segment(7), start, end)
        expected = LOG[start:] if end is None else LOG[start : end + 1]
        assert (found.position, found.length, await found.read()) == (start, len(expected), expected)


@on_all_tiers
async def test_a_fetch_past_the_end_returns_the_bytes_up_to_the_end(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    assert await contents(tier, segment(7), len(LOG) - 3, len(LOG) + 10_000) == LOG[-3:]
    for start in (len(LOG), len(LOG) + 5):
        found = await tier.storage.fetch(segment(7), start)
        assert (found.position, found.length, found.file, await found.read()) == (start, 0, None, b"")


@on_all_tiers
async def test_an_impossible_range_raises_a_value_error(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    for start, end in ((-1, 4), (5, 3)):
        with pytest.raises(ValueError, match="range"):
            await tier.storage.fetch(segment(7), start, end)


@on(folder, simulated_folder)
async def test_a_fetched_range_of_a_file_can_be_read_after_the_object_is_deleted(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    found = await tier.storage.fetch(segment(7), 100, 299)
    assert found.file is not None
    assert (found.file.position, found.file.length) == (100, 200)
    await tier.storage.delete(segment(7))
    assert found.file.handle.pread(200, 100) == await found.read() == LOG[100:300]


@on_all_tiers
async def test_fetching_a_missing_object_raises_remote_resource_not_found(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files(txn=False))
    with pytest.raises(RemoteResourceNotFound):
        await contents(tier, segment(8))
    for index in IndexType:
        with pytest.raises(RemoteResourceNotFound):
            await tier.storage.fetch_index(segment(8), index)
    with pytest.raises(RemoteResourceNotFound):
        await tier.storage.fetch_index(segment(7), IndexType.TRANSACTION)


@on_all_tiers
async def test_deleting_a_segment_is_idempotent(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    await tier.storage.copy(segment(8), tier.files())
    assert await contents(tier, segment(7)) == LOG
    for _ in range(2):
        await tier.storage.delete(segment(7))
        with pytest.raises(RemoteResourceNotFound):
            await contents(tier, segment(7))
    await tier.storage.delete(segment(99))
    assert await contents(tier, segment(8)) == LOG
    assert set(tier.objects()) == {object_path(segment(8), suffix) for suffix in CONTENTS}


@on_file_systems
async def test_the_folder_of_a_partition_is_removed_with_its_last_segment_and_created_again(
    tier: Tier,
) -> None:
    for _ in range(2):
        for number in (7, 8):
            await tier.storage.copy(segment(number), tier.files())
        await tier.storage.delete(segment(7))
        assert await contents(tier, segment(8)) == LOG
        await tier.storage.delete(segment(8))
        assert not tier.door.has_folder(HOME)
        assert await tier.storage.segments() == await tier.storage.segments(PARTITION) == []
    tier.door.write(f"{HOME}/others", b"kept")
    await tier.storage.delete(segment(7))
    assert tier.objects() == {f"{HOME}/others": b"kept"}


@on_file_systems
async def test_a_copy_succeeds_though_its_empty_folder_is_removed_meanwhile(tier: Tier) -> None:
    tier.door.vanishing(HOME, times=3)
    await tier.storage.copy(segment(7), tier.files())
    assert await contents(tier, segment(7)) == LOG
    assert set(tier.objects()) == {object_path(segment(7), suffix) for suffix in CONTENTS}


@on_all_tiers
async def test_segments_are_listed_in_order_with_their_sizes(tier: Tier) -> None:
    assert await tier.storage.segments() == await tier.storage.segments(PARTITION) == []
    await tier.storage.copy(segment(7, 1100), tier.files())
    await tier.storage.copy(segment(9, 1000), tier.files(txn=False))
    found = await tier.storage.segments()
    assert found == await tier.storage.segments(PARTITION)
    assert [(one.start_offset, one.segment_id, one.complete) for one in found] == [
        (1000, segment(9).segment_id, True),
        (1100, segment(7).segment_id, True),
    ]
    assert found[1].objects == {suffix: len(data) for suffix, data in CONTENTS.items()}
    assert abs(found[0].modified_ms - tier.it.runtime.clock.time_ms()) < 60_000


@on_all_tiers
async def test_a_copy_whose_local_files_are_missing_leaves_no_objects(tier: Tier) -> None:
    for suffix in CONTENTS:
        if suffix != ".leader_epoch_checkpoint":
            with pytest.raises(RemoteStorageError) as raised:
                await tier.storage.copy(segment(7), tier.files(without=suffix))
            assert type(raised.value) is RemoteStorageError
    assert tier.objects() == {}


@on_all_tiers
async def test_a_log_whose_size_differs_from_its_metadata_is_not_copied(tier: Tier) -> None:
    for log in (LOG + b"more", LOG[:-1]):
        with pytest.raises(RemoteStorageError, match=str(len(LOG))):
            await tier.storage.copy(segment(7), tier.files(log=log))
    assert tier.objects() == {}


@on_tiers_that_can_fail
async def test_a_full_tier_raises_a_retriable_error_and_a_failed_copy_leaves_no_objects(tier: Tier) -> None:
    for step in range(WRITES_OF_A_COPY - 1):
        tier.door.fail(errno.ENOSPC, after=step)
        with pytest.raises(RetriableRemoteStorageError):
            await tier.storage.copy(segment(7), tier.files())
        tier.door.fail(0, after=0)
        assert not [found for found in await tier.storage.segments() if found.complete]
        await tier.storage.delete(segment(7))
        await tier.storage.sweep_incomplete(PARTITION, ())
        assert tier.objects() == {}
    await tier.storage.copy(segment(7), tier.files())
    assert await contents(tier, segment(7)) == LOG


@on_tiers_that_can_fail
async def test_a_read_only_tier_refuses_writes_with_a_non_retriable_error_and_can_be_read(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    before = tier.objects()
    tier.door.fail(errno.EROFS, after=0)
    for refused in (tier.storage.copy(segment(8), tier.files()), tier.storage.delete(segment(7))):
        with pytest.raises(RemoteStorageError) as raised:
            await refused
        assert type(raised.value) is RemoteStorageError
    assert await contents(tier, segment(7)) == LOG
    assert tier.objects() == before


@on_file_systems
async def test_while_the_folder_of_the_tier_is_away_every_call_raises_a_retriable_error(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    tier.door.remove("kafka-tiered-storage")
    for refused in (
        tier.storage.copy(segment(8), tier.files()),
        contents(tier, segment(7)),
        tier.storage.fetch_index(segment(7), IndexType.TRANSACTION),
        tier.storage.delete(segment(7)),
    ):
        with pytest.raises(RetriableRemoteStorageError):
            await refused
    await tier.storage.start()
    await tier.storage.copy(segment(8), tier.files())
    assert await contents(tier, segment(8)) == LOG


@on_all_tiers
async def test_fetching_a_truncated_object_beyond_its_end_raises_an_error(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    tier.door.write(object_path(segment(7), ".log"), LOG[:-1500])
    with pytest.raises(TruncatedObject) as raised:
        await contents(tier, segment(7))
    assert raised.value.size == len(LOG) - 1500
    assert await contents(tier, segment(7), 100, 199) == LOG[100:200]


@on_all_tiers
async def test_work_orders_of_earlier_versions_are_removed_once(tier: Tier) -> None:
    await tier.storage.copy(segment(7), tier.files())
    before = tier.objects()
    assert not await tier.storage.remove_work_orders()
    for name in ("order.json", "group-0.log"):
        tier.door.write(f"milena-work/t-0-CW5A9SKRS_WxyxtSqNbcrQ/7-AAAAAAAAAAAAAAAAAAAABw/{name}", b"{}")
    assert await tier.storage.remove_work_orders()
    assert tier.objects() == before
    assert not await tier.storage.remove_work_orders()


@on_all_tiers
async def test_foreign_files_are_reported_and_never_removed(tier: Tier) -> None:
    foreign = {
        "kafka-tiered-storage/README.txt": b"a file beside the partitions",
        "kafka-tiered-storage/no partition/file.log": b"a folder that is no partition's",
        f"{HOME}/notes.log": b"a file that is no segment's",
        f"{HOME}/00000000000000001000-AAAAAAAAAAAAAAAAAAAABw.log.tmp": b"a suffix of another kind",
        f"{HOME}/00000000000000001000-too-short.log": b"no id",
    }
    await tier.storage.copy(segment(7), tier.files())
    for path, data in foreign.items():
        tier.door.write(path, data)
    assert [found.segment_id for found in await tier.storage.segments()] == [segment(7).segment_id]
    reported = {*foreign, "kafka-tiered-storage/no partition"} - {"kafka-tiered-storage/no partition/file.log"}
    assert await tier.storage.foreign() == sorted(reported)
    aged = tier.again(later(tier.it.runtime, 2 * INCOMPLETE_AGE_MS))
    assert await aged.sweep_incomplete(PARTITION, ()) == []
    await aged.close()
    assert await contents(tier, segment(7)) == LOG
    await tier.storage.delete(segment(7))
    assert tier.objects() == foreign


@on_all_tiers
async def test_old_unknown_segments_without_a_log_are_removed_and_those_with_one_are_not(tier: Tier) -> None:
    """A copy writes the log last: a segment with a log and without another object was complete, and has lost it."""
    for number in (1, 2, 3):
        await tier.storage.copy(segment(number), tier.files())
    for number in (1, 2):
        tier.door.remove(object_path(segment(number), ".log"))
    tier.door.remove(object_path(segment(3), ".index"))
    assert await tier.storage.sweep_incomplete(PARTITION, ()) == []
    aged = tier.again(later(tier.it.runtime, INCOMPLETE_AGE_MS + 60_000))
    assert await aged.sweep_incomplete(PARTITION, {UUID(int=2)}) == [segment(1).segment_id]
    await aged.close()
    assert [found.segment_id.id.int for found in await tier.storage.segments()] == [2, 3]


@on(simulated_folder)
async def test_the_files_that_a_cancelled_copy_left_are_swept(tier: Tier) -> None:
    files = tier.files()
    left = 0
    for tenths in range(80):
        copy = asyncio.get_running_loop().create_task(tier.storage.copy(segment(7), files))
        await tier.it.runtime.clock.sleep(tenths / 10_000)
        copy.cancel()
        await asyncio.wait([copy])
        left += any(path.startswith("milena-copying") for path in tier.objects())
        await tier.storage.sweep_incomplete(PARTITION, ())
        assert set(tier.objects()) <= {object_path(segment(7), suffix) for suffix in CONTENTS}
        await tier.storage.delete(segment(7))
    assert left > 10


@on_all_tiers
async def test_the_files_that_a_dead_process_left_are_swept(tier: Tier) -> None:
    tier.door.write("milena-copying/1/AAAAAAAAAAAAAAAAAAAACA.5/log", b"half of a log")
    await tier.storage.sweep_incomplete(PARTITION, ())
    assert tier.objects() == {}
