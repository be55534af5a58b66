"""The content of the files of a log directory as lines of text (Kafka's DumpLogSegments).

The name of a file determines its kind, as in Kafka. Nothing is changed or locked: the file of a running node may end
within a batch.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from milena.protocol.records.batch import BatchView, CorruptBatch, batch_size_at
from milena.protocol.records.describe import Content, describe_batch
from milena.protocol.uuids import to_text
from milena.storage.files import checkpoints
from milena.storage.files.names import offset_of_file
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")


class Damage(Exception):
    """The file is damaged; the message says how and where."""


class UnknownKind(Exception):
    """The file's name does not match any kind of file that can be printed."""


@dataclass(frozen=True, slots=True)
class Range:
    """Which batches of a log are printed."""

    records: bool = True
    from_offset: int = 0
    max_batches: int | None = None


def dump(path: str, wanted: Range) -> Iterator[str]:
    """Return the lines of one file. Raises UnknownKind at once. The iterator raises OSError, and Damage after it has
    yielded the lines that precede the damage."""
    file = Path(path)
    name = file.name.removesuffix(".deleted")
    suffix = file.suffixes[-2] if file.name.endswith(".deleted") and len(file.suffixes) > 1 else file.suffix
    if suffix == ".log" or (suffix == ".checkpoint" and not name.endswith("-checkpoint")):
        return _batches(file, wanted)
    reader = _TEXTS.get(name) or _BINARIES.get(suffix)
    if reader is None:
        kinds = ", ".join([".log", ".checkpoint", *_BINARIES, *_TEXTS])
        raise UnknownKind(f"the name does not end like a known kind of file ({kinds})")
    return reader(file)


def _batches(file: Path, wanted: Range) -> Iterator[str]:
    content = (
        Content.METADATA if file.suffix == ".checkpoint" else Content.of_topic(file.parent.name.rpartition("-")[0])
    )
    data = _mapped(file)
    position = shown = 0
    while position < len(data) and shown != wanted.max_batches:
        try:
            size = batch_size_at(data, position)
        except CorruptBatch as error:
            raise Damage(f"at position {position}: {error}") from None
        if size is None or position + size > len(data):
            raise Damage(f"{len(data) - position} bytes at position {position} are not a complete batch")
        batch = BatchView(data[position : position + size])
        if batch.last_offset >= wanted.from_offset:
            yield from describe_batch(batch, position, content, records=wanted.records)
            shown += 1
            if not batch.is_valid:
                raise Damage(f"the batch at position {position} has a wrong CRC")
        position += size


def _mapped(file: Path) -> memoryview:
    with file.open("rb") as opened:
        if not file.stat().st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))


def _entries(file: Path, shape: struct.Struct) -> Iterator[tuple[int, ...]]:
    data = file.read_bytes()
    complete = len(data) - len(data) % shape.size
    yield from shape.iter_unpack(data[:complete])
    if complete < len(data):
        raise Damage(f"{len(data) - complete} bytes at position {complete} are not a complete entry of {shape.size}")


def _base(file: Path) -> int:
    base = offset_of_file(file.name)
    if base is None:
        raise Damage("the name has no base offset")
    return base


def _offset_index(file: Path) -> Iterator[str]:
    base, last = _base(file), -1
    for relative, position in _entries(file, _OFFSET_ENTRY):
        if relative <= last and (relative, position) != (0, 0):
            raise Damage(f"offset {base + relative} follows {base + last}")
        last = max(last, relative)
        yield f"offset: {base + relative} position: {position}"


def _time_index(file: Path) -> Iterator[str]:
    base, last = _base(file), -1
    for timestamp, relative in _entries(file, _TIME_ENTRY):
        if timestamp < last:
            raise Damage(f"timestamp {timestamp} follows {last}")
        last = timestamp
        yield f"timestamp: {timestamp} offset: {base + relative}"


def _aborted(file: Path) -> Iterator[str]:
    for version, producer, first, end, stable in _entries(file, _ABORTED_ENTRY):
        yield (
            f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {end} "
            f"lastStableOffset: {stable}"
        )


def _producers(file: Path) -> Iterator[str]:
    try:
        found = decode_snapshot(file.read_bytes())
    except CorruptSnapshot as error:
        raise Damage(str(error)) from None
    for producer, entry in found:
        first = -1 if entry.txn_first_offset is None else entry.txn_first_offset
        yield (
            f"producerId: {producer} producerEpoch: {entry.epoch} coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {first} lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
            f"lastTimestamp: {entry.last_timestamp}"
        )


def _text_of(lines: Callable[[bytes], Iterator[str]]) -> Callable[[Path], Iterator[str]]:
    def read(file: Path) -> Iterator[str]:
        try:
            yield from lines(file.read_bytes())
        except checkpoints.CorruptCheckpoint as error:
            raise Damage(str(error)) from None

    return read


def _epochs(data: bytes) -> Iterator[str]:
    return (f"leaderEpoch: {entry.epoch} startOffset: {entry.start}" for entry in checkpoints.decode_epochs(data))


def _offsets(data: bytes) -> Iterator[str]:
    found = checkpoints.decode_offsets(data)
    return (f"{topic}-{partition}: {offset}" for (topic, partition), offset in found.items())


def _partition(data: bytes) -> Iterator[str]:
    yield f"topicId: {to_text(checkpoints.decode_partition_metadata(data))}"


def _clean_shutdown(data: bytes) -> Iterator[str]:
    yield f"brokerEpoch: {checkpoints.decode_clean_shutdown(data)}"


def _plain(data: bytes) -> Iterator[str]:
    yield data.decode(errors="backslashreplace").rstrip("\n")


_BINARIES: Final = {
    ".index": _offset_index,
    ".timeindex": _time_index,
    ".txnindex": _aborted,
    ".snapshot": _producers,
}
_TEXTS: Final = {
    "leader-epoch-checkpoint": _text_of(_epochs),
    "replication-offset-checkpoint": _text_of(_offsets),
    "recovery-point-offset-checkpoint": _text_of(_offsets),
    "log-start-offset-checkpoint": _text_of(_offsets),
    "cleaner-offset-checkpoint": _text_of(_offsets),
    "partition.metadata": _text_of(_partition),
    ".kafka_cleanshutdown": _text_of(_clean_shutdown),
    "meta.properties": _text_of(_plain),
    "quorum-state": _text_of(_plain),
}
