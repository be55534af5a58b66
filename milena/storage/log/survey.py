"""Finds the valid parts of a metadata log without changing it: runs of consecutive batches, and the damage between.

Recovery truncates a log at the first invalid batch. That is right for the incomplete end after a crash, and wrong for a
flipped bit in the middle: valid batches after the damage were written later, and may be committed. So the survey
continues after damage, and finds the next valid batch by its checksum.

The checksum of a batch covers neither its base offset nor its leader epoch. But a metadata log has no offset gaps, and
each leader begins its epoch with a control batch, so that wrong values are detected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from milena.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, CorruptBatch
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File
from milena.storage.files.names import LOG, offset_of_file, segment_file
from milena.storage.log.batch_scan import ScannedBatch, has_valid_crc, scan_batches

_WINDOW: Final = 1 << 20
_PAGE: Final = 4096
_SHORTEST_HOLE: Final = 8
"""The minimum number of zero bytes of a hole. Fewer may be the beginning of a base offset."""
_MAGIC_AT: Final = 16
_MAGIC_BYTE: Final = b"\x02"


@dataclass(frozen=True, slots=True)
class Piece:
    """Complete batches in one file: ``size`` bytes from ``position`` on."""

    path: str
    position: int
    size: int


@dataclass(slots=True)
class Run:
    """Valid batches with all offsets of ``[start, end)``."""

    start: Offset
    end: Offset
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not a valid batch, or a missing file or end of a file."""

    path: str
    position: int
    offset: Offset
    """The first missing offset."""
    reason: str
    torn: bool
    """Whether it looks like unsynced writes lost in a power failure: pages of zeros, or a file that is too short."""
    misplaced: bool = False
    """Whether it is a complete batch whose base offset or leader epoch is wrong: it was written, and that field is
    damaged."""


@dataclass(slots=True)
class Survey:
    """The result: ``runs`` by ascending offset, and ``damages`` before, between and after them."""

    bases: list[Offset] = field(default_factory=list)
    """The base offsets of the surveyed segments."""
    runs: list[Run] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)

    def run_with(self, offset: int) -> Run | None:
        """Return the run that contains ``offset`` or ends at it, None if there is none."""
        runs = [run for run in self.runs if run.start <= offset <= run.end]
        return runs[-1] if runs else None

    def damage_from(self, offset: int) -> Damage | None:
        """Return the first damage to records from ``offset`` on, None if there is none."""
        return next((damage for damage in self.damages if damage.offset >= offset), None)


class Misplaced(CorruptBatch):
    """A batch is complete, but its base offset is not the next offset, or its leader epoch is impossible."""


