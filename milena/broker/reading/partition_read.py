"""The result of a fetch for one partition."""

from __future__ import annotations

from milena.broker.replica.fetch_sessions import RequestedPartition
from milena.broker.replica.partition import Partition
from milena.broker.replica.read_result import ReadResult
from milena.protocol.errors import ErrorCode


class PartitionRead:
    """The result for one partition; ``result`` is None if there is an error."""

    __slots__ = ("error", "partition", "requested", "result")

    def __init__(
        self,
        requested: RequestedPartition,
        partition: Partition | None,
        result: ReadResult | None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.requested = requested
        self.partition = partition
        self.result = result
        self.error = error

    @property
    def is_urgent(self) -> bool:
        """Whether the fetch must not wait: an error, a diverging epoch, or a preferred replica."""
        result = self.result
        return result is None or result.diverging is not None or result.preferred_replica is not None

    @property
    def has_everything(self) -> bool:
        """Whether the reader has everything that it may see. (A result can also be empty because a limit is
        reached.)"""
        return not self.is_urgent and self.result is not None and self.requested.offset >= self.result.upper

    @property
    def high_watermark_has_moved(self) -> bool:
        """Whether the high watermark has moved since the read. A follower's fetch may move it itself, after its read;
        the session must then send it with the next response."""
        log = None if self.partition is None else self.partition.log
        return self.result is not None and log is not None and log.high_watermark != self.result.high_watermark

    @property
    def size(self) -> int:
        """The bytes of the records."""
        return 0 if self.result is None else self.result.slice.length


class RemotePartitionRead(PartitionRead):
    """A read whose records are in the remote tier and not read yet. ``result`` has the offsets and no records."""

    __slots__ = ("max_bytes", "min_one")

    def __init__(
        self,
        requested: RequestedPartition,
        partition: Partition,
        bounds: ReadResult,
        *,
        max_bytes: int,
        min_one: bool = False,
    ) -> None:
        super().__init__(requested, partition, bounds)
        self.max_bytes = max_bytes
        self.min_one = min_one

    @property
    def is_urgent(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """The maximum bytes that it may read; they are reserved from the request's limit."""
        return self.max_bytes


class TieredForFollower(PartitionRead):
    """The error OFFSET_MOVED_TO_TIERED_STORAGE for a follower, sent with the log's offsets (KIP-405)."""

    __slots__ = ()

    @property
    def is_urgent(self) -> bool:
        return True
