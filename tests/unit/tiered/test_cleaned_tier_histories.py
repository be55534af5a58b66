"""Any history of writes, transactions, copies, cleanings, deletions and changes of leader, against an oracle that is a
list of records: in the tier, the last committed value of each key is found at its offset, and nothing that was never
written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.properties import examples
from tests.unit.tiered.cleaned_histories import EPISODE, History, Step
from tests.unit.tiered.cleaned_tier import HOUR_MS, CleanedTier, on_tier


def play(steps: Sequence[Step], seed: int) -> None:
    async def scenario(tier: CleanedTier) -> None:
        history = History(tier)
        for step in steps:
            await history.take(step)
            await history.check()
            assert tier.role.uncleanable is None
        assert all(one[1] >= other[0] - 1 for one, other in pairwise(tier.ranges())), "a gap"

    on_tier(scenario, seed=seed, delete_retention_ms=HOUR_MS, local_retention_bytes=0, segment_bytes=300)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(EPISODE, min_size=4, max_size=12), st.integers(0, 100))
def test_the_last_committed_value_of_each_key_survives_and_offsets_stay(episodes: list[list[Step]], seed: int) -> None:
    play([step for episode in episodes for step in episode], seed)
