"""Settings and topics of a tier in a folder."""

from __future__ import annotations

from pathlib import Path

TIERED = {"remote.storage.enable": "true", "internal.segment.bytes": "10000", "local.retention.bytes": "0"}


def settings(folder: Path) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": str(folder),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
    }


def logs(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(f"{pattern}/*.log"))
