"""Where a tier is and where its metadata topic lies, from the options of `milena tier`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from milena.client import split_partition
from milena.errors import UsageError, UserError, reason_of
from milena.options import Option, Values
from milena.up.layout import DEFAULT_DIR, ClusterDir
from milena.up.settings import tier_place
from runtime.config.node_config import NodeConfig
from runtime.config.sources import from_properties
from runtime.config.values import ConfigError
from runtime.context import Runtime
from runtime.files import RealDisk
from runtime.process import real_runtime
from storage.names import META_PROPERTIES
from tiered.log_lineage import Lineage, lineage_of_replicas, lineage_of_tier
from tiered.metadata_folders import MetadataHistory, read_history
from tiered.remote_storage import RemoteStorage, RemoteStorageError
from tiered.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from tiered.tier_config import FSSPEC, LOCAL, remote_storage
from tiered.tier_names import ROOT

TIER: Final = Option(
    "--tier", "the tier: a folder, or a URL for fsspec; that of the cluster in --dir without it", "PLACE"
)
STORAGE_OPTIONS: Final = Option(
    "--storage-options", "for a URL: what fsspec's file system is given", "JSON", default=""
)
DIR: Final = Option(
    "--dir", "a cluster's directory or a broker's log directory, where the metadata topic lies", "DIR", many=True
)
PLACES: Final = (TIER, STORAGE_OPTIONS, DIR)
PREFIX: Final = "remote.log.storage.manager.impl.prefix"


@dataclass(slots=True)
class Opened:
    """A tier, and what is known of it."""

    runtime: Runtime
    storage: RemoteStorage
    log_dirs: Sequence[str]
    history: MetadataHistory | None
    """None where the metadata topic is nowhere."""

    async def lineage(self, one: TopicIdPartition, segments: list[RemoteLogSegmentMetadata]) -> Lineage | None:
        """The replicas' word, or else the tier's own. Raises RemoteStorageError."""
        disk = self.runtime.disk
        found = await disk.offload(lineage_of_replicas, disk, self.log_dirs, one)
        return found or await lineage_of_tier(self.storage, segments)


Body = Callable[[Opened], Coroutine[Any, Any, int]]


def run(values: Values, body: Body) -> int:
    """Run a command on the tier that the options name. Raises UserError where it cannot be read."""
    directories = values.dir or ([DEFAULT_DIR] if values.tier is None else [])
    log_dirs = [found for directory in directories for found in log_dirs_of(directory)]
    place = None if values.tier is None else tier_of(values.tier, values.storage_options)
    return run_in_loop(partial(_with_tier, place or _tier_of_cluster(directories), log_dirs, body))


def run_in_loop(body: Callable[[Runtime], Coroutine[Any, Any, int]]) -> int:
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


async def _with_tier(place: tuple[str, dict[str, str]], log_dirs: Sequence[str], body: Body, runtime: Runtime) -> int:
    storage = remote_storage(runtime, *place, "milena-tier")
    try:
        history = await runtime.disk.offload(read_history, runtime.disk, log_dirs)
        return await body(Opened(runtime, storage, log_dirs, history if history.numbers else None))
    finally:
        await storage.close()


def tier_of(text: str, options: str = "") -> tuple[str, dict[str, str]]:
    """The storage's class and keys, from what `--tier` says. Raises UserError."""
    place = tier_place(text).rstrip("/").removesuffix(f"/{ROOT}")
    if "://" in place:
        return FSSPEC, {"url": place, "options": options}
    if options:
        raise UsageError("--storage-options goes with a URL")
    return LOCAL, {"dir": place}


def _tier_of_cluster(directories: Sequence[str]) -> tuple[str, dict[str, str]]:
    """As its brokers are told. Raises UserError."""
    for directory in directories:
        for config in _brokers(ClusterDir(directory)):
            name = config.get("remote.log.storage.manager.class.name")
            if config.get("remote.log.storage.system.enable") and name:
                return name, dict(config.under(config.get(PREFIX)))
    raise UserError(f"say where the tier is by --tier: {', '.join(directories)} does not tell")


def _brokers(cluster: ClusterDir) -> list[NodeConfig]:
    """Of a cluster's directory, started or not; none of another one."""
    names = sorted(os.listdir(cluster.path)) if cluster.exists() else []
    files = [cluster.properties(name) for name in names if name.startswith("broker-")]
    return [_config(path) for path in files if os.path.exists(path)]


def _config(path: str) -> NodeConfig:
    try:
        with open(path, "rb") as file:
            return NodeConfig(from_properties(file.read(), path))
    except OSError as error:
        raise UserError(reason_of(error)) from None


def log_dirs_of(directory: str) -> list[str]:
    """The brokers' log directories of a cluster, or the directory itself where it is one. Raises UserError."""
    cluster = ClusterDir(directory)
    if cluster.exists():
        return [path for config in _brokers(cluster) for path in config.log_dirs if os.path.isdir(path)]
    if os.path.exists(os.path.join(cluster.path, META_PROPERTIES)):
        return [cluster.path]
    raise UserError(f"{cluster.path} is neither a cluster's directory nor a broker's log directory")


def selection(words: Sequence[str]) -> Callable[[TopicIdPartition], bool]:
    """Which partitions ``TOPIC`` and ``TOPIC:PARTITION`` name; all without a word. Raises UsageError."""
    wanted = [split_partition(word) for word in words]
    return lambda one: (
        not wanted or any(topic == one.topic and number in (None, one.partition) for topic, number in wanted)
    )
