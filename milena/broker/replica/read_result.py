"""The result of a fetch for one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.network import Part
from milena.storage.log.log_slice import LogSlice

EMPTY_SLICE: Final = LogSlice(None, 0, 0, Offset(0))


class Slice(Protocol):
    """Bytes of one segment, on the local disk or from the tier."""

    @property
    def length(self) -> int: ...

    def part(self) -> Part:
        """The part to send. The slice must not be empty."""
        ...


@final
class ReadResult:
    """The result of a fetch for one partition. The offsets were taken before the read."""

    __slots__ = (
        "aborted", "diverging", "high_watermark", "last_stable_offset", "log_start_offset", "preferred_replica",
        "slice", "upper",
    )  # fmt: skip

    def __init__(
        self,
        high_watermark: Offset,
        last_stable_offset: Offset,
        log_start_offset: Offset,
        upper: Offset,
        piece: Slice = EMPTY_SLICE,
        diverging: tuple[LeaderEpoch, Offset] | None = None,
        aborted: Sequence[tuple[int, int]] | None = None,
        preferred_replica: NodeId | None = None,
    ) -> None:
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.upper = upper
        """The offset below which this reader may see records."""
        self.slice = piece
        self.diverging = diverging
        """The largest epoch not above the reader's, and its end offset in this log; None if the logs agree."""
        self.aborted = aborted
        """The aborted transactions as (producer id, first offset), for read_committed readers."""
        self.preferred_replica = preferred_replica
        """The replica that the consumer should read from instead (KIP-392)."""

    def with_slice(self, piece: Slice, aborted: Sequence[tuple[int, int]] | None) -> ReadResult:
        """A copy of this result with other records and aborted transactions."""
        bounds = self.high_watermark, self.last_stable_offset, self.log_start_offset, self.upper
        return ReadResult(*bounds, piece, self.diverging, aborted, self.preferred_replica)


def without_file(result: ReadResult) -> ReadResult:
    """A copy of ``result`` with the bytes in memory, so that the connection does not read the file when it sends them.
    If the read fails, ``result`` itself: sending it then fails the connection."""
    if not isinstance(result.slice, LogSlice):
        return result
    try:
        return result.with_slice(result.slice.taken_out(), result.aborted)
    except OSError:
        return result
