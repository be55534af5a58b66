"""A leader cleans its partition's segments in the tier."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.cleaning.priority import URGENT_AFTER
from milena.tiered.metadata.metadata_manager import RemoteLogMetadataError
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentState, RemoteLogSegmentUpdate
from milena.tiered.store.remote_storage import (
    IndexType,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tests.unit.tiered.cleaned_tier import HOUR_MS, CleanedTier, keyed, on_tier
from tests.unit.tiered.segments import offsets, update


def test_of_each_key_the_last_record_stays_with_its_offset() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("a", "2"), ("c", "1")))
        tier.segment(*keyed(("c", "2"), ("d", "1")))
        await tier.copy()
        before = {one.id for one in tier.served()}
        await tier.clean()
        assert await tier.offsets() == [1, 2, 4, 5]
        assert tier.ranges()[0][0] == 0 and tier.ranges()[-1][1] == 5
        replacement = tier.served()[0]
        assert replacement.cleaned == ((0, 6),) and set(replacement.replaces) <= before
        assert tier.cleaned_to() == (0, 6)
        assert not tier.bench.runtime.disk.exists(f"{tier.log.folder}/remote-log-cleaning")

    on_tier(scenario)


def test_what_loses_nothing_is_not_copied_again_and_the_next_pass_begins_behind_it() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("c", "1"), ("d", "1")))
        await tier.copy()
        stored = tier.bench.stored()
        await tier.clean()
        assert (tier.bench.stored(), tier.cleaned_to()) == (stored, (0, 4))
        published = len(tier.bench.metadata.published)
        await tier.clean()
        assert len(tier.bench.metadata.published) == published, "nothing is dirty"

    on_tier(scenario)


def test_the_replacement_has_indexes_epochs_and_the_producers_of_its_end() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.lead_again(3)
        tier.batch(*keyed(("a", "2")), producer=(7, 0, 0))
        tier.log.roll()
        await tier.copy()
        last, store = tier.served()[-1], tier.bench.store
        before = {
            kind: await store.fetch_index(last, kind) for kind in (IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH)
        }
        await tier.clean()
        (new,) = tier.served()
        assert (new.epochs, new.leader_epoch) == (((0, 0), (3, 2)), LeaderEpoch(3))
        assert {kind: await store.fetch_index(new, kind) for kind in before} == before
        await store.fetch_index(new, IndexType.OFFSET)
        await store.fetch_index(new, IndexType.TIMESTAMP)
        assert [batch.leader_epoch for batch in await tier.batches()] == [0, 0, 3], "an empty one for the first epoch"

    on_tier(scenario)


SOURCE_RETENTION = "remote.log.compaction.source.retention.ms"


def test_what_was_replaced_is_deleted_after_a_delay() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.bench.keys[SOURCE_RETENTION] = 60_000
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("a", "2"), ("b", "2")))
        await tier.copy()
        await tier.clean()
        assert tier.listed() == [(0, 1, "COPY"), (0, 3, "COPY"), (2, 3, "COPY")]
        await tier.expire()
        await tier.wait(59)
        await tier.expire()
        assert len(tier.listed()) == 3
        await tier.wait(2)
        await tier.expire()
        assert (tier.listed(), tier.bench.stored()) == ([(0, 3, "COPY")], [0])
        assert await tier.offsets() == [2, 3] and tier.log.log_start_offset == 0

    on_tier(scenario)


def test_a_replacement_that_appears_beside_that_of_the_next_pass_is_deleted_too() -> None:
    """The end of its copy was written, and read only after the next pass. Nothing replaces it, and it is not read."""

    async def scenario(tier: CleanedTier) -> None:
        for number in range(4):
            tier.segment(*keyed(("a", f"{number}"), (f"only {number}", "x")))
        await tier.copy()
        update = tier.bench.metadata.update
        late: list[RemoteLogSegmentUpdate] = []

        async def updating(event: RemoteLogSegmentUpdate) -> None:
            if not late and event.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                late.append(event)
                raise RemoteLogMetadataError("no answer in time")
            await update(event)

        tier.bench.metadata.update = updating  # type: ignore[method-assign, assignment]
        with pytest.raises(RemoteLogMetadataError):
            await tier.clean()
        tier.segment(*keyed(("a", "last"), ("only 1", "y")))
        await tier.copy()
        await tier.wait(60)
        await tier.clean()
        await update(late[0])
        assert tier.listed().count((0, 3, "COPY")) == 2
        await tier.expire()
        await tier.wait(59)
        await tier.expire()
        assert tier.listed().count((0, 3, "COPY")) == 2
        await tier.wait(2)
        await tier.expire()
        assert [one[:2] for one in tier.listed()] == tier.ranges() == [(0, 3), (4, 7), (8, 9)]
        assert tier.bench.stored() == [0, 4, 8] and await tier.offsets() == [1, 5, 7, 8, 9]

    on_tier(scenario)


def test_the_delay_goes_on_under_other_leaders() -> None:
    """None of them leads for as long as the delay; else replaced segments would pile up for ever."""

    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1")))
        tier.segment(*keyed(("a", "2")))
        await tier.copy()
        await tier.clean()
        for epoch in range(1, 6):
            await tier.expire()
            assert len(tier.listed()) == 3
            await tier.wait(11)
            tier.lead_again(epoch)
        await tier.wait(6)
        await tier.expire()
        assert len(tier.listed()) == 1

    on_tier(scenario)


def test_what_was_replaced_does_not_count_for_retention_bytes() -> None:
    """Else twice as much would be deleted."""

    async def scenario(tier: CleanedTier) -> None:
        for number in range(6):
            tier.segment(*keyed(("a", str(number)), (f"only {number}", "x")))
        await tier.copy()
        await tier.clean()
        kept = sum(one.size for one in tier.served())
        assert kept < sum(one.size for one in tier.cache.segments())
        tier.log.config = replace(tier.log.config, retention_bytes=kept)
        await tier.expire()
        assert tier.log.log_start_offset == 0

    on_tier(scenario, cleanup_policy=("compact", "delete"))


def test_a_transaction_that_ends_later_than_the_tier_ends_the_window() -> None:
    """It may be aborted, and then what its records have replaced would be lost."""

    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1"), ("b", "2")))
        tier.batch(*keyed(("a", "aborted")), producer=(7, 0, 0), transactional=True)
        tier.log.roll()
        tier.end((7, 0), commit=False)
        await tier.copy()
        assert tier.ranges() == [(0, 2), (3, 3)]
        await tier.clean()
        assert (await tier.offsets(), tier.cleaned_to()) == ([0, 2, 3], (0, 3))
        tier.log.roll()
        await tier.copy()
        await tier.clean()
        assert (await tier.offsets(), tier.cleaned_to()) == ([0, 2], (0, 5))

    on_tier(scenario)


def test_aborted_records_replace_nothing_and_go() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.batch(*keyed(("a", "aborted")), producer=(7, 0, 0), transactional=True)
        tier.log.roll()
        tier.end((7, 0), commit=False)
        tier.batch(*keyed(("b", "2")), producer=(8, 0, 0), transactional=True)
        tier.end((8, 0), commit=True)
        tier.log.roll()
        await tier.copy()
        await tier.clean()
        assert await tier.offsets() == [0, 4]

    on_tier(scenario)


def test_a_segment_that_has_lost_its_index_of_aborted_transactions_is_not_cleaned() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.batch(*keyed(("a", "aborted")), producer=(7, 0, 0), transactional=True)
        tier.end((7, 0), commit=False)
        tier.segment(*keyed(("b", "1"), ("b", "2")))
        await tier.copy()
        (path,) = [name for name in tier.bench.world.tier.files if name.endswith(".txnindex")]
        tier.bench.runtime.tier_disk.remove(path)
        with pytest.raises(RemoteResourceNotFound):
            await tier.clean()
        assert tier.cleaned_to() is None and len(await tier.offsets()) == 3

    on_tier(scenario)


def test_tombstones_stay_as_long_as_readers_may_find_locally_what_they_have_deleted() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("a", None), ("c", "1")))
        tier.segment(*keyed(("c", "2"), ("d", "1")))
        await tier.copy()
        await tier.clean()
        await tier.wait(2 * HOUR_MS / 1000)
        tier.segment(*keyed(("c", "3"), ("d", "2")))
        await tier.copy()
        await tier.clean()
        assert 2 in await tier.offsets(), "no horizon was set"
        tier.log.delete_old_segments(tier.bench.runtime.clock.time_ms())
        assert tier.log.local_log_start_offset == 8
        for number in range(3):
            assert 2 in await tier.offsets()
            tier.segment(*keyed(("c", f"{number}"), ("d", "3")))
            await tier.copy()
            await tier.clean()
            await tier.wait(HOUR_MS / 2000)
        assert 2 not in await tier.offsets()

    on_tier(scenario, delete_retention_ms=HOUR_MS, local_retention_bytes=0, segment_bytes=1000)


def test_a_pass_is_due_by_the_dirty_share_and_by_the_age_of_its_records() -> None:
    async def scenario(tier: CleanedTier) -> None:
        for number in range(4):
            tier.segment(*keyed(("a", f"{number}")))
        await tier.copy()
        await tier.clean()
        assert tier.cleaned_to() is None, "too young"
        await tier.wait(60)
        await tier.clean()
        assert tier.cleaned_to() == (0, 4)
        tier.segment(*keyed(("b", "1" * 10)))
        await tier.copy()
        tier.log.config = replace(tier.log.config, min_cleanable_dirty_ratio=0.9)
        await tier.wait(60)
        await tier.clean()
        assert tier.cleaned_to() == (0, 4), "too few"
        tier.log.config = replace(tier.log.config, max_compaction_lag_ms=HOUR_MS)
        await tier.wait(HOUR_MS / 1000)
        await tier.clean()
        assert tier.cleaned_to() == (0, 5)

    on_tier(scenario, min_compaction_lag_ms=50_000)


def test_the_time_for_which_a_partition_was_due_ends_when_it_is_not_compacted_any_more() -> None:
    async def scenario(tier: CleanedTier) -> None:
        for number in range(4):
            tier.segment(*keyed(("a", f"{number}")))
        await tier.copy()
        with suppress(RemoteStorageError), tier.role.attempts.attempt(HOUR_MS / 1000):
            raise RemoteStorageError("no attempt in the next hour, so that it stays due")
        await tier.clean()
        await tier.wait(URGENT_AFTER + 1)
        await tier.clean()
        assert tier.role.needs_cleaning_urgently
        config = tier.log.config
        tier.log.config = replace(config, cleanup_policy=("delete",))
        await tier.clean()
        tier.log.config = config
        await tier.clean()
        assert not tier.role.needs_cleaning_urgently

    on_tier(scenario)


def test_records_that_were_deleted_are_not_cleaned_any_more() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("c", "1"), ("c", "2")))
        tier.segment(*keyed(("c", "3"), ("b", "2")))
        await tier.copy()
        tier.log.increment_log_start(Offset(3))
        await tier.clean()
        assert [one.start_offset for one in tier.served()] == [2]
        assert await tier.offsets() == [4, 5]

    on_tier(scenario)


def test_a_copy_of_another_lineage_is_cleaned_as_far_as_it_serves_and_stays() -> None:
    """The end of the log was cut off by an unclean election."""

    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("a", "2")))
        tier.segment(*keyed(("b", "1"), ("b", "2"), ("b", "lost")))
        await tier.copy()
        await tier.clean()
        assert (await tier.offsets(), tier.cleaned_to()) == ([1, 4], (0, 5))
        tier.log.truncate_to(Offset(4))
        tier.lead_again(1)
        tier.segment(*keyed(("c", "1"), ("c", "2")))
        await tier.copy()
        await tier.clean()
        assert tier.cleaned_to() == (1, 6)
        assert tier.ranges()[-1] == (4, 5) or tier.ranges()[-1][1] == 5
        offsets = await tier.offsets()
        assert offsets == [1, 5], "b was cleaned in favour of what the lineage has lost"

    on_tier(scenario)


def test_what_an_unclean_election_has_cut_off_does_not_make_the_log_dirty_for_ever() -> None:
    """Its segments stay in the tier, with an epoch that the log does not have."""

    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("a", "2")))
        tier.lead_again(1)
        tier.segment(*keyed(("b", "1"), ("b", "lost")))
        await tier.copy()
        await tier.clean()
        assert tier.cleaned_to() == (1, 4)
        tier.log.truncate_to(Offset(2))
        tier.lead_again(2)
        tier.segment(*keyed(("c", "1"), ("c", "2")))
        await tier.copy()
        await tier.clean()
        assert (tier.cleaned_to(), await tier.offsets()) == ((2, 4), [1, 3])
        await tier.clean()
        done = tier.bench.events.named("log cleaned in the tier")
        assert [(one["dirty_from"], one["cleaned_to"]) for one in done] == [(0, 4), (2, 4)]
        tier.segment(*keyed(("c", "3"), ("d", "1")))
        await tier.copy()
        await tier.clean()
        assert tier.bench.events.named("log cleaned in the tier")[-1]["dirty_from"] == 4

    on_tier(scenario)


def test_what_a_former_leader_has_marked_is_deleted_wherever_it_lies() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("x", "1"), ("y", "1" * 300)))
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("a", "2"), ("b", "2")))
        await tier.copy()
        await tier.clean()
        await tier.expire()
        await tier.wait(61)
        tier.bench.store.deleting = failing
        with pytest.raises(RetriableRemoteStorageError):
            await tier.expire()
        assert [one[2] for one in tier.listed()].count("DELETE") == 1
        tier.bench.store.deleting = lambda: None
        tier.lead_again(1)
        await tier.expire()
        assert [one[2] for one in tier.listed()].count("DELETE") == 0

    on_tier(scenario)


def failing() -> None:
    raise RetriableRemoteStorageError("away")


def test_a_former_leaders_cleaning_that_is_rejected_is_deleted() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("a", "2"), ("b", "2")))
        await tier.copy()
        tier.lead_again(1)
        await tier.clean()
        (new,) = tier.served()
        stale = replace(
            new,
            segment_id=replace(new.segment_id, id=UUID(int=99)),
            cleaned=offsets({0: 4}),
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            leader_epoch=UNFENCED,
        )
        await tier.bench.metadata.add(stale)
        await tier.bench.metadata.update(update(stale, RemoteLogSegmentState.COPY_SEGMENT_FINISHED))
        await tier.expire()
        await tier.wait(61)
        await tier.expire()
        assert [one.id for one in tier.cache.segments()] == [new.id] and await tier.offsets() == [2, 3]

    on_tier(scenario)


def test_passes_are_slowed_down_together_with_the_cleanings_of_local_logs() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("a", "2"), ("b", "2")))
        await tier.copy()
        clock = tier.bench.runtime.clock
        tier.bench.tier.cleaning.change(10)
        local = tier.bench.tier.cleaning.delay(1000)
        began = clock.monotonic()
        await tier.clean()
        read = 2 * sum(one.size for one in tier.cache.segments() if not one.cleaned)
        assert clock.monotonic() - began >= local + read / 10

    on_tier(scenario)
