"""A log manager whose maintenance runs on a simulated clock and disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from milena.config.node_config import NodeConfig
from milena.lab.world.world import Machine
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_manager import LogManager
from tests.unit.storage.logs import TOPIC_ID, Events, append, default_config
from tests.unit.storage.managers import CLUSTER

CONFIG = replace(default_config(), segment_bytes=1000, retention_ms=600_000, file_delete_delay_ms=60_000)
KEYS = {
    "log_retention_check_interval_ms": 60_000,
    "replica_high_watermark_checkpoint_interval_ms": 5_000,
    "log_flush_scheduler_interval_ms": 1_000,
}


class Node:
    """A log manager with its background tasks, on a simulated machine."""

    def __init__(self, machine: Machine, *, dirs: int = 1, **keys: object) -> None:
        self.machine = machine
        self.runtime = machine.start()
        self.events = Events()
        self.offline: list[str] = []
        paths = [f"/data{number}" for number in range(dirs)]
        config = NodeConfig.of(**({"log_dirs": ",".join(paths)} | KEYS | keys))
        self.logs = LogManager(
            self.runtime, config, lambda directory, _logs: self.offline.append(directory.path), events=self.events
        )

    async def start(self) -> LogManager:
        self.logs.open()
        self.logs.format(CLUSTER)
        await self.logs.load(lambda _topic: CONFIG)
        self.logs.start(self.runtime.new_tasks("storage"))
        return self.logs

    def log(self, partition: int = 0, **config: Any) -> UnifiedLog:
        return self.logs.get_or_create("topic", partition, TOPIC_ID, replace(CONFIG, **config), is_new=True)

    def write(self, log: UnifiedLog, count: int) -> None:
        for _ in range(count):
            append(log, b"x" * 200, timestamp=self.runtime.clock.time_ms())
        log.set_high_watermark(log.log_end_offset)

    def names(self, log: UnifiedLog) -> list[str]:
        return self.runtime.disk.list(log.folder)
