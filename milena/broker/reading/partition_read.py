"""The result of a fetch for one partition."""

from __future__ import annotations

from milena.broker.replica.fetch_sessions import Wanted
from milena.broker.replica.partition import Partition
from milena.broker.replica.read_result import ReadResult
from milena.protocol.errors import ErrorCode


class PartitionRead:
    """The result for one partition, or its error."""

    __slots__ = ("error", "partition", "result", "wanted")

    def __init__(
        self,
        wanted: Wanted,
        partition: Partition | None,
        result: ReadResult | None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.wanted = wanted
        self.partition = partition
        self.result = result
        self.error = error

    @property
    def is_urgent(self) -> bool:
        """Whether it is sent at once: an error, a diverging epoch, or another replica to read from."""
        result = self.result
        return result is None or result.diverging is not None or result.nearest is not None

    @property
    def has_everything(self) -> bool:
        """Whether the reader has everything. (An empty result may also mean that the limits left no room.)"""
        return not self.is_urgent and self.result is not None and self.wanted.offset >= self.result.upper

    @property
    def high_watermark_has_moved(self) -> bool:
        """Whether the high watermark has moved since the read: a follower's fetch moves it itself, after its read, and
        the follower would not learn of it otherwise."""
        log = None if self.partition is None else self.partition.log
        return self.result is not None and log is not None and log.high_watermark != self.result.high_watermark

    @property
    def size(self) -> int:
        return 0 if self.result is None else self.result.slice.length


class InTier(PartitionRead):
    """The offset is in the remote tier. ``result`` has the bounds; the records are still to be read there."""

    __slots__ = ("max_bytes", "min_one")

    def __init__(
        self, wanted: Wanted, partition: Partition, bounds: ReadResult, *, max_bytes: int, min_one: bool = False
    ) -> None:
        super().__init__(wanted, partition, bounds)
        self.max_bytes = max_bytes
        self.min_one = min_one

    @property
    def is_urgent(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """The size that it may reach; the limit is reduced by as much."""
        return self.max_bytes


class MovedToTier(PartitionRead):
    """A follower has asked for records that have left the leader's disk: an error, sent with the bounds (KIP-405)."""

    __slots__ = ()

    @property
    def is_urgent(self) -> bool:
        return True
