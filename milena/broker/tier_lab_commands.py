"""The lab commands that use the tier. Errors of the tier become ValueError, whose message the client gets."""

from __future__ import annotations

from milena.broker.replica.partition import Partition
from milena.tiered.shared.tier import FAILURES
from milena.tiered.work.segment_descriptions import described_segments
from milena.tiered.work.tier_manager import RemoteLogManager


async def work_now(manager: RemoteLogManager, partition: Partition) -> None:
    """Run all work for the partition in the tier once, as leader or follower. Raises ValueError if it fails."""
    try:
        await manager.run_now(partition)
    except FAILURES as error:
        raise ValueError(str(error)) from error


async def segments_now(manager: RemoteLogManager, partition: Partition) -> list[dict[str, object]]:
    """``described_segments`` of the partition. Raises ValueError if the metadata cannot be read."""
    try:
        return await described_segments(manager, partition)
    except FAILURES as error:
        raise ValueError(str(error)) from error
