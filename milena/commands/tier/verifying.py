"""`milena tier verify`: reads a tier and reports what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Set
from functools import partial
from typing import Final

from milena.command_line.options import Values
from milena.command_line.table import say
from milena.commands.tier.formatting import counted, ranges
from milena.commands.tier.opening import Opened, Selection
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC, metadata_partition
from milena.tiered.offline.verification import Verification, confirmed, in_order, verify
from milena.tiered.segments.segment_metadata import TopicIdPartition

PAUSE: Final = 1.0
"""Seconds to wait before findings are checked again, since a running cluster may have caused them and resolve them."""


async def verify_all(values: Values, opened: Opened) -> int:
    """Print the findings. Return 1 if there are any."""
    if opened.history is None and not values.json:
        where = f"in {', '.join(opened.log_dirs)}" if opened.log_dirs else "known (--dir)"
        print(f"no metadata topic is {where}: only the files are checked", file=sys.stderr)
    if opened.log_dirs and opened.topics is None and not values.json:
        why = "; ".join(opened.unread) or f"there is no metadata of the cluster in {', '.join(opened.log_dirs)}"
        print(f"cannot check whether the cluster still has the topics: {why}", file=sys.stderr)
    elsewhere = await opened.partitions_elsewhere()
    if elsewhere and not values.json:
        print(
            f"the partitions {ranges(elsewhere)} of the metadata topic are in unknown log directories (by --override "
            "log.dirs?): the segments that they describe are not checked. Name the log directories with --dir",
            file=sys.stderr,
        )
    result = await confirmed(partial(_verify, opened, Selection(values.topic)))
    if values.json:
        print(json.dumps(plain(result, opened, elsewhere)))
    else:
        for finding in result.findings:
            say(": ".join(filter(None, (finding.kind, finding.place(), finding.what))))
        for note in result.notes:
            say(": ".join(filter(None, ("note", note.kind, note.place(), note.what))))
        print(opened.description())
        looked_at = (counted(result.partitions, "partition"), counted(result.segments, "segment"))
        print(", ".join((*looked_at, f"{result.size} bytes", counted(len(result.findings), "finding"))))
    return 1 if result.findings else 0


async def _verify(opened: Opened, wanted: Selection, previous: Set[TopicIdPartition] | None) -> Verification:
    if previous is not None:
        await opened.runtime.clock.sleep(PAUSE)
        await opened.read_again()
    return await verify(
        opened.storage,
        opened.history,
        opened.lineage,
        choose=wanted if previous is None else lambda known: sorted(previous & set(known), key=in_order),
        has_metadata=await _has_metadata(opened),
        not_tiered=opened.topics.not_tiered if opened.topics is not None else lambda _: None,
    )


async def _has_metadata(opened: Opened) -> Callable[[TopicIdPartition], bool]:
    elsewhere = await opened.partitions_elsewhere()
    count = None if opened.topics is None else opened.topics.partitions(REMOTE_LOG_METADATA_TOPIC)
    return lambda one: count is None or metadata_partition(one, count) not in elsewhere


def plain(result: Verification, opened: Opened, elsewhere: Set[int]) -> dict[str, object]:
    return {
        "tier": opened.place,
        "partitions": result.partitions,
        "segments": result.segments,
        "bytes": result.size,
        "metadata": list(opened.metadata),
        "metadata_elsewhere": sorted(elsewhere),
        "findings": [finding.plain() for finding in result.findings],
        "notes": [note.plain() for note in result.notes],
    }