class Window:
    """A file with a read buffer of 1 MiB."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._data = b""
        self._at = 0

    def pread(self, length: int, position: int) -> bytes:
        start = position - self._at
        if start < 0 or start + length > len(self._data):
            self._data, self._at, start = self._file.pread(max(length, _WINDOW), position), position, 0
        return self._data[start : start + length]


def segment_bases(disk: Disk, folder: str) -> list[Offset]:
    """Return the base offsets of the segments in ``folder``, ascending; none if it is missing. Raises OSError."""
    try:
        names = disk.list(folder)
    except FileNotFoundError:
        return []
    offsets = ((name, offset_of_file(name)) for name in names)
    return sorted(Offset(base) for name, base in offsets if base is not None and name == segment_file(base, LOG))


def survey(disk: Disk, folder: str, *, since: int = 0) -> Survey:
    """Survey the segments of a metadata log from the one that contains offset ``since`` on. The log is never compacted,
    so that it has no offset gaps. Blocks. Raises OSError."""
    bases = segment_bases(disk, folder)
    first = max(sum(base <= since for base in bases) - 1, 0)
    result = Survey(bases[first:])
    surveyor = _Surveyor(result)
    for base in result.bases:
        path = f"{folder}/{segment_file(base, LOG)}"
        file = disk.open(path, read_only=True)
        try:
            surveyor.look_at(path, base, Window(file), file.size)
        finally:
            file.close()
    return result


def batches_of(disk: Disk, run: Run) -> Iterator[tuple[str, ScannedBatch]]:
    """Yield each batch of ``run`` with the path of its file. Raises OSError."""
    for piece in run.pieces:
        file = disk.open(piece.path, read_only=True)
        try:
            for batch in scan_batches(Window(file), piece.position, piece.position + piece.size):
                yield piece.path, batch
        finally:
            file.close()


class _Surveyor:
    def __init__(self, result: Survey) -> None:
        self._survey = result
        self._next = Offset(0)
        """The next offset."""
        self._epoch = -1
        """The leader epoch of the last valid batch."""
        self._whole = False
        """Whether the next batch belongs to the last run."""

    def look_at(self, path: str, base: Offset, source: Window, size: int) -> None:
        """Survey one segment; they are passed in ascending order."""
        if self._whole and base != self._next:
            reason = f"the segment before it ends at offset {self._next}"
            self._add_damage(path, 0, self._next, reason, torn=base > self._next)
        self._next = max(base, self._next)
        position = 0
        while position < size:
            start = position
            try:
                for batch in scan_batches(source, position, size):
                    self._check(source, batch, size)
                    position += batch.size
                    self._add_batch(path, start, position, batch)
            except CorruptBatch as error:
                missing = self._next
                following = self._find(source, position, size)
                end = size if following is None else following.position
                torn = _has_hole(source, position, end) or (following is None and _is_short(source, position, size))
                misplaced = isinstance(error, Misplaced)
                self._add_damage(path, position, missing, str(error), torn=torn, misplaced=misplaced)
                if following is not None:
                    self._next, self._epoch = Offset(following.base_offset), following.leader_epoch
                position = end

    def _check(self, source: Window, batch: ScannedBatch, end: int) -> None:
        if not has_valid_crc(source, batch):
            raise CorruptBatch("wrong checksum")
        if batch.base_offset != self._next:
            raise Misplaced(f"offset {batch.base_offset} where {self._next} is expected")
        if not self._may_have_epoch(source, batch, end):
            raise Misplaced(f"leader epoch {batch.leader_epoch}, which neither begins there nor continues")

    def _may_have_epoch(self, source: Window, batch: ScannedBatch, end: int) -> bool:
        """Whether the leader epoch of ``batch`` is possible: it is that of the previous batch, or a later one. A later
        one must begin with a control batch, and the next batch must continue it. Without a previous batch only the next
        one is checked."""
        epoch = batch.leader_epoch
        if epoch == self._epoch:
            return True
        if self._epoch >= 0 and (epoch < self._epoch or not batch.is_control):
            return False
        following = self._batch_at(source, batch.position + batch.size, end)
        if following is None or following.is_control or following.leader_epoch == epoch:
            return True
        other = self._batch_at(source, following.position + following.size, end)
        return other is not None and other.leader_epoch == epoch

    def _add_batch(self, path: str, start: int, position: int, batch: ScannedBatch) -> None:
        """Add ``batch``, which ends at ``position``, to the run of valid batches that begins at ``start``."""
        runs = self._survey.runs
        if not self._whole or not runs:
            runs.append(Run(Offset(batch.base_offset), Offset(batch.base_offset)))
        run = runs[-1]
        piece = Piece(path, start, position - start)
        if run.pieces and run.pieces[-1].path == path:
            run.pieces[-1] = piece
        else:
            run.pieces.append(piece)
        run.end = self._next = Offset(batch.last_offset + 1)
        self._epoch = batch.leader_epoch
        self._whole = True

    def _add_damage(
        self, path: str, position: int, offset: Offset, reason: str, *, torn: bool, misplaced: bool = False
    ) -> None:
        self._survey.damages.append(Damage(path, position, offset, reason, torn, misplaced))
        self._whole = False

    def _find(self, source: Window, start: int, end: int) -> ScannedBatch | None:
        """Return the next valid batch after ``start``, None if there is none. A batch with a higher base offset than
        the batch after it is not valid: the checksum does not cover the base offset."""
        for position in _candidates(source, start + 1, end):
            batch = self._batch_at(source, position, end)
            if batch is not None:
                after = self._batch_at(source, position + batch.size, end)
                if after is None or after.base_offset > batch.base_offset:
                    return batch
        return None

    def _batch_at(self, source: Window, position: int, end: int) -> ScannedBatch | None:
        """Return the batch at ``position`` if it has a valid checksum and its offset and epoch may follow, else
        None."""
        if position + HEADER_SIZE > end:
            return None
        try:
            batch = next(scan_batches(source, position, end, chunk=HEADER_SIZE))
        except CorruptBatch:
            return None
        fits = batch.base_offset >= self._next and batch.leader_epoch >= self._epoch
        return batch if fits and has_valid_crc(source, batch) else None


def _candidates(source: Window, start: int, end: int) -> Iterator[int]:
    """Yield the positions where a batch may begin: the magic byte is right."""
    at = start
    while at + HEADER_SIZE <= end:
        data = source.pread(min(_WINDOW, end - at), at)
        last = len(data) - HEADER_SIZE
        at_magic = data.find(_MAGIC_BYTE, _MAGIC_AT)
        while 0 <= at_magic - _MAGIC_AT <= last:
            yield at + at_magic - _MAGIC_AT
            at_magic = data.find(_MAGIC_BYTE, at_magic + 1)
        at += last + 1


def _has_hole(source: Window, start: int, end: int) -> bool:
    """Whether a page between ``start`` and ``end`` has only zeros: it was never written to the disk."""
    page = start - start % _PAGE
    while page < end:
        first, last = max(page, start), min(page + _PAGE, end)
        data = source.pread(last - first, first)
        if len(data) >= _SHORTEST_HOLE and not any(data):
            return True
        page += _PAGE
    return False


def _is_short(source: Window, position: int, size: int) -> bool:
    """Whether the file ends within the batch at ``position``."""
    if position + HEADER_SIZE > size:
        return True
    length = int.from_bytes(source.pread(4, position + 8), "big")
    return position + length + LOG_OVERHEAD > size
