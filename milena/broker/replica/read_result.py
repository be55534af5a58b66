"""What one partition gives to one fetch."""

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
        """For the network. The slice must not be empty."""
        ...


class ReadResult(NamedTuple):
    """What one partition gives to one fetch. The bounds were taken before the read."""

    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    upper: Offset
    """Exclusive bound of what this reader may see."""
    slice: Slice = NOTHING
    diverging: tuple[LeaderEpoch, Offset] | None = None
    """The largest epoch that is not above the reader's, and where it ends here."""
    aborted: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset) for readers of committed records."""
    nearest: NodeId | None = None
    """The replica to read from instead."""


def without_file(result: ReadResult) -> ReadResult:
    """The same, with the bytes in memory. A disk that fails now shows when they are sent."""
    if not isinstance(result.slice, LogSlice):
        return result
    try:
        return result._replace(slice=result.slice.taken_out())
    except OSError:
        return result
