"""What can be asked of the tier by hand. A tier that fails is not the broker's fault: the asker hears a sentence."""

from __future__ import annotations

from milena.broker.replica.partition import Partition
from milena.tiered.shared.tier import FAILURES
from milena.tiered.work.segment_descriptions import described_segments
from milena.tiered.work.tier_manager import RemoteLogManager


async def work_now(manager: RemoteLogManager, partition: Partition) -> None:
    """One round of all that the replica's role does. Raises ValueError if it fails."""
    try:
        await manager.run_now(partition)
    except FAILURES as error:
        raise ValueError(str(error)) from error


async def segments_now(manager: RemoteLogManager, partition: Partition) -> list[dict[str, object]]:
    """See ``described_segments``. Raises ValueError if the metadata cannot be had."""
    try:
        return await described_segments(manager, partition)
    except FAILURES as error:
        raise ValueError(str(error)) from error
