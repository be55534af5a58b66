"""A compacted log in the tier whose leader issues work orders, and somebody who carries them out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from milena.tiered.orders.order import Order
from milena.tiered.store.staging import WORK
from milena.tiered.work.ordered_pass import TIMEOUT
from milena.tiered.work.work_orders import ENABLE
from tests.fixtures.order_worker import OrderWorker
from tests.unit.tiered.cleaned_tier import CleanedTier
from tests.unit.tiered.tiered_log import TIER, Bench, on_bench

TIMEOUT_S = 600


class OrderedTier(CleanedTier):
    """``worker`` is whoever carries out the orders."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        bench.keys[ENABLE] = True
        bench.keys[TIMEOUT] = TIMEOUT_S * 1000
        assert bench.tier.staging is not None
        self.worker = OrderWorker(bench.runtime.disk, bench.store, bench.tier.staging)

    async def issued(self) -> Order:
        """The order of a round that issues one."""
        await self.clean()
        (order,) = await self.worker.orders()
        return order

    def staged(self) -> list[str]:
        """The paths of what lies in the staging prefix."""
        top = f"{TIER}/{WORK}/"
        return sorted(path.removeprefix(top) for path in self.bench.world.tier.files if path.startswith(top))

    def refusals(self) -> list[str]:
        """The sentences of the log."""
        return [str(fields["reason"]) for fields in self.bench.events.named("result of a work order refused")]


def on_ordered_tier(scenario: Callable[[OrderedTier], Awaitable[None]], *, seed: int = 1, **config: Any) -> None:
    """Run ``scenario``; ``config`` are fields of the log's TopicConfig."""
    given: dict[str, Any] = {
        "cleanup_policy": ("compact",),
        "min_cleanable_dirty_ratio": 0.01,
        "segment_bytes": 400,
        "local_retention_bytes": 0,
    }

    async def run(bench: Bench) -> None:
        await scenario(OrderedTier(bench))

    on_bench(run, seed=seed, **(given | config))
