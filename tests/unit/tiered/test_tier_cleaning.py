"""A leader cleans its partition's segments in the tier."""

from __future__ import annotations

from dataclasses import replace

from milena.protocol.types import LeaderEpoch
from milena.tiered.store.remote_storage import IndexType
from tests.unit.tiered.cleaned_tier import CleanedTier, keyed, on_tier


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
        assert tier.cache.cleaned_to == (0, 6)
        assert not tier.bench.runtime.disk.exists(f"{tier.log.folder}/remote-log-cleaning")

    on_tier(scenario)


def test_what_loses_nothing_is_not_copied_again_and_the_next_pass_begins_behind_it() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.segment(*keyed(("c", "1"), ("d", "1")))
        await tier.copy()
        stored = tier.bench.stored()
        await tier.clean()
        assert (tier.bench.stored(), tier.cache.cleaned_to) == (stored, (0, 4))
        published = len(tier.bench.metadata.published)
        await tier.clean()
        assert len(tier.bench.metadata.published) == published, "nothing is dirty"

    on_tier(scenario)


def test_the_replacement_has_indexes_epochs_and_the_producers_of_its_end() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1"), ("b", "1")))
        tier.lead_anew(3)
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


def test_a_new_leader_counts_the_delay_anew() -> None:
    async def scenario(tier: CleanedTier) -> None:
        tier.segment(*keyed(("a", "1")))
        tier.segment(*keyed(("a", "2")))
        await tier.copy()
        await tier.clean()
        await tier.expire()
        await tier.wait(50)
        tier.lead_anew(1)
        await tier.expire()
        await tier.wait(50)
        await tier.expire()
        assert len(tier.listed()) == 3
        await tier.wait(11)
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
