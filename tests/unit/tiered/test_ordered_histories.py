"""Any history of writes, transactions, copies, deletions and changes of leader, in which somebody else cleans and
perhaps lies, against an oracle that is a list of records: in the tier, the last committed value of each key is found at
its offset, and nothing that was never written. (``cleaned_histories`` has the history and the oracle.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from milena.tiered.orders.order import Order
from tests.fixtures.properties import examples
from tests.unit.tiered.cleaned_histories import EPISODE, Clean, History, Step
from tests.unit.tiered.cleaned_tier import HOUR_MS
from tests.unit.tiered.ordered_tier import OrderedTier, on_ordered_tier


@dataclass
class Ordered(History):
    """A cleaning is by order; ``lies`` are drawn for it: each shifts the winner of a record."""

    lies: Sequence[tuple[int, int]] = ()
    told: int = 0
    """Results in which a lie was told."""
    made: int = 0

    async def take(self, step: Step) -> None:
        if not isinstance(step, Clean):
            await super().take(step)
            return
        tier = self.tier
        assert isinstance(tier, OrderedTier)
        await tier.wait(step.wait_ms / 1000)
        await tier.clean()
        for order in await tier.worker.orders():
            await self._carry_out(tier, order, lying=step.memory % 2 == 0)
        await tier.clean()
        assert len(tier.refusals()) <= self.told, tier.refusals()

    async def _carry_out(self, tier: OrderedTier, order: Order, *, lying: bool) -> None:
        tier.worker.lies = {}
        if lying:
            span = order.end - order.first
            tier.worker.lies = {order.first + at % span: order.first + to % span for at, to in self.lies}
        self.told += bool(tier.worker.lies)
        await tier.worker.carry_out(order)
        self.made += 1


def play(steps: Sequence[Step], lies: Sequence[tuple[int, int]], seed: int) -> None:
    async def scenario(tier: OrderedTier) -> None:
        history = Ordered(tier, lies=lies)
        for step in steps:
            await history.take(step)
            await history.check()
            assert tier.role.uncleanable is None
        assert all(one[1] >= other[0] - 1 for one, other in pairwise(tier.ranges())), "a gap"

    on_ordered_tier(scenario, seed=seed, delete_retention_ms=HOUR_MS, local_retention_bytes=0, segment_bytes=300)


LIES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=2)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(EPISODE, min_size=3, max_size=8), LIES, st.integers(0, 100))
def test_the_last_committed_value_of_each_key_survives_whatever_the_worker_tells(
    episodes: list[list[Step]], lies: list[tuple[int, int]], seed: int
) -> None:
    play([step for episode in episodes for step in episode], lies, seed)
