"""Log managers for tests, with real directories and a manual clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import sentinel

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.runtime.containment import Containment
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.randomness import Randomness
from milena.runtime.tasks import TaskScope
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.log_dir import LogDir
from milena.storage.manager.log_manager import LogManager
from tests.unit.storage.logs import Events, HandClock, default_config

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


class Manager:
    """A LogManager that can be stopped, killed and started again on the same directories."""

    def __init__(self, path: Path, *, dirs: int = 1, node_id: int = 1, disk: Any = None) -> None:
        self.paths = [str(path / f"dir{number}") for number in range(dirs)]
        self.clock = HandClock()
        self.events = Events()
        self.failed: list[tuple[str, list[UnifiedLog]]] = []
        self.fatal: list[str] = []
        self.disk = disk or RealDisk()
        contained = Containment(self.clock)
        self.runtime = Runtime(
            clock=self.clock,
            random=Randomness(1),
            network=sentinel.network,
            disk=self.disk,
            tier_disk=self.disk,
            new_tasks=lambda name: TaskScope(name, lambda text, _error: self.fatal.append(text), contained),
            contained=contained,
            fatal=lambda text, _error: self.fatal.append(text),
        )
        config = NodeConfig.of(node_id=node_id, log_dirs=",".join(self.paths))
        self.logs = LogManager(self.runtime, config, self._note, events=self.events)

    def _note(self, directory: LogDir, logs: list[UnifiedLog]) -> None:
        self.failed.append((directory.path, logs))

    async def start(self, cluster: str = CLUSTER, config: TopicConfig | None = None) -> LogManager:
        self.logs.open()
        self.logs.format(cluster)
        await self.logs.load(lambda _topic: config or default_config())
        return self.logs

    def folders(self) -> list[str]:
        """The names of log folders in the first log directory."""
        return [name for name in self.disk.list(self.paths[0]) if name.startswith("topic-")]

    def kill(self) -> None:
        """Release locks and files without writing anything, as the end of a killed process does."""
        self.logs.unlock()
        self.disk.close()
