"""Reads the topic ``__remote_log_metadata`` from log directories, without a broker. Later calls read only the records
that were written since.

What was read stays valid as long as the last batch that was read is still in the log, or is at the same offset in
another replica: batches with the same offset, leader epoch and checksum have the same log before them. Otherwise, for
example after a truncation, everything is read again.

Damage is never hidden and never stops the reading: each damaged batch, file or record is listed in ``unreadable`` and
skipped. The caller decides whether the remaining records are enough.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from milena.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchView, CorruptBatch, batch_size_at
from milena.protocol.records.crc import crc32c
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.records.remote_log_records import UnknownRemoteLogRecord, UnreadableRemoteLogRecord
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File
from milena.storage.files.names import LOG, offset_of_file
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC

PIECE: Final = 1 << 20
"""Bytes that are read at once."""
_HEADER: Final = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta."""
_COUNT: Final = Struct(">i")
_COUNT_AT: Final = HEADER_SIZE - _COUNT.size
_CHECKED_FROM: Final = 21
"""Position in a batch of the first byte that the checksum covers."""
_COMPRESSED_OR_CONTROL: Final = 0x27
"""Mask of the attributes of batches that are compressed, or control batches."""
_NO_DELTAS_NO_KEY: Final = b"\0\0\0\1"
"""Of a record: attributes, timestamp delta, offset delta, length of the key."""

Apply = Callable[[bytes | None, Offset], None]
"""Applies the value and offset of a record. Raises UnreadableRemoteLogRecord."""


class MetadataContents(Protocol):
    """The records that were read from the topic; the caller supplies the implementation."""

    def applier(self, number: int) -> Apply:
        """Return the function that applies the next record of partition ``number`` of the metadata topic."""
        ...


C = TypeVar("C", bound=MetadataContents)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A damaged part of a partition of the metadata topic. ``unknown``: a newer broker wrote it."""

    number: int
    why: str
    unknown: bool = False


def metadata_folders(disk: Disk, log_dirs: Iterable[str]) -> dict[int, list[str]]:
    """Return the folders of each partition of the metadata topic below ``log_dirs``. Blocks. Raises OSError."""
    folders: dict[int, list[str]] = {}
    for log_dir in log_dirs:
        for name in disk.list(log_dir):
            topic, _, digits = name.rpartition("-")
            if topic == REMOTE_LOG_METADATA_TOPIC and digits.isascii() and digits.isdecimal():
                folders.setdefault(int(digits), []).append(f"{log_dir}/{name}")
    return folders


class _Overtaken(Exception):
    """The log no longer contains what was read from it."""


class _BatchId(NamedTuple):
    """Identifies a batch of a partition, and thereby the log before it."""

    offset: int
    epoch: int
    crc: int


class _Position(NamedTuple):
    """A read position in a log, directly after the batch ``last``; ``last`` is None at the beginning of a log."""

    base: int = 0
    """The first offset of the log's file."""
    last_at: int = 0
    """Where ``last`` begins in that file, in bytes."""
    at: int = 0
    """Where the next batch begins in that file, in bytes."""
    last: _BatchId | None = None
    end: int = 0
    """The offset after the last record of ``last``."""


_START: Final = _Position()


@dataclass(slots=True)
class _Log:
    """The replica of a partition that is read, and the position up to which it was read."""

    folder: str
    position: _Position


