"""The context that the logs of one log directory share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from milena.protocol.errors import KafkaError
from milena.protocol.types import (
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    REMOTE_METADATA_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_TOPIC,
    Offset,
)
from milena.runtime.clock import Clock
from milena.runtime.disk import Disk
from milena.storage.files.deletions import Deletions
from milena.storage.files.handle_cache import HandleCache
from milena.storage.log.flush import FlushPlan

if TYPE_CHECKING:
    from milena.config.topic_config import TopicConfig

DEFAULT_OPEN_FILES: Final = 256
DEFAULT_OPEN_MAPS: Final = 64
DEFAULT_PRODUCER_EXPIRATION_MS: Final = 86_400_000
NEVER_TIERED: Final = frozenset(
    {OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC, METADATA_TOPIC, REMOTE_METADATA_TOPIC}
)


class EventLog(Protocol):
    """Logs events with fields, like a bound logger of ``runtime.logging``."""

    def info(self, event: str, **fields: object) -> object: ...

    def warning(self, event: str, **fields: object) -> object: ...

    def error(self, event: str, **fields: object) -> object: ...


class NamedLog(Protocol):
    """A log, identified by its partition."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...


class Log(NamedLog, Protocol):
    """The part of a log that its listeners use."""

    @property
    def context(self) -> LogContext: ...

    @property
    def sealed_end(self) -> Offset: ...

    def plan_flush(self, upto: Offset | None = None) -> FlushPlan | None: ...

    def plan_id_sync(self) -> FlushPlan | None: ...

    def flushed(self, plan: FlushPlan) -> None: ...


class Silence:
    """An EventLog that discards all events."""

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


def _no_jitter(_bound: int) -> int:
    return 0


def _ignore_error(_error: OSError) -> None: ...


def _nothing() -> None: ...


def _ignore_log(_log: Log) -> None: ...


def _ignore_end(_log: NamedLog, _error: KafkaError) -> None: ...


@dataclass(slots=True)
class LogContext:
    """The services that the logs of one log directory use, and the listeners that they notify."""

    disk: Disk
    clock: Clock
    events: EventLog = field(default_factory=Silence)
    files: HandleCache = field(default_factory=lambda: HandleCache(DEFAULT_OPEN_FILES))
    maps: HandleCache = field(default_factory=lambda: HandleCache(DEFAULT_OPEN_MAPS))
    deletions: Deletions = field(default_factory=Deletions)
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    verifies_transactions: bool = False
    """Whether the first batch of a transaction needs the guard of its verification."""
    jitter: Callable[[int], int] = _no_jitter
    """Returns a random number in ``[0, bound)``, for ``segment.jitter.ms``."""
    failed: Callable[[OSError], None] = _ignore_error
    """Called when the disk has failed: the directory must go offline."""
    truncated: Callable[[], None] = _nothing
    """Called when a log was truncated below its recovery point: the checkpoint on disk must be written again."""
    save_checkpoints: Callable[[], None] = _nothing
    """Writes the directory's offset checkpoints now. Called before a log rolls while its recovery point on disk is
    above a truncation: otherwise new segments there would count as synced."""
    rolled: Callable[[Log], None] = _ignore_log
    """Called when a log has rolled: the segments before the new one should be flushed."""
    sync_soon: Callable[[Log], None] = _ignore_log
    """Called when a topic of ``SYNCED_FIRST`` has unsynced records: it should be flushed now."""
    synced: Callable[[Log], None] = _ignore_log
    """Called when that flush is complete. It covers the log end offset at its start."""
    start_moved: Callable[[Log], None] = _ignore_log
    """Called when the log start offset was incremented by retention or DeleteRecords."""
    ended: Callable[[NamedLog, KafkaError], None] = _ignore_end
    """Called when a log goes offline alone, with the error: an invariant is violated, or its files are damaged."""
    tiered: bool = False
    """Whether tiered storage is enabled on this broker."""
    offline: bool = False
    """Whether the directory is offline. Its logs then refuse all calls."""


def may_be_tiered(context: LogContext, topic: str, config: TopicConfig) -> bool:
    """Whether part of this log may be in the tier."""
    return context.tiered and config.remote_storage_enable and topic not in NEVER_TIERED
