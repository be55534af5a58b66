"""Settings with which a node, Kafka's or Milena's, has a tier in a folder and frequent tier tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

INTERVAL_MS: Final = 300
"""Interval of the tasks that copy and expire segments, in milliseconds."""


def tier_settings(folder: Path, *, metadata_partitions: int = 2) -> dict[str, Any]:
    """Return the settings of a single node, with values as text."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": str(INTERVAL_MS),
        "log.retention.check.interval.ms": str(INTERVAL_MS),
        "log.initial.task.delay.ms": str(INTERVAL_MS),
        "rsm.config.dir": str(folder),
        "rsm.config.delete.on.close": "false",
        "rlmm.config.remote.log.metadata.topic.num.partitions": str(metadata_partitions),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    }
