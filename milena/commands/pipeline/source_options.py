"""The options of the Spark source, from the options of `milena pipeline`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from milena.command_line.errors import UsageError
from milena.command_line.options import Values
from milena.commands.client import split_partition
from milena.commands.tier.cluster_topics import topics_in
from milena.commands.tier.opening import log_dirs_of, run_in_loop, tier_of, tier_of_brokers, with_options
from milena.runtime.context import Runtime
from milena.tiered.segments.segment_metadata import TopicIdPartition
from milena.up.layout import DEFAULT_DIR


def location_options(values: Values) -> dict[str, str]:
    """Return the source's options for the location of the records. Raises UserError."""
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


def topic_options(values: Values) -> dict[str, str]:
    """Return the source's option for the topics named on the command line, or for all topics if none is named. Raises
    UsageError for a partition."""
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
    """Return a function that returns, according to the cluster's metadata, the reason why a partition should have no
    segments in the tier; None if it may have some, or the metadata are not known. Raises UserError."""
    found: list[Callable[[TopicIdPartition], str | None]] = []

    async def read_topics(runtime: Runtime) -> int:
        topics, _ = await runtime.disk.offload(topics_in, runtime.disk, _directories(values))
        if topics is not None:
            found.append(topics.not_tiered)
        return 0

    run_in_loop(partial(read_topics))
    return found[0] if found else lambda _: None
