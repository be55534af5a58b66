"""Logs that were restored from the tier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milena.tiered.offline.cluster_restore import Restoration, RestoredLog, Wishes, plan
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import (
    TopicIdPartition,
)
from tests.unit.tiered.whole_tier import WholeTier


async def restored(
    tier: WholeTier,
    wishes: Wishes | None = None,
    *,
    with_metadata: bool = False,
    replicas: Mapping[TopicIdPartition, Lineage] | None = None,
) -> Restoration:
    async def of_replicas(one: TopicIdPartition) -> Lineage | None:
        return (replicas or {}).get(one)

    return await plan(tier.storage, tier.history() if with_metadata else None, of_replicas, wishes or Wishes())


async def log_of(tier: WholeTier, *arguments: Any, **options: Any) -> RestoredLog:
    """The only log there is."""
    [topic] = (await restored(tier, *arguments, **options)).topics
    [log] = topic.logs.values()
    return log
