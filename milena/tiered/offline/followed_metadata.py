"""Reads the metadata topic in log directories again and again: each time only what has come since.

What was read stays valid as long as the batch that was read last is still where it was, or is at the same offset in
another replica: batches with the same offset, leader epoch and checksum have the same log before them. Otherwise, as
after a truncation, everything is read anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from milena.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchView, CorruptBatch, batch_size_at
from milena.protocol.records.crc import crc32c
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.records.remote_log_records import UnreadableRemoteLogRecord
from milena.protocol.types import Offset
from milena.runtime.disk import Disk, File
from milena.storage.files.names import LOG, offset_of_file
from milena.tiered.metadata.event_decoder import EventDecoder
from milena.tiered.offline.metadata_folders import metadata_folders

PIECE: Final = 1 << 20
"""Bytes that are read at once."""
_HEADER: Final = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta."""
_COUNT: Final = Struct(">i")
_COUNT_AT: Final = HEADER_SIZE - _COUNT.size
_CHECKED_FROM: Final = 21
_ODD: Final = 0x27
"""Attributes of batches that are compressed, or control batches."""
_NO_DELTAS_NO_KEY: Final = b"\0\0\0\1"
"""Of a record: attributes, timestamp delta, offset delta, length of the key."""


class UnreadableMetadata(ValueError):
    """A part of the metadata topic, with its partition and why."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


class _Overtaken(Exception):
    """What was read is not in the log any more."""


class _Mark(NamedTuple):
    """A batch, as no other one: by its base offset, leader epoch and checksum."""

    offset: int
    epoch: int
    crc: int


class _Place(NamedTuple):
    """Behind a batch of a log, which lies at ``at`` in the file that begins with offset ``base``. ``end``: the offset
    behind it. ``mark``: None for the beginning of a log."""

    base: int = 0
    at: int = 0
    position: int = 0
    mark: _Mark | None = None
    end: int = 0


_START: Final = _Place()


@dataclass(slots=True)
class _Log:
    folder: str
    place: _Place


class FollowedMetadata:
    """The events of all partitions of the metadata topic below some log directories, as ``EventDecoder`` folds them. If
    a partition is in several directories, the longest log is used. Blocks."""

    def __init__(self, wanted: Callable[[str], bool] = lambda _: True) -> None:
        self._wanted = wanted
        self._ends: dict[str, _Place] = {}
        """By folder, where there are several for a partition."""
        self._forget()

    def _forget(self) -> None:
        self.decoder = EventDecoder(self._wanted)
        self._logs: dict[int, _Log] = {}

    @property
    def numbers(self) -> frozenset[int]:
        """The partitions of the metadata topic that were found."""
        return frozenset(self._logs)

    def read_on(self, disk: Disk, log_dirs: Sequence[str]) -> None:
        """Take what has come. Raises OSError, and UnreadableMetadata; after an error this object is of no use."""
        folders = metadata_folders(disk, log_dirs)
        try:
            if not self._logs.keys() <= folders.keys():
                raise _Overtaken
            self._read_all(disk, folders)
        except _Overtaken:
            self._forget()
            self._read_all(disk, folders)

    def _read_all(self, disk: Disk, folders: Mapping[int, Sequence[str]]) -> None:
        for number, every in sorted(folders.items()):
            log, longest = self._logs.get(number), every[0]
            if len(every) > 1:
                for folder in every:
                    self._ends[folder] = _end_of(disk, folder, self._ends.get(folder, _START))
                longest = max(every, key=lambda folder: self._ends[folder].end)
            if log is None:
                log = self._logs[number] = _Log(longest, _START)
            elif log.folder not in every or (log.folder != longest and self._ends[longest].end > log.place.end):
                log.folder, log.place = longest, _found_again(disk, longest, log.place)
            _Reading(disk, number, log, self.decoder).run()


class _Reading:
    """Reads one log from its place on, and moves that."""

    def __init__(self, disk: Disk, number: int, log: _Log, decoder: EventDecoder) -> None:
        self._disk = disk
        self._number = number
        self._log = log
        self._decoder = decoder

    def run(self) -> None:
        folder, begin = self._log.folder, self._log.place
        for base in _bases(self._disk, folder, begin):
            file = self._disk.open(_path(folder, base), read_only=True)
            try:
                goes_on = begin.mark is not None and base == begin.base
                if goes_on and not _is_at(file, begin):
                    raise _Overtaken
                self._file(file, base, begin.position if goes_on else 0)
            except CorruptBatch as error:
                raise UnreadableMetadata(self._number, f"{file.path}: {error}") from None
            except UnreadableRemoteLogRecord as error:
                raise UnreadableMetadata(self._number, str(error)) from None
            finally:
                file.close()

    def _file(self, file: File, base: int, position: int) -> None:
        """A torn end is normal for a log that is being written."""
        wanted = PIECE
        while data := file.pread(wanted, position):
            used = self._piece(data, file.path, base, position)
            position += used
            if len(data) < wanted:
                return
            wanted = PIECE if used else 2 * wanted

    def _piece(self, data: bytes, path: str, base: int, position: int) -> int:
        """The whole batches at the beginning of ``data``: how many bytes they have."""
        view, take = memoryview(data), self._decoder.take
        at, limit, last = 0, len(data), None
        while limit - at >= HEADER_SIZE:
            offset, length, epoch, magic, crc, attributes, delta = _HEADER.unpack_from(data, at)
            end = at + length + LOG_OVERHEAD
            if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
                batch_size_at(view, at)  # raises
            if end > limit:
                break
            if crc32c(view[at + _CHECKED_FROM : end]) != crc:
                raise UnreadableMetadata(self._number, f"{path}: the batch at offset {offset} has a wrong checksum")
            value = None if attributes & _ODD else _only_value(data, at, end)
            if value is not None:
                take(value, offset)
            else:
                for of_record, one in _values(view[at:end]):
                    take(one, of_record)
            last = at, offset, epoch, crc, delta
            at = end
        if last is not None:
            at_last, offset, epoch, crc, delta = last
            mark = _Mark(offset, epoch, crc)
            self._log.place = _Place(base, position + at_last, position + at, mark, offset + delta + 1)
        return at


def _only_value(data: bytes, at: int, end: int) -> bytes | None:
    """The value of the record of an uncompressed batch, if it has a single one of the usual form."""
    if _COUNT.unpack_from(data, at + _COUNT_AT)[0] != 1:
        return None
    at += HEADER_SIZE
    if end - at < 8 or data[at] < 0x80 or data[at + 1] >= 0x80:  # a length of two bytes, as all of them have
        return None
    if (data[at] & 0x7F | data[at + 1] << 7) >> 1 != end - at - 2 or data[at + 2 : at + 6] != _NO_DELTAS_NO_KEY:
        return None
    length, begin = data[at + 6], at + 7
    if length >= 0x80:
        length, begin = length & 0x7F | data[begin] << 7, begin + 1
    # a zigzag length; behind the value is the number of headers
    if length & 1 or begin + (length >> 1) != end - 1 or data[end - 1]:
        return None
    return data[begin : end - 1]


def _values(batch_bytes: memoryview) -> Iterator[tuple[Offset, bytes | None]]:
    batch = BatchView(batch_bytes)
    if not batch.is_control:
        for record in iter_records(batch):
            yield offset_of(batch, record), record.value


def _bases(disk: Disk, folder: str, place: _Place) -> list[int]:
    """The first offsets of the files from ``place`` on. Raises _Overtaken if its own is gone."""
    names = (name for name in disk.list(folder) if name.endswith(LOG))
    bases = sorted(base for name in names if (base := offset_of_file(name)) is not None)
    if place.mark is None:
        return bases
    if place.base not in bases:
        raise _Overtaken
    return bases[bases.index(place.base) :]


def _path(folder: str, base: int) -> str:
    return f"{folder}/{base:020d}{LOG}"


def _is_at(file: File, place: _Place) -> bool:
    header = file.pread(_HEADER.size, place.at)
    if len(header) < _HEADER.size or file.size < place.position:
        return False
    offset, _, epoch, _, crc, _, _ = _HEADER.unpack(header)
    return place.mark == (offset, epoch, crc)


def _places(file: File, base: int, position: int = 0) -> Iterator[_Place]:
    """Behind each whole batch from ``position`` on, by the headers alone. Ends at damage."""
    wanted = PIECE
    while data := file.pread(wanted, position):
        at = 0
        while len(data) - at >= HEADER_SIZE:
            offset, length, epoch, magic, crc, _, delta = _HEADER.unpack_from(data, at)
            if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
                return
            past = at + length + LOG_OVERHEAD
            if past > len(data):
                break
            yield _Place(base, position + at, position + past, _Mark(offset, epoch, crc), offset + delta + 1)
            at = past
        if len(data) < wanted:
            return
        position, wanted = position + at, PIECE if at else 2 * wanted


def _end_of(disk: Disk, folder: str, known: _Place) -> _Place:
    """Behind the last batch. ``known``: what it was before."""
    bases = _bases(disk, folder, _START)
    if not bases:
        return _START
    file = disk.open(_path(folder, bases[-1]), read_only=True)
    try:
        goes_on = known.base == bases[-1] and known.mark is not None and _is_at(file, known)
        before = known if goes_on else _Place(bases[-1], end=bases[-1])
        last = deque(_places(file, bases[-1], before.position), 1)
        return last[0] if last else before
    finally:
        file.close()


def _found_again(disk: Disk, folder: str, place: _Place) -> _Place:
    """The same place in another replica. Raises _Overtaken if what was read is not there."""
    if place.mark is None:
        return place
    for base in reversed(_bases(disk, folder, _START)):
        if base <= place.mark.offset:
            file = disk.open(_path(folder, base), read_only=True)
            try:
                found = next((one for one in _places(file, base) if one.mark == place.mark), None)
            finally:
                file.close()
            if found is not None:
                return found
            break
    raise _Overtaken