class MetadataReader(Generic[C]):
    """Reads all partitions of the metadata topic below some log directories into ``contents``.

    If a partition is in several directories, the longest log is used. Reading blocks.
    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._ends: dict[str, _Position] = {}
        """The end of the log in each folder, for partitions that are in several directories."""
        self._start_over()

    def _start_over(self) -> None:
        self.contents = self._make()
        """The records that were read. It is replaced if everything has to be read again."""
        self.unreadable: list[Unreadable] = []
        """The damage, by partition and position."""
        self._logs: dict[int, _Log] = {}

    @property
    def numbers(self) -> frozenset[int]:
        """The partitions of the metadata topic that were found."""
        return frozenset(self._logs)

    def read_on(self, disk: Disk, log_dirs: Sequence[str]) -> None:
        """Apply the records that were written since the last call. Raises OSError."""
        folders = metadata_folders(disk, log_dirs)
        if self.unreadable:  # the damaged part may have been truncated and fetched again
            self._start_over()
        try:
            if not self._logs.keys() <= folders.keys():
                raise _Overtaken
            self._read_all(disk, folders)
        except _Overtaken:
            self._start_over()
            self._read_all(disk, folders)

    def _read_all(self, disk: Disk, folders: Mapping[int, Sequence[str]]) -> None:
        for number, replicas in sorted(folders.items()):
            log, longest = self._logs.get(number), replicas[0]
            if len(replicas) > 1:
                for folder in replicas:
                    self._ends[folder] = _end_of(disk, folder, self._ends.get(folder, _START))
                longest = max(replicas, key=lambda folder: self._ends[folder].end)
            if log is None:
                log = self._logs[number] = _Log(longest, _START)
            elif log.folder not in replicas or (log.folder != longest and self._ends[longest].end > log.position.end):
                log.folder, log.position = longest, _found_again(disk, longest, log.position)
            _LogReading(disk, number, log, self.contents.applier(number), self.unreadable).run()


class _LogReading:
    """Reads one log from its position to its end, and moves the position."""

    def __init__(self, disk: Disk, number: int, log: _Log, apply: Apply, unreadable: list[Unreadable]) -> None:
        self._disk = disk
        self._number = number
        self._log = log
        self._apply = apply
        self._unreadable = unreadable

    def run(self) -> None:
        """Read the log to its end. Raises _Overtaken, OSError."""
        folder, begin = self._log.folder, self._log.position
        for base in _bases(self._disk, folder, begin):
            file = self._disk.open(_path(folder, base), read_only=True)
            try:
                continues = begin.last is not None and base == begin.base
                if continues and not _is_at(file, begin):
                    raise _Overtaken
                self._file(file, base, begin.at if continues else 0)
            except CorruptBatch as error:  # where the next batch begins is unknown: the next file comes next
                self._damaged(f"{file.path}: {error}")
            finally:
                file.close()

    def _damaged(self, why: str, *, unknown: bool = False) -> None:
        self._unreadable.append(Unreadable(self._number, why, unknown))

    def _file(self, file: File, base: int, position: int) -> None:
        """A partial batch at the end is normal for a log that is being written. Raises CorruptBatch."""
        wanted = PIECE
        while data := file.pread(wanted, position):
            used = self._piece(data, file.path, base, position)
            position += used
            batch_size_at(memoryview(data), used)  # raises if the rest is no batch
            if len(data) < wanted:
                return
            wanted = PIECE if used else 2 * wanted

    def _piece(self, data: bytes, path: str, base: int, position: int) -> int:
        """Apply the complete batches at the beginning of ``data``; return how many bytes they have. Bytes that are no
        batch end it, too."""
        view = memoryview(data)
        at, limit, last = 0, len(data), None
        while limit - at >= HEADER_SIZE:
            offset, length, epoch, magic, crc, attributes, delta = _HEADER.unpack_from(data, at)
            end = at + length + LOG_OVERHEAD
            if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD or end > limit:
                break
            if crc32c(view[at + _CHECKED_FROM : end]) == crc:
                # Nearly all batches have one plain record, whose value is found by position several times faster.
                value = None if attributes & _COMPRESSED_OR_CONTROL else _only_value(data, at, end)
                if value is not None:
                    self._record(value, offset)
                else:
                    self._batch(view[at:end])
            else:
                self._damaged(f"{path}: the batch at offset {offset} has a wrong checksum")
            last = at, offset, epoch, crc, delta
            at = end
        if last is not None:
            at_last, offset, epoch, crc, delta = last
            batch = _BatchId(offset, epoch, crc)
            self._log.position = _Position(base, position + at_last, position + at, batch, offset + delta + 1)
        return at

    def _batch(self, data: memoryview) -> None:
        batch = BatchView(data)
        if batch.is_control:
            return
        try:
            for record in iter_records(batch):
                self._record(record.value, offset_of(batch, record))
        except CorruptBatch as error:
            self._damaged(f"the batch at offset {batch.base_offset}: {error}")

    def _record(self, value: bytes | None, offset: Offset) -> None:
        try:
            self._apply(value, offset)
        except UnreadableRemoteLogRecord as error:
            self._damaged(str(error), unknown=isinstance(error, UnknownRemoteLogRecord))


def _only_value(data: bytes, at: int, end: int) -> bytes | None:
    """Return the value of the record of the uncompressed batch in ``data[at:end]``, if the batch has a single record
    without key, headers and deltas; None otherwise.

    After the header, such a batch has the record's length, the four bytes ``_NO_DELTAS_NO_KEY``, the value's length,
    the value, and the number of headers. Lengths are zigzag varints (even: not negative).
    """
    if _COUNT.unpack_from(data, at + _COUNT_AT)[0] != 1:
        return None
    at += HEADER_SIZE
    if end - at < 8 or data[at] < 0x80 or data[at + 1] >= 0x80:  # all metadata records have a length of two bytes
        return None
    if (data[at] & 0x7F | data[at + 1] << 7) >> 1 != end - at - 2 or data[at + 2 : at + 6] != _NO_DELTAS_NO_KEY:
        return None
    length, begin = data[at + 6], at + 7
    if length >= 0x80:
        length, begin = length & 0x7F | data[begin] << 7, begin + 1
    if length & 1 or begin + (length >> 1) != end - 1 or data[end - 1]:
        return None
    return data[begin : end - 1]


def _bases(disk: Disk, folder: str, position: _Position) -> list[int]:
    """Return the first offsets of the files of a log from ``position`` on. Raises _Overtaken if its file is missing."""
    names = (name for name in disk.list(folder) if name.endswith(LOG))
    bases = sorted(base for name in names if (base := offset_of_file(name)) is not None)
    if position.last is None:
        return bases
    if position.base not in bases:
        raise _Overtaken
    return bases[bases.index(position.base) :]


def _path(folder: str, base: int) -> str:
    return f"{folder}/{base:020d}{LOG}"


def _is_at(file: File, position: _Position) -> bool:
    """Whether the file still has the batch that was read last."""
    header = file.pread(_HEADER.size, position.last_at)
    if len(header) < _HEADER.size or file.size < position.at:
        return False
    offset, _, epoch, _, crc, _, _ = _HEADER.unpack(header)
    return position.last == (offset, epoch, crc)


def _positions(file: File, base: int, at: int = 0) -> Iterator[_Position]:
    """Yield the position after each complete batch with a valid checksum from ``at`` (bytes) on. Bytes that are no
    batch end it."""
    wanted = PIECE
    while data := file.pread(wanted, at):
        view, used = memoryview(data), 0
        while len(data) - used >= HEADER_SIZE:
            offset, length, epoch, magic, crc, _, delta = _HEADER.unpack_from(data, used)
            if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
                return
            end = used + length + LOG_OVERHEAD
            if end > len(data):
                break
            if crc32c(view[used + _CHECKED_FROM : end]) == crc:
                yield _Position(base, at + used, at + end, _BatchId(offset, epoch, crc), offset + delta + 1)
            used = end
        if len(data) < wanted:
            return
        at, wanted = at + used, PIECE if used else 2 * wanted


def _end_of(disk: Disk, folder: str, known: _Position) -> _Position:
    """Return the position after the last valid batch of a log. ``known``: what this function returned before."""
    bases = _bases(disk, folder, _START)
    if not bases:
        return _START
    file = disk.open(_path(folder, bases[-1]), read_only=True)
    try:
        continues = known.base == bases[-1] and known.last is not None and _is_at(file, known)
        before = known if continues else _Position(bases[-1], end=bases[-1])
        last = deque(_positions(file, bases[-1], before.at), 1)
        return last[0] if last else before
    finally:
        file.close()


def _found_again(disk: Disk, folder: str, position: _Position) -> _Position:
    """Return the same position in another replica. Raises _Overtaken if that replica has not what was read."""
    if position.last is None:
        return position
    for base in reversed(_bases(disk, folder, _START)):
        if base <= position.last.offset:
            file = disk.open(_path(folder, base), read_only=True)
            try:
                found = next((one for one in _positions(file, base) if one.last == position.last), None)
            finally:
                file.close()
            if found is not None:
                return found
            break
    raise _Overtaken
