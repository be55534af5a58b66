"""The remote segments of one partition and their published metadata, compared with a scenario's expectations.

::

    remote: {seg-0-2: {id: uuid-1, epochs: {0: 0}, log: {0: [0, 0], 1: [1, 0], 2: [2, 0]}}}
    metadata: {uuid-1: {0: 0}}

A segment's name has its first and last offset, and ``/uuid-1`` if two share them. ``id`` is a name for the real id,
known from the first matching segment; ``epochs`` is the checkpoint stored with the log. ``metadata`` has the finished
copies with the epochs of the segments' own records. The first of these counts from the segment's first offset, as in
Kafka, or from the start of the epoch, as the documents write it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from milena.lab.scenarios.script import Fields
from milena.lab.scenarios.tables import Log, Table, TableError, epochs_drawn, epochs_of, log_of
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.types import Offset
from milena.storage.files.checkpoints import decode_epochs
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.serialization import deserialize
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.store.remote_storage import LOG_SUFFIX, IndexType
from milena.tiered.store.tier_names import parse_folder, parse_object

NAME: Final = re.compile(r"seg-(\d+)-(\d+)(?:/\S+)?")
KEYS: Final = frozenset({"id", "epochs", "log"})
NEEDED: Final = frozenset(index.value for index in IndexType if index is not IndexType.TRANSACTION)


class Place(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """The objects of one segment in the tier."""

    id: UUID
    start: int
    epochs: Mapping[int, int]
    log: Log
    lacks: tuple[str, ...] = ()
    """Kinds of objects that are missing."""

    @property
    def end(self) -> int:
        return max(self.log, default=self.start - 1)

    def lines(self, ids: Ids) -> list[str]:
        """As the documents draw it, under its bounds and its name."""
        title = f"seg-{self.start}-{self.end} {ids.name_of(self.id)}"
        return [title, *Table(log=self.log, epochs=self.epochs).lines()]

    def __str__(self) -> str:
        lacks = f", without {', '.join(self.lacks)}" if self.lacks else ""
        return f"seg-{self.start}-{self.end}: epochs {dict(self.epochs)}, log {dict(self.log)}{lacks}"


class Published(NamedTuple):
    """The published metadata of a finished copy."""

    start: int
    epochs: Mapping[int, int]


class Ids:
    """The documents' names of segments, and their ids in this run."""

    def __init__(self) -> None:
        self._known: dict[str, UUID] = {}

    def fits(self, name: str | None, segment: UUID) -> bool:
        """Return whether the segment may have this name. None matches all."""
        if name is None:
            return True
        return self._known[name] == segment if name in self._known else segment not in self._known.values()

    def take(self, name: str | None, segment: UUID) -> None:
        if name is not None:
            self._known[name] = segment

    def name_of(self, segment: UUID) -> str:
        return next((name for name, known in self._known.items() if known == segment), str(segment))


def segments_in(files: Mapping[str, bytes], place: Place) -> list[RemoteSegment]:
    """Return the segments by their first offsets. ``files``: all files in the tier, by path."""
    objects: dict[tuple[int, UUID], dict[str, bytes]] = {}
    for path, data in files.items():
        folder, _, name = path.rpartition("/")
        partition, found = parse_folder(folder.rpartition("/")[2]), parse_object(name)
        if partition is None or found is None:
            continue
        if (partition.topic, partition.topic_id, partition.partition) == place:
            objects.setdefault((found.start_offset, found.id), {})[found.suffix] = data
    return [_segment(start, segment, found) for (start, segment), found in sorted(objects.items())]


def _segment(start: int, segment: UUID, objects: Mapping[str, bytes]) -> RemoteSegment:
    checkpoint = objects.get(IndexType.LEADER_EPOCH.value)
    entries = [] if checkpoint is None else decode_epochs(checkpoint)
    return RemoteSegment(
        segment,
        start,
        {entry.epoch: entry.start for entry in entries},
        records_in(objects.get(LOG_SUFFIX, b"")),
        tuple(sorted((NEEDED | {LOG_SUFFIX}) - set(objects))),
    )


