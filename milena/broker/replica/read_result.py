"""The result of a fetch for one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, final

from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.network import Part
from milena.storage.log.log_slice import LogSlice

NOTHING: Final = LogSlice(None, 0, 0, Offset(0))


class Slice(Protocol):
    """Bytes of one segment, local or not."""

    @property
    def length(self) -> int: ...

    def part(self) -> Part:
        """The part to send. The slice must not be empty."""
        ...


@final
class ReadResult:
    """The result of a fetch for one partition. The bounds were taken before the read."""

    __slots__ = (
        "aborted", "diverging", "high_watermark", "last_stable_offset", "log_start_offset", "nearest", "slice", "upper",
    )  # fmt: skip

    def __init__(
        self,
        high_watermark: Offset,
        last_stable_offset: Offset,
        log_start_offset: Offset,
        upper: Offset,
        piece: Slice = NOTHING,
        diverging: tuple[LeaderEpoch, Offset] | None = None,
        aborted: Sequence[tuple[int, int]] | None = None,
        nearest: NodeId | None = None,
    ) -> None:
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.upper = upper
        """Exclusive limit of what this reader may see."""
        self.slice = piece
        self.diverging = diverging
        """The largest epoch not above the reader's, and its end offset here."""
        self.aborted = aborted
        """(producer id, first offset) for read_committed readers."""
        self.nearest = nearest
        """The replica to read from instead."""

    def with_slice(self, piece: Slice, aborted: Sequence[tuple[int, int]] | None) -> ReadResult:
        """The same with other records."""
        bounds = self.high_watermark, self.last_stable_offset, self.log_start_offset, self.upper
        return ReadResult(*bounds, piece, self.diverging, aborted, self.nearest)


def without_file(result: ReadResult) -> ReadResult:
    """The same result with the bytes in memory. Without this, an error of the disk would show only when they are
    sent."""
    if not isinstance(result.slice, LogSlice):
        return result
    try:
        return result.with_slice(result.slice.taken_out(), result.aborted)
    except OSError:
        return result
