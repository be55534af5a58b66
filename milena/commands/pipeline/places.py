"""The sources of the records that a job reads, from the command line's options."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from milena.command_line.errors import UsageError
from milena.command_line.options import Values
from milena.commands.client import split_partition
from milena.commands.tier.cluster_topics import topics_in
from milena.commands.tier.places import log_dirs_of, run_in_loop, tier_of, tier_of_brokers, with_options
from milena.runtime.context import Runtime
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.up.layout import DEFAULT_DIR


def place_of(values: Values) -> dict[str, str]:
    """Return the source's options. Raises UserError."""
    bootstrap = values.found.get("bootstrap") or ""
    directories = _directories(values)
    if bootstrap and values.tier is None and not values.dir:
        return {"kafka.bootstrap.servers": str(bootstrap)}
    place = tier_of_brokers(directories) if values.tier is None else tier_of(values.tier)
    keys = with_options(place, values.storage_options)[1]
    found = {"tier": keys.get("dir") or keys.get("url", "")}
    if keys.get("options"):
        found["storageOptions"] = keys["options"]
    if bootstrap:
        found["kafka.bootstrap.servers"] = str(bootstrap)
    elif directories:
        found["metadata"] = ",".join(log_dirs_of(directories))
    return found


def _directories(values: Values) -> list[str]:
    return list(values.dir) or ([DEFAULT_DIR] if values.tier is None else [])


def topics_chosen(values: Values) -> dict[str, str]:
    """Return the option for the named topics, or for all. Raises UsageError for a partition."""
    for word in values.topic:
        if split_partition(word)[1] is not None:
            raise UsageError(f"{word}: jobs take topics, not partitions")
    if not values.topic:
        return {"subscribePattern": ".*"}
    return (
        {"subscribePattern": "|".join(map(re.escape, values.topic))}
        if len(values.topic) > 1
        else {"subscribe": values.topic[0]}
    )


def not_tiered(values: Values) -> Callable[[TopicIdPartition], str | None]:
    """Return a function for why a partition should have nothing in the tier, by the cluster's metadata. Raises
    UserError."""
    found: list[Callable[[TopicIdPartition], str | None]] = []

    async def look(runtime: Runtime) -> int:
        topics, _ = await runtime.disk.offload(topics_in, runtime.disk, _directories(values))
        if topics is not None:
            found.append(topics.not_tiered)
        return 0

    run_in_loop(partial(look))
    return found[0] if found else lambda _: None
