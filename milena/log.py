"""`milena log dump`: what is in the files of a log directory. The kind of a file follows from its name."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from milena.errors import UsageError, UserError
from milena.options import CommandLine, Option, Positional, Values
from protocol.batch import BatchView, CorruptBatch, iter_batches
from protocol.describe import Content, describe_batch
from protocol.uuids import to_text
from runtime.files import RealDisk
from storage import names
from storage.checkpoints import CorruptCheckpoint, decode_clean_shutdown, decode_epochs, decode_partition_metadata
from storage.handle_cache import HandleCache
from storage.index_file import CorruptIndex, IndexFile
from storage.offset_index import OffsetIndex
from storage.producer_snapshot import CorruptSnapshot, decode_snapshot
from storage.time_index import TimeIndex
from storage.txn_index import read_aborted

DUMP = CommandLine(
    "log dump",
    "Print what is in files of a log directory: segments and snapshots with their batches and records (those of the\n"
    "metadata log and of __consumer_offsets decoded), indexes, producer snapshots, checkpoints.",
    options=[
        Option("--no-records", "batches only"),
        Option("--from", "skip batches that end before this offset", "OFFSET", convert=int),
        Option("--content", "data, metadata or offsets, where the folder's name does not tell", "KIND"),
    ],
    positionals=[Positional("FILE", "a file of a log directory", many=True)],
    examples=[
        "milena log dump milena-data/broker-1/data/orders-0/00000000000000000000.log",
        "milena log dump milena-data/controller-100/data/__cluster_metadata-0/*.log",
    ],
)
Lines = Iterator[str]
LOG_LIKE: Final = (names.LOG, ".checkpoint")


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: milena log dump [options] FILE...\n\n`milena log dump --help` says more.")
        return 0
    if arguments[0] != "dump":
        raise UsageError(f"no command `log {arguments[0]}` (did you mean dump?)")
    values = DUMP.parse(arguments[1:])
    if values.help:
        print(DUMP.help())
        return 0
    if not values.file:
        raise UsageError("milena log dump needs the names of files")
    damaged = False
    for path in values.file:
        if len(values.file) > 1:
            print(f"{path}:")
        for line in dump(path, values):
            damaged |= line.startswith("DAMAGED")
            print(line)
    return 1 if damaged else 0


def dump(path: str, values: Values) -> Lines:
    """The lines of one file; damage is a line that begins with DAMAGED. Raises UserError for a file of no kind."""
    reader = reader_of(os.path.basename(path), values)
    if reader is None:
        raise UserError(f"{path}: no file of a log directory has such a name")
    try:
        yield from reader(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except (CorruptBatch, CorruptCheckpoint, CorruptIndex, CorruptSnapshot) as error:
        yield f"DAMAGED: {error}"


def reader_of(name: str, values: Values) -> Callable[[str], Lines] | None:
    """How to read a file of this name; files on their way out keep their kind."""
    name = name.removesuffix(names.DELETED).removesuffix(names.SWAP).removesuffix(names.CLEANED)
    by_suffix: dict[str, Callable[[str], Lines]] = {
        **{suffix: lambda path: batches(path, values) for suffix in LOG_LIKE},
        names.OFFSET_INDEX: offset_index,
        names.TIME_INDEX: time_index,
        names.TXN_INDEX: txn_index,
        names.SNAPSHOT: producers,
        names.EPOCHS: epochs,
        names.PARTITION_METADATA: partition_metadata,
        names.CLEAN_SHUTDOWN: clean_shutdown,
        names.META_PROPERTIES: text,
        "-offset-checkpoint": text,
    }
    return next((reader for suffix, reader in by_suffix.items() if name.endswith(suffix)), None)


def batches(path: str, values: Values) -> Lines:
    content = content_of(path, values.content)
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # the map goes with its last view; closing it would be an error while a batch is still looked at
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else b"")
    position = 0
    for batch in iter_batches(data):
        if batch.last_offset >= (values.found["from"] or 0):
            yield from describe_batch(batch, position, content, records=not values.no_records)
            yield from checked(batch, position)
        position += batch.size_in_bytes
    if position < size:
        yield f"DAMAGED: {size - position} bytes from position {position} on are no whole batch"


def checked(batch: BatchView, position: int) -> Lines:
    try:
        batch.verify_crc()
    except CorruptBatch as error:
        yield f"DAMAGED: the batch at position {position}: {error}"


def content_of(path: str, named: str | None) -> Content:
    """What the records are: as the option says, or by the folder's name."""
    if named is not None:
        try:
            return Content(named)
        except ValueError:
            raise UsageError(f"--content {named}: one of {', '.join(kind.value for kind in Content)}") from None
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    if path.endswith(".checkpoint"):
        return Content.METADATA
    try:
        return Content.of_topic(names.parse_partition_folder(folder).topic)
    except ValueError:
        return Content.DATA


def offset_index(path: str) -> Lines:
    base, disk = base_offset(path), RealDisk()
    for relative, position in entries(OffsetIndex(disk, HandleCache(1), path, base, exists=True)):
        yield f"offset: {base + relative} position: {position}"


def time_index(path: str) -> Lines:
    base, disk = base_offset(path), RealDisk()
    for timestamp, relative in entries(TimeIndex(disk, HandleCache(1), path, base, exists=True)):
        yield f"timestamp: {timestamp} offset: {base + relative}"


def entries(index: IndexFile) -> Iterator[tuple[int, int]]:
    for number in range(len(index)):
        yield index[number]


def base_offset(path: str) -> int:
    base = names.offset_of_file(os.path.basename(path))
    if base is None:
        raise UserError(f"{path}: an index's name begins with its base offset in 20 digits")
    return base


def txn_index(path: str) -> Lines:
    for entry in read_aborted(RealDisk(), path):
        yield (
            f"producerId: {entry.producer_id} firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )


def producers(path: str) -> Lines:
    for producer_id, entry in decode_snapshot(contents(path)):
        last = entry.batches[-1] if entry.batches else None
        yield (
            f"producerId: {producer_id} producerEpoch: {entry.epoch} lastTimestamp: {entry.last_timestamp} "
            f"lastSequence: {entry.last_sequence} lastOffset: {last.last_offset if last else -1} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {entry.txn_first_offset}"
        )


def epochs(path: str) -> Lines:
    for entry in decode_epochs(contents(path)):
        yield f"leaderEpoch: {entry.epoch} startOffset: {entry.start}"


def partition_metadata(path: str) -> Lines:
    yield f"topicId: {to_text(decode_partition_metadata(contents(path)))}"


def clean_shutdown(path: str) -> Lines:
    yield f"brokerEpoch: {decode_clean_shutdown(contents(path))}"


def text(path: str) -> Lines:
    """Files that are text already."""
    yield from contents(path).decode(errors="replace").splitlines()


def contents(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
