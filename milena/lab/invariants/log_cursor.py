"""Reads the batches of a log directly from the simulated disk, without the disk port: no faults, no effects on the
node."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from milena.lab.invariants.ledger import CommittedBatch
from milena.lab.world.disk import Storage
from milena.lab.world.power import Inode
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
        self._file: Inode | None = None
        self._position = 0

    def read(self, storage: Storage, log: UnifiedLog, upto: int) -> Iterator[CommittedBatch]:
        """Yield the batches that end before ``upto`` and were not read yet."""
        if log is not self._log or log.truncations != self._truncations:
            self._log, self._truncations = log, log.truncations
            self.next_offset, self._segment, self._file = 0, -1, None
        while self.next_offset < upto and (file := self._file_of_next(storage, log)) is not None:
            base, length, epoch, _, crc, _, delta = _HEAD.unpack_from(file.data, self._position)
            if base + delta >= upto:
                return
            self._position += _LENGTH_STARTS_AT + length
            if base + delta < self.next_offset:
                continue  # it was read before the file was cleaned
            self.next_offset = base + delta + 1
            if self.next_offset <= log.log_start_offset:
                continue  # it was deleted, and may differ from the batches of other replicas
            yield CommittedBatch(base, base + delta, epoch, crc, _LENGTH_STARTS_AT + length)

    def _file_of_next(self, storage: Storage, log: UnifiedLog) -> Inode | None:
        """Return the file in which a batch begins at the position, after going on to it; None if there is none."""
        file = _find(storage, log, self._segment)
        if file is not self._file:
            # The cleaner has replaced the file, or has merged it into an earlier one.
            starts = [one.base_offset for one in log.segments if one.base_offset <= self.next_offset]
            self._segment, self._position = starts[-1] if starts else -1, 0
            file = _find(storage, log, self._segment)
        while file is None or self._position + _HEAD.size > len(file.data):
            following = next((one.base_offset for one in log.segments if one.base_offset > self._segment), None)
            if following is None:
                self._file = file
                return None
            self._segment, self._position = following, 0
            file = _find(storage, log, following)
        self._file = file
        return file


def _find(storage: Storage, log: UnifiedLog, segment: int) -> Inode | None:
    return storage.files.get(f"{log.folder}/{segment_file(segment, LOG)}") if segment >= 0 else None
