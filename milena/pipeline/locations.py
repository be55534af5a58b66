"""The locations of a tier and its metadata, from the options ``tier`` and ``metadata``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final

from milena.config.node_config import NodeConfig
from milena.config.sources import from_properties
from milena.config.values import ConfigError
from milena.pipeline.errors import PipelineError
from milena.runtime.context import Runtime
from milena.storage.files.names import META_PROPERTIES
from milena.tiered.store.remote_storage import RemoteStorage
from milena.tiered.store.tier_config import FSSPEC, LOCAL, remote_storage
from milena.tiered.store.tier_names import ROOT

PROPERTIES: Final = "server.properties"


def storage_of(runtime: Runtime, tier: str, options: str) -> RemoteStorage:
    """Open a tier. ``tier``: a folder, or a URL for fsspec; ``options``: JSON with arguments of the fsspec file system.
    Raises PipelineError."""
    place = _place(tier)
    try:
        if "://" in place:
            return remote_storage(runtime, FSSPEC, {"url": place, "options": options}, "milena-pipeline")
        if not os.path.isdir(place):
            raise PipelineError(f"option tier={tier}: there is no such folder")
        return remote_storage(runtime, LOCAL, {"dir": place}, "milena-pipeline")
    except ConfigError as error:
        raise PipelineError(f"option tier={tier}: {error}") from None


def _place(tier: str) -> str:
    return tier.rstrip("/").removesuffix(f"/{ROOT}").removeprefix("file://")


def log_dirs_of(directories: Iterable[str]) -> list[str]:
    """Return the log directories in ``directories``, each of which is a log directory, or the directory of a broker or
    of a cluster. Raises PipelineError."""
    found: dict[str, None] = {}
    for directory in directories:
        if not os.path.isdir(directory):
            raise PipelineError(f"option metadata={directory}: there is no such folder")
        here = list(_in(directory))
        if not here:
            nested = sorted(one.path for one in os.scandir(directory) if one.name.startswith("broker-"))
            here = [path for folder in nested for path in _in(folder)]
        if not here:
            what = "neither a log directory nor a broker's directory nor a cluster's"
            raise PipelineError(f"option metadata={directory} is {what}")
        found |= dict.fromkeys(here)
    return list(found)


def _in(folder: str) -> Iterator[str]:
    """Yield the log directories of a broker: ``folder`` itself, its subfolder ``data``, or the existing ones that its
    server.properties names."""
    for one in (folder, os.path.join(folder, "data")):
        if os.path.exists(os.path.join(one, META_PROPERTIES)):
            yield one
            return
    path = os.path.join(folder, PROPERTIES)
    if os.path.exists(path):
        try:
            with open(path, "rb") as file:
                config = NodeConfig(from_properties(file.read(), path))
        except (OSError, ConfigError) as error:
            raise PipelineError(f"option metadata={folder}: {error}") from None
        yield from (one for one in config.log_dirs if os.path.isdir(one))
