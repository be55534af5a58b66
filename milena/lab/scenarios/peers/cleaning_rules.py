"""Brokers that compact their logs without a rule of KIP-279."""

from __future__ import annotations

from functools import cached_property

from milena.broker.server import Broker
from milena.config.node_config import NodeConfig
from milena.node.serving.lab_commands import LabCommands
from milena.runtime.context import Runtime


class CleansEpochsAway(Broker):
    """Removes the first batch of a leader epoch like any other, as Kafka does."""

    def __init__(self, runtime: Runtime, config: NodeConfig) -> None:
        super().__init__(runtime, config)
        self.logs.cleaner.cleaner.keeps_epochs = False


class CleansToHighWatermark(Broker):
    """Compacts up to the high watermark in memory, as Kafka does. ``roll`` also flushes the log, but writes no
    checkpoint."""

    @cached_property
    def lab_commands(self) -> LabCommands:
        lab_commands = super().lab_commands
        lab_commands.add("roll", self._roll)
        return lab_commands

    def _roll(self, topic: str, partition: int) -> dict[str, int]:
        """Roll the active segment, and treat the high watermark as if it were checkpointed."""
        log = self.partitions.get(topic, partition).online_log
        log.roll()
        log.flush()
        log.checkpointed_high_watermark = log.high_watermark
        return {"base_offset": log.log_end_offset}
