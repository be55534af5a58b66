"""Where a tier is and where its metadata topic lies, from the options of `milena tier`."""

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
from milena.tiered.rescue.epoch_history import Lineage, lineage_of_replicas, lineage_of_tier
from milena.tiered.rescue.metadata_folders import MetadataHistory, metadata_folders, read_history
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.remote_storage import RemoteStorage, RemoteStorageError
from milena.tiered.store.tier_config import FSSPEC, LOCAL, remote_storage
from milena.tiered.store.tier_names import ROOT
from milena.up.layout import DEFAULT_DIR
from milena.up.settings import tier_place

TIER: Final = Option(
    "--tier", "the tier: a folder, or a URL for fsspec; that of the cluster in --dir without it", "PLACE"
)
STORAGE_OPTIONS: Final = Option(
    "--storage-options", "for a URL: what fsspec's file system is given", "JSON", default=""
)
DIR: Final = Option("--dir", "a cluster's directory or a broker's, where the metadata topic lies", "DIR", many=True)
PLACES: Final = (TIER, STORAGE_OPTIONS, DIR)


@dataclass(slots=True)
class Opened:
    """A tier, and what is known of it."""

    runtime: Runtime
    storage: RemoteStorage
    place: str
    """The tier as people name it."""
    directories: Sequence[str]
    log_dirs: Sequence[str]
    metadata: Sequence[str]
    """Those of ``log_dirs`` in which the metadata topic lies."""
    history: MetadataHistory | None
    """None if the metadata topic is nowhere."""
    topics: ClusterTopics | None
    """None where no metadata of the cluster itself can be read."""
    unread: Sequence[str]
    """What of that cannot be read, and why."""

    async def lineage(self, one: TopicIdPartition, segments: list[RemoteLogSegmentMetadata]) -> Lineage | None:
        """The replicas' word, or else the tier's own. Raises RemoteStorageError."""
        disk = self.runtime.disk
        leader = None if self.history is None else self.history.leaders.get(one)
        found = await disk.offload(lineage_of_replicas, disk, self.log_dirs, one, leader)
        return found or await lineage_of_tier(self.storage, segments)

    async def read_again(self) -> None:
        """What the directories say now. Raises OSError, UserError."""
        disk = self.runtime.disk
        self.metadata, self.history = await disk.offload(find_metadata, disk, self.log_dirs)
        self.topics, self.unread = await disk.offload(topics_in, disk, self.directories)

    async def elsewhere(self) -> set[int]:
        """The partitions of the metadata topic that lie in log directories that are not known: what they tell of is no
        orphan. Raises OSError."""
        if self.topics is None:
            return set()
        disk = self.runtime.disk
        return self.topics.metadata_elsewhere(await disk.offload(directory_ids, disk, self.log_dirs))

    def told(self) -> str:
        """What is looked at, in words."""
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
    """Run ``body`` on the real machine, its errors as a user is told them. Raises UserError."""

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
    """Where the metadata topic is among ``log_dirs``, and what it says. Blocks. Raises OSError."""
    found = [one for one in log_dirs if metadata_folders(disk, [one])]
    return found, read_history(disk, found) if found else None


def named(place: Place) -> str:
    """A place as `--tier` takes it."""
    return place[1].get("dir") or place[1].get("url", "")


def sources_of(place: str, metadata: Sequence[str]) -> str:
    """A line for people: which tier was read, and what it was compared with."""
    return f"tier {place}, {'metadata in ' + ', '.join(metadata) if metadata else 'no metadata topic'}"


def tier_of(text: str, options: str = "") -> Place:
    """The storage's class and keys, from what `--tier` says. Raises UserError."""
    place = tier_place(text).rstrip("/").removesuffix(f"/{ROOT}")
    if "://" in place:
        return with_options((FSSPEC, {"url": place}), options)
    return with_options((LOCAL, {"dir": place}), options)


def with_options(place: Place, options: str) -> Place:
    """The place with what `--storage-options` says, if anything. Raises UserError."""
    if not options:
        return place
    if place[0] != FSSPEC:
        raise UsageError(f"--storage-options goes with a URL, and the tier is the folder {named(place)}")
    try:
        sound = isinstance(json.loads(options), dict)
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(f"--storage-options {options}: not a JSON object")
    return place[0], place[1] | {"options": options}


def tier_of_brokers(directories: Sequence[str]) -> Place:
    """As they are told. Raises UserError."""
    for directory in directories:
        for broker in brokers_in(directory):
            if broker.tier is not None:
                return broker.tier
    raise UserError(f"say where the tier is by --tier: {', '.join(directories)} does not tell")


def log_dirs_of(directories: Sequence[str]) -> list[str]:
    """The brokers' log directories in each. Raises UserError."""
    return [path for directory in directories for broker in brokers_in(directory) for path in broker.log_dirs]


class Selection:
    """The partitions that ``TOPIC`` and ``TOPIC:PARTITION`` name; all without a word. Raises UsageError."""

    def __init__(self, words: Sequence[str]) -> None:
        self._wanted = {word: split_partition(word) for word in words}

    def __call__(self, known: Collection[TopicIdPartition]) -> list[TopicIdPartition]:
        """Those among ``known``, in order. Raises UserError if a word names none: it may be mistyped."""
        chosen: set[TopicIdPartition] = set() if self._wanted else set(known)
        for word, (topic, number) in self._wanted.items():
            found = [one for one in known if one.topic == topic and number in (None, one.partition)]
            if not found:
                alike = nearest(topic, sorted({one.topic for one in known} - {topic}))
                raise UserError(f"{word} is neither in the tier nor in its metadata{alike}")
            chosen.update(found)
        return sorted(chosen, key=lambda one: (one.topic, one.topic_id.int, one.partition))
