"""A leader cleans its partition's segments in the tier."""

from __future__ import annotations

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
