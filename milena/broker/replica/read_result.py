"""The result of a fetch for one partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from milena.protocol.types import LeaderEpoch, NodeId, Offset
from milena.runtime.network import Part
from milena.storage.log.log_read import LogSlice

NOTHING: Final = LogSlice(None, 0, 0, Offset(0))


class Slice(Protocol):
    """Bytes of one segment, local or not."""

    @property
    def length(self) -> int: ...

    def part(self) -> Part:
        """The part to send. The slice must not be empty."""
        ...


class ReadResult(NamedTuple):
    """The result of a fetch for one partition. The bounds were taken before the read."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    upper: Offset
    """Exclusive limit of what this reader may see."""
    slice: Slice = NOTHING
    diverging: tuple[LeaderEpoch, Offset] | None = None
    """The largest epoch not above the reader's, and its end offset here."""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) for read_committed readers."""
    nearest: NodeId | None = None
    """The replica to read from instead."""


def without_file(result: ReadResult) -> ReadResult:
    """The same result with the bytes in memory. Without this, an error of the disk would show only when they are
    sent."""
    if not isinstance(result.slice, LogSlice):
        return result
    try:
        return result._replace(slice=result.slice.taken_out())
    except OSError:
        return result