def records_in(data: bytes) -> dict[int, tuple[str, int]]:
    """Return offset to (value, leader epoch) of complete batches."""
    return {
        offset_of(batch, record): ((record.value or b"").decode(errors="replace"), int(batch.leader_epoch))
        for batch in iter_batches(memoryview(bytearray(data)))
        if not batch.is_control
        for record in iter_records(batch)
    }


def published(records: Iterable[tuple[int, bytes]], place: Place) -> dict[UUID, RemoteLogSegmentMetadata]:
    """Return the segments of a partition after these records (offset, value) of the metadata topic, without deleted
    ones."""
    cache = RemoteLogMetadataCache()
    for offset, value in records:
        event = deserialize(value, Offset(offset))
        if event is None:
            continue
        partition = event.segment_id.partition
        if (partition.topic, partition.topic_id, partition.partition) == place:
            cache.apply(event)
    return {segment.id: segment for segment in cache.segments()}


def finished(segments: Mapping[UUID, RemoteLogSegmentMetadata]) -> dict[UUID, Published]:
    """Return the finished copies."""
    return {
        segment: Published(one.start_offset, {entry.epoch: entry.start for entry in one.epochs})
        for segment, one in segments.items()
        if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    }


def tier_lines(kind: str, expected: Fields) -> list[str]:
    """Return an expected ``remote``, ``metadata`` or ``states`` as lines, drawn like the actual state."""
    lines = []
    for name, fields in expected.items():
        if kind == "remote":
            fields = fields or {}
            table = Table.parse({key: value for key, value in fields.items() if key != "id"})
            lines += [f"{name} {fields.get('id', '')}".rstrip(), *table.lines()]
        else:
            lines.append(f"{name}: {epochs_drawn(epochs_of(fields)) if kind == 'metadata' else fields}")
    return lines


def remote_differences(expected: Fields, found: list[RemoteSegment], ids: Ids) -> list[str]:
    """Return the differences as text; empty if the tier has exactly these segments. Matching names are remembered
    then."""
    left, taken, wrong = list(found), {}, []
    for name, fields in expected.items():
        fields = fields or {}
        one = next((segment for segment in left if _is(name, fields, segment, ids)), None)
        if one is None:
            wrong.append(f"remote: no {name} with {dict(fields)}")
        else:
            left.remove(one)
            taken[fields.get("id")] = one.id
    wrong += [f"remote: {ids.name_of(segment.id)} is not expected: {segment}" for segment in left]
    if not wrong:
        for label, segment in taken.items():
            ids.take(label, segment)
    return wrong


def _is(name: str, fields: Fields, segment: RemoteSegment, ids: Ids) -> bool:
    if unknown := set(fields) - KEYS:
        raise TableError(f"a remote segment has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(KEYS))}")
    bounds = NAME.fullmatch(name)
    if bounds is None:
        raise TableError(f"a remote segment is called seg-<first>-<last>, not {name!r}")
    return (
        not segment.lacks
        and (segment.start, segment.end) == (int(bounds[1]), int(bounds[2]))
        and ids.fits(fields.get("id"), segment.id)
        and ("epochs" not in fields or epochs_of(fields["epochs"]) == segment.epochs)
        and ("log" not in fields or log_of(fields["log"]) == segment.log)
    )


def metadata_differences(expected: Fields, found: Mapping[UUID, Published], ids: Ids) -> list[str]:
    """Return the differences as text. The names must be known from ``remote``, which is compared first."""
    by_name = {ids.name_of(segment): one for segment, one in found.items()}
    wrong = [f"metadata: nothing of {name}" for name in expected if name not in by_name]
    wrong += [f"metadata: {name} is not expected: {one}" for name, one in by_name.items() if name not in expected]
    for name, one in by_name.items():
        if name in expected and _from_start(epochs_of(expected[name]), one.start) != _from_start(one.epochs, one.start):
            wrong.append(f"metadata: expected {name} with {dict(expected[name])}, found {dict(one.epochs)}")
    return wrong


def _from_start(epochs: Mapping[int, int], start: int) -> dict[int, int]:
    """Return the epochs with the first one clipped to the start of the segment."""
    return {epoch: max(at, start) for epoch, at in epochs.items()}
