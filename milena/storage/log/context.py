"""What the logs of one log directory share."""

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
    """Takes one event with its fields. A bound logger of ``runtime.logging`` is one."""

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
    """A log, as its listeners see it."""

    @property
    def context(self) -> LogContext: ...

    @property
    def sealed_end(self) -> Offset: ...

    def plan_flush(self, upto: Offset | None = None) -> FlushPlan | None: ...

    def flushed(self, plan: FlushPlan) -> None: ...


class Silence:
    """An EventLog that drops all events."""

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
    """What the logs of one log directory use, and the listeners that they notify."""

    disk: Disk
    clock: Clock
    events: EventLog = field(default_factory=Silence)
    files: HandleCache = field(default_factory=lambda: HandleCache(DEFAULT_OPEN_FILES))
    maps: HandleCache = field(default_factory=lambda: HandleCache(DEFAULT_OPEN_MAPS))
    deletions: Deletions = field(default_factory=Deletions)
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS
    jitter: Callable[[int], int] = _no_jitter
    """A random number in ``[0, bound)``, for ``segment.jitter.ms``."""
    failed: Callable[[OSError], None] = _ignore_error
    """The disk has failed: the directory must go offline."""
    truncated: Callable[[], None] = _nothing
    """A log was truncated below its recovery point: the checkpoint on disk must be written again."""
    save_checkpoints: Callable[[], None] = _nothing
    """Write the directory's offset checkpoints now. Needed if a log begins a segment while its recovery point on disk
    is beyond a truncation: refilled segments would count as synced."""
    rolled: Callable[[Log], None] = _ignore_log
    """A log has rolled: the segments before the new one should be flushed."""
    sync_soon: Callable[[Log], None] = _ignore_log
    """A log that must be synced before other nodes see its records has unsynced ones."""
    synced: Callable[[Log], None] = _ignore_log
    """That sync is complete: it covers the log end offset at the time when it began."""
    start_moved: Callable[[Log], None] = _ignore_log
    """The log start offset has moved: by retention or DeleteRecords."""
    ended: Callable[[NamedLog, KafkaError], None] = _ignore_end
    """A log refuses all calls from now on, with this error: its bounds are contradictory, or it is damaged."""
    tiered: bool = False
    """Tiered storage is enabled on this broker."""
    offline: bool = False
    """Set when the directory has gone offline; its logs then refuse all calls."""


def may_be_tiered(context: LogContext, topic: str, config: TopicConfig) -> bool:
    """Whether part of this log may be in the tier."""
    return context.tiered and config.remote_storage_enable and topic not in NEVER_TIERED
