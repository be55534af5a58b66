"""Reads the directories of brokers, even if they were moved after the brokers ran.

`milena up` writes absolute paths into each server.properties at each start. Paths in the cluster's former directory are
therefore replaced by paths in its present directory, which may be a copy.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from milena.command_line.errors import UserError, reason_of
from milena.config.node_config import NodeConfig
from milena.config.sources import from_properties
from milena.config.values import ConfigError
from milena.storage.files.names import META_PROPERTIES
from milena.up.layout import ClusterDir

MARK: Final = b"# Written by `milena up`"
"""The first line of files written by `milena up`; paths in other files are not changed."""
PROPERTIES: Final = "server.properties"
PREFIX: Final = "remote.log.storage.manager.impl.prefix"
BROKER: Final = "broker-"

Place = tuple[str, dict[str, str]]
"""A configured tier: the class of its remote storage, and the configuration of that class."""


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """The directories of one broker. ``tier``: None if none is configured."""

    log_dirs: list[str]
    tier: Place | None


def brokers_in(directory: str) -> list[BrokerFiles]:
    """Return the brokers whose files are in ``directory``: the directory of a cluster or of a broker, or a log
    directory. Raises UserError."""
    cluster = ClusterDir(directory)
    path = cluster.path
    if cluster.exists():
        names = sorted(name for name in os.listdir(path) if name.startswith(BROKER))
        return [_broker(folder) for folder in map(cluster.folder, names) if _has(folder, PROPERTIES)]
    if _has(path, META_PROPERTIES):
        return [BrokerFiles([path], None)]
    if _has(path, PROPERTIES):
        return [_broker(path)]
    data = os.path.join(path, "data")
    if _has(data, META_PROPERTIES):
        return [BrokerFiles([data], None)]
    raise UserError(f"{path} is not the directory of a cluster or broker, nor a log directory")


def _has(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))


def _broker(folder: str) -> BrokerFiles:
    """Read a broker's folder made by `milena up`. Raises UserError."""
    path = os.path.join(folder, PROPERTIES)
    try:
        with open(path, "rb") as file:
            text = file.read()
        config = NodeConfig(from_properties(text, path))
    except OSError as error:
        raise UserError(reason_of(error)) from None
    except ConfigError as error:
        raise UserError(str(error)) from None
    log_dirs, tier = list(config.log_dirs), _tier(config)
    if text.startswith(MARK):
        now = os.path.dirname(folder)
        then = os.path.dirname(os.path.dirname(log_dirs[0]))
        log_dirs = [os.path.join(folder, "data")]
        if tier is not None and "dir" in tier[1]:
            tier[1]["dir"] = relocated(tier[1]["dir"], then, now)
    return BrokerFiles([one for one in log_dirs if os.path.isdir(one)], tier)


def _tier(config: NodeConfig) -> Place | None:
    name = config.get_str_or_none("remote.log.storage.manager.class.name")
    if not config.get_bool("remote.log.storage.system.enable") or not name:
        return None
    return name, dict(config.under(config.get_str(PREFIX)))


def relocated(path: str, then: str, now: str) -> str:
    """Return ``path`` with the folder ``then`` replaced by ``now``, if it is in that folder."""
    return now + path[len(then) :] if path.startswith(f"{then}/") else path
