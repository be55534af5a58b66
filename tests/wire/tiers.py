"""Broker settings and log files of a tier in a folder or at a URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "10000", "local.retention.bytes": "0"}


def settings(folder: Path) -> dict[str, str]:
    kind = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
    return _settings(kind, {"dir": str(folder)})


def settings_of_url(url: str, options: str) -> dict[str, str]:
    """Return the broker settings of a tier at a URL. ``options`` are JSON, see docs/configuration.md."""
    return _settings("milena.tiered.FsspecRemoteStorage", {"url": url, "options": options})


def _settings(kind: str, keys: Mapping[str, str]) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": kind,
        **{f"rsm.config.{key}": value for key, value in keys.items()},
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
    }


def logs(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(f"{pattern}/*.log"))
