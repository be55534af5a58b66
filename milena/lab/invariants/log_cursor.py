"""Reads the batches of a log directly from the simulated disk, without the disk port: no faults, no effects on the
node."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from milena.lab.invariants.ledger import CommittedBatch
from milena.lab.world.disk import Storage
from milena.storage.files.names import LOG, segment_file
from milena.storage.log.unified_log import UnifiedLog

_HEAD: Final = struct.Struct(">qiiBIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_LENGTH_STARTS_AT: Final = 12


def batches_in(data: bytes | bytearray) -> Iterator[CommittedBatch]:
    """Yield all batches in a segment's file."""
    position = 0
    while position + _HEAD.size <= len(data):
        base, length, epoch, _, crc, _, delta = _HEAD.unpack_from(data, position)
        size = _LENGTH_STARTS_AT + length
        yield CommittedBatch(base, base + delta, epoch, crc, size)
        position += size


class LogCursor:
    """A position in one log; reading starts from the beginning again after a truncation."""

    def __init__(self) -> None:
        self.next_offset = 0
        self._log: UnifiedLog | None = None
        self._truncations = -1
        self._segment = -1
        self._position = 0

    def read(self, storage: Storage, log: UnifiedLog, upto: int) -> Iterator[CommittedBatch]:
        """Yield the batches that end before ``upto`` and were not read yet."""
        if log is not self._log or log.truncations != self._truncations:
            self._log, self._truncations = log, log.truncations
            self.next_offset, self._segment, self._position = 0, -1, 0
        while self.next_offset < upto:
            inode = (
                storage.files.get(f"{log.folder}/{segment_file(self._segment, LOG)}") if self._segment >= 0 else None
            )
            if inode is None or self._position + _HEAD.size > len(inode.data):
                following = next(
                    (segment.base_offset for segment in log.segments if segment.base_offset > self._segment), None
                )
                if following is None:
                    return
                self._segment, self._position = following, 0
                continue
            base, length, epoch, _, crc, _, delta = _HEAD.unpack_from(inode.data, self._position)
            if base + delta >= upto:
                return
            self._position += _LENGTH_STARTS_AT + length
            self.next_offset = base + delta + 1
            if self.next_offset <= log.log_start_offset:
                continue  # it was deleted, and may differ from the batches of other replicas
            yield CommittedBatch(base, base + delta, epoch, crc, _LENGTH_STARTS_AT + length)
