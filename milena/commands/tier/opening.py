"""Finds and opens the tier and its metadata topic that the options of `milena tier` name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from milena.command_line.errors import UsageError, UserError, reason_of
from milena.command_line.options import Option, Values, nearest
from milena.commands.client import split_partition
from milena.commands.tier.cluster_topics import ClusterTopics, directory_ids, topics_in
from milena.commands.tier.directories import Place, brokers_in
from milena.config.values import ConfigError
from milena.runtime.context import Runtime
from milena.runtime.disk import Disk
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime
from milena.tiered.offline.epoch_history import lineage_of_replicas, lineage_of_tier
from milena.tiered.offline.metadata_history import MetadataHistory, read_history
from milena.tiered.offline.metadata_reader import metadata_folders
from milena.tiered.rebuilding.epoch_chains import Lineage
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import RemoteStorage, RemoteStorageError
from milena.tiered.store.tier_config import FSSPEC, LOCAL, remote_storage
from milena.tiered.store.tier_names import ROOT
from milena.up.layout import DEFAULT_DIR
from milena.up.settings import tier_place

TIER: Final = Option(
    "--tier", "the tier: a folder, or a URL for fsspec (default: that of the cluster in --dir)", "PLACE"
)
STORAGE_OPTIONS: Final = Option("--storage-options", "for a URL: options of fsspec's file system", "JSON", default="")
DIR: Final = Option("--dir", "the directory of a cluster or broker with the metadata topic", "DIR", many=True)
PLACES: Final = (TIER, STORAGE_OPTIONS, DIR)


@dataclass(slots=True)
class Opened:
    """An open tier and what is known of it."""

    runtime: Runtime
    storage: RemoteStorage
    place: str
    """The location of the tier as shown to users."""
    directories: Sequence[str]
    log_dirs: Sequence[str]
    metadata: Sequence[str]
    """Those of ``log_dirs`` that contain partitions of the metadata topic."""
    history: MetadataHistory | None
    """The events in the metadata topic; None if no metadata topic was found."""
    topics: ClusterTopics | None
    """The topics of the cluster; None if no cluster metadata could be read."""
    unread: Sequence[str]
    """Messages about cluster metadata that could not be read."""

    async def lineage(self, one: TopicIdPartition, segments: list[RemoteLogSegmentMetadata]) -> Lineage | None:
        """Return the leader epochs of a partition's log, from its replicas or, if there are none, from its segments in
        the tier. Raises RemoteStorageError."""
        disk = self.runtime.disk
        leader = None if self.history is None else self.history.leaders.get(one)
        found = await disk.offload(lineage_of_replicas, disk, self.log_dirs, one, leader)
        return found or await lineage_of_tier(self.storage, segments)

    async def read_again(self) -> None:
        """Read the directories again. Raises OSError, UserError."""
        disk = self.runtime.disk
        self.metadata, self.history = await disk.offload(find_metadata, disk, self.log_dirs)
        self.topics, self.unread = await disk.offload(topics_in, disk, self.directories)

    async def partitions_elsewhere(self) -> set[int]:
        """Return the partitions of the metadata topic whose replicas are all in unknown log directories. Segments that
        these partitions describe must not be reported as orphans. Raises OSError."""
        if self.topics is None:
            return set()
        disk = self.runtime.disk
        return self.topics.metadata_elsewhere(await disk.offload(directory_ids, disk, self.log_dirs))

    def description(self) -> str:
        """Return a line that names the tier and the metadata that are read."""
        return sources_of(self.place, self.metadata)


Body = Callable[[Opened], Coroutine[object, object, int]]


def run(values: Values, body: Body) -> int:
    """Run a command on the tier that the options name. Raises UserError if it cannot be read."""
    directories = values.dir or ([DEFAULT_DIR] if values.tier is None else [])
    log_dirs = log_dirs_of(directories)
    place = tier_of_brokers(directories) if values.tier is None else tier_of(values.tier)
    place = with_options(place, values.storage_options)
    return run_in_loop(partial(_with_tier, place, directories, log_dirs, body))


def run_in_loop(body: Callable[[Runtime], Coroutine[object, object, int]]) -> int:
    """Run ``body`` on the real machine. Raises UserError for its errors."""

    async def whole() -> int:
        runtime = real_runtime()
        try:
            return await body(runtime)
        finally:
            for disk in (runtime.disk, runtime.tier_disk):
                assert isinstance(disk, RealDisk)
                disk.close()

    try:
        return asyncio.run(whole())
    except RemoteStorageError as error:
        raise UserError(str(error)) from None
    except ConfigError as error:
        raise UserError(str(error)) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(reason_of(error)) from None


async def _with_tier(
    place: Place, directories: Sequence[str], log_dirs: Sequence[str], body: Body, runtime: Runtime
) -> int:
    disk = runtime.disk
    storage = remote_storage(runtime, *place, "milena-tier")
    try:
        metadata, history = await disk.offload(find_metadata, disk, log_dirs)
        topics, unread = await disk.offload(topics_in, disk, directories)
        return await body(
            Opened(runtime, storage, named(place), directories, log_dirs, metadata, history, topics, unread)
        )
    finally:
        await storage.close()


def find_metadata(disk: Disk, log_dirs: Sequence[str]) -> tuple[list[str], MetadataHistory | None]:
    """Find the metadata topic in ``log_dirs`` and read it. Blocking. Raises OSError."""
    found = [one for one in log_dirs if metadata_folders(disk, [one])]
    return found, read_history(disk, found) if found else None


def named(place: Place) -> str:
    """Return a tier's location in the format of the option `--tier`."""
    return place[1].get("dir") or place[1].get("url", "")


