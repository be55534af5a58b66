"""Local segments that are copied again, as they are, where the tier had been cleaned: their keys are dirty again."""

from __future__ import annotations

from milena.tiered.segments.cleaner_offsets import CleanedTo
from milena.tiered.segments.segment_metadata import RemoteLogSegmentUpdate
from tests.unit.tiered.cleaned_tier import CleanedTier, keyed, on_tier


async def cleaned(tier: CleanedTier) -> None:
    tier.segment(*keyed(("a", "1"), ("b", "1")))
    tier.segment(*keyed(("a", "2"), ("b", "2")))
    tier.segment(*keyed(("a", "3"), ("c", "1")))
    await tier.copy()
    await tier.clean()
    assert await tier.offsets() == [3, 4, 5]


def lose(tier: CleanedTier) -> None:
    """The tier's segments do not count as copies any more."""
    served = [one.id for one in tier.served()]
    tier.bench.tier.unreliable.add(tier.role.partition, served)


def test_what_is_copied_again_is_cleaned_again() -> None:
    async def scenario(tier: CleanedTier) -> None:
        await cleaned(tier)
        assert tier.cleaned_to() == CleanedTo(tier.role.leader_epoch, tier.log.log_end_offset)
        lose(tier)
        await tier.copy()
        assert tier.cleaned_to() == CleanedTo(tier.role.leader_epoch, tier.log.log_start_offset)
        await tier.clean()
        assert tier.cleaned_to() == CleanedTo(tier.role.leader_epoch, tier.log.log_end_offset)
        assert await tier.offsets() == [3, 4, 5]

    on_tier(scenario)


def test_a_pass_under_which_segments_are_copied_again_does_not_count() -> None:
    async def scenario(tier: CleanedTier) -> None:
        await cleaned(tier)
        done = tier.cleaned_to()
        tier.segment(*keyed(("c", "2"), ("d", "1")))
        tier.segment(*keyed(("d", "2"), ("e", "1")))
        await tier.copy()
        as_before = tier.bench.metadata.update
        again = 0

        async def once_more(update: RemoteLogSegmentUpdate) -> None:
            nonlocal again
            await as_before(update)
            if update.first_dirty is None and not again:
                again = tier.cache.copied_again + 1
                lose(tier)
                await tier.copy()
                tier.bench.tier.unreliable.forget(tier.role.partition)

        tier.bench.metadata.update = once_more  # type: ignore[method-assign]
        await tier.clean()
        assert again and tier.cache.copied_again >= again
        assert done is not None
        assert tier.cleaned_to() == done._replace(offset=tier.log.log_start_offset)

    on_tier(scenario)
