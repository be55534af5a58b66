"""The settings of the log cleaner, from Kafka's keys ``log.cleaner.*``, like ``CleanerConfig``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from milena.config.node_config import NodeConfig

_LEAST_READ: Final = 4096


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Sizes are bytes, for all threads together."""

    threads: int = 1
    dedupe_buffer: int = 128 << 20
    load_factor: float = 0.9
    io_buffer: int = 512 << 10
    bytes_per_second: float = float("inf")
    backoff_ms: int = 15_000
    enabled: bool = True

    @classmethod
    def of(cls, config: NodeConfig) -> CleanerSettings:
        return cls(
            config.get_int("log.cleaner.threads"),
            config.get_int("log.cleaner.dedupe.buffer.size"),
            config.get_float("log.cleaner.io.buffer.load.factor"),
            config.get_int("log.cleaner.io.buffer.size"),
            config.get_float("log.cleaner.io.max.bytes.per.second"),
            config.get_int("log.cleaner.backoff.ms"),
            config.get_bool("log.cleaner.enable"),
        )

    @property
    def map_bytes(self) -> int:
        """Bytes of one thread's offset map."""
        return self.dedupe_buffer // max(self.threads, 1)

    @property
    def read_bytes(self) -> int:
        """Bytes of one thread's read buffer, unless a batch is larger. The other half of its share is for writing."""
        return max(self.io_buffer // max(self.threads, 1) // 2, _LEAST_READ)