def sources_of(place: str, metadata: Sequence[str]) -> str:
    """Return a line that says which tier was read, and with which metadata it was compared."""
    return f"tier {place}, {'metadata in ' + ', '.join(metadata) if metadata else 'no metadata topic'}"


def tier_of(text: str, options: str = "") -> Place:
    """Return the storage class and its configuration for the value of `--tier`. Raises UserError."""
    place = tier_place(text).rstrip("/").removesuffix(f"/{ROOT}")
    if "://" in place:
        return with_options((FSSPEC, {"url": place}), options)
    return with_options((LOCAL, {"dir": place}), options)


def with_options(place: Place, options: str) -> Place:
    """Return ``place`` with the file system options of `--storage-options`, if that option is given. Raises
    UserError."""
    if not options:
        return place
    if place[0] != FSSPEC:
        raise UsageError(f"--storage-options needs a URL, but the tier is the folder {named(place)}")
    try:
        sound = isinstance(json.loads(options), dict)
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(f"--storage-options {options}: not a JSON object")
    return place[0], place[1] | {"options": options}


def tier_of_brokers(directories: Sequence[str]) -> Place:
    """Return the tier that the brokers are configured with. Raises UserError."""
    for directory in directories:
        for broker in brokers_in(directory):
            if broker.tier is not None:
                return broker.tier
    raise UserError(f"give the tier with --tier: {', '.join(directories)} has no configuration of it")


def log_dirs_of(directories: Sequence[str]) -> list[str]:
    """Return the brokers' log directories. Raises UserError."""
    return [path for directory in directories for broker in brokers_in(directory) for path in broker.log_dirs]


class Selection:
    """The partitions named by ``TOPIC`` and ``TOPIC:PARTITION``; all without words. Raises UsageError."""

    def __init__(self, words: Sequence[str]) -> None:
        self._wanted = {word: split_partition(word) for word in words}

    def __call__(self, known: Collection[TopicIdPartition]) -> list[TopicIdPartition]:
        """Return those of ``known`` that are selected, in order. Raises UserError if a word matches none."""
        chosen: set[TopicIdPartition] = set() if self._wanted else set(known)
        for word, (topic, number) in self._wanted.items():
            found = [one for one in known if one.topic == topic and number in (None, one.partition)]
            if not found:
                alike = nearest(topic, sorted({one.topic for one in known} - {topic}))
                raise UserError(f"{word} is neither in the tier nor in its metadata{alike}")
            chosen.update(found)
        return sorted(chosen, key=lambda one: (one.topic, one.topic_id.int, one.partition))
