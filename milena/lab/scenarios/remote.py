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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from milena.lab.scenarios.maps import map_of, map_rows
from milena.lab.scenarios.script import Fields
from milena.lab.scenarios.tables import Log, Mark, Row, Table, TableError, epochs_drawn, epochs_of, log_of
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records, offset_of
from milena.protocol.types import Offset
from milena.storage.files.checkpoints import decode_epochs
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.serialization import deserialize
from milena.tiered.segments.segment_metadata import RemoteLogSegmentState
from milena.tiered.store.remote_storage import LOG_SUFFIX, IndexType
from milena.tiered.store.tier_names import parse_folder, parse_object

NAME: Final = re.compile(r"seg-(\d+)-(\d+)(?:/\S+)?")
KEYS: Final = frozenset({"id", "epochs", "log"})
FIRST_EPOCH: Final = "Kafka starts the first leader epoch of a segment at the segment's base offset"
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

    def titled(self, segment: RemoteSegment) -> str:
        """Return a segment's bounds, and its name if it has one."""
        bounds = f"seg-{segment.start}-{segment.end}"
        return f"{bounds} {self.name_of(segment.id)}" if segment.id in self._known.values() else bounds

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


def listing(records: Iterable[tuple[int, bytes]], place: Place) -> RemoteLogMetadataCache:
    """Return the segments of a partition after these records (offset, value) of the metadata topic."""
    cache = RemoteLogMetadataCache()
    for offset, value in records:
        event = deserialize(value, Offset(offset))
        if event is None:
            continue
        partition = event.segment_id.partition
        if (partition.topic, partition.topic_id, partition.partition) == place:
            cache.apply(event)
    return cache


def finished(cache: RemoteLogMetadataCache) -> dict[UUID, Published]:
    """Return the finished copies."""
    return {
        one.id: Published(one.start_offset, {entry.epoch: entry.start for entry in one.epochs})
        for one in cache.segments()
        if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    }


def expected_rows(kind: str, expected: Fields) -> list[Row]:
    """Return the rows of an expected ``remote``, ``metadata``, ``maps`` or ``states`` that no run was compared with."""
    if kind == "remote":
        rows = remote_rows([Pair(name, fields or {}, None, fits=False) for name, fields in expected.items()], Ids())
    elif kind == "metadata":
        rows = metadata_rows(expected, {}, Ids())
    elif kind == "maps":
        rows = map_rows({name: map_of(fields) for name, fields in expected.items()}, {})
    else:
        rows = [Row(f"{name}: {fields}", None, Mark.DIFFERS) for name, fields in expected.items()]
    return [row for row in rows if row.expected is not None]


class Pair(NamedTuple):
    """An expected segment and the segment of the run beside it. A field is None if that segment is missing."""

    name: str | None
    fields: Fields
    found: RemoteSegment | None
    fits: bool


def paired(expected: Fields, found: Sequence[RemoteSegment], ids: Ids) -> list[Pair]:
    """Return the expected segments in their order, each with the segment that fits, or else with one of the same
    offsets; then the segments that are not expected."""
    left, pairs = list(found), []
    for name, fields in expected.items():
        fields = fields or {}
        one = next((segment for segment in left if _is(name, fields, segment, ids)), None)
        if one is not None:
            left.remove(one)
        pairs.append(Pair(name, fields, one, fits=one is not None))
    for index, pair in enumerate(pairs):
        if not pair.fits:
            one = next((segment for segment in left if f"seg-{segment.start}-{segment.end}" == _title(pair)[0]), None)
            if one is not None:
                left.remove(one)
                pairs[index] = pair._replace(found=one)
    return pairs + [Pair(None, {}, segment, fits=False) for segment in left]


def remote_differences(pairs: Sequence[Pair], ids: Ids) -> list[str]:
    """Return the differences as text; empty if the tier has exactly the expected segments. Their names are remembered
    then."""
    wrong = [f"remote: no {one.name} with {dict(one.fields)}" for one in pairs if one.name is not None and not one.fits]
    wrong += [
        f"remote: {ids.name_of(one.found.id)} is not expected: {one.found}"
        for one in pairs
        if one.found is not None and not one.fits
    ]
    if not wrong:
        for one in pairs:
            assert one.found is not None
            ids.take(one.fields.get("id"), one.found.id)
    return wrong


def remote_rows(pairs: Sequence[Pair], ids: Ids) -> list[Row]:
    """Return the rows of all segments: name, records and leader epochs."""
    rows: list[Row] = []
    for pair in pairs:
        expected = Table.parse({key: value for key, value in pair.fields.items() if key != "id"})
        found = pair.found
        actual = Table() if found is None else Table(log=found.log, epochs=found.epochs)
        wanted = None if pair.name is None else " ".join(_title(pair))
        title = None if found is None else ids.titled(found)
        rows.append(Row(wanted, title, Mark.SAME if pair.fits else Mark.DIFFERS))
        rows += expected.compared(actual)
    return rows


def _title(pair: Pair) -> list[str]:
    """Return the bounds of an expected segment, and its name."""
    bounds = (pair.name or "").partition("/")[0]
    return [bounds, *([pair.fields["id"]] if "id" in pair.fields else [])]


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
        if name in expected and not _same_epochs(epochs_of(expected[name]), one):
            wrong.append(f"metadata: expected {name} with {dict(expected[name])}, found {dict(one.epochs)}")
    return wrong


def metadata_rows(expected: Fields, found: Mapping[UUID, Published], ids: Ids) -> list[Row]:
    """Return a row for each expected segment, and then for the others."""
    by_name = {ids.name_of(segment): one for segment, one in found.items()}
    rows = []
    for name in [*expected, *(name for name in by_name if name not in expected)]:
        left = epochs_of(expected[name]) if name in expected else None
        right = by_name.get(name)
        expected_text = None if left is None else f"{name}: {epochs_drawn(left)}"
        actual = None if right is None else f"{name}: {epochs_drawn(right.epochs)}"
        if expected_text == actual:
            rows.append(Row(expected_text, actual, Mark.SAME))
        elif left is not None and right is not None and _same_epochs(left, right):
            rows.append(Row(expected_text, actual, Mark.ACCEPTED, FIRST_EPOCH))
        else:
            rows.append(Row(expected_text, actual, Mark.DIFFERS))
    return rows


def _same_epochs(expected: Mapping[int, int], found: Published) -> bool:
    return _from_start(expected, found.start) == _from_start(found.epochs, found.start)


def _from_start(epochs: Mapping[int, int], start: int) -> dict[int, int]:
    """Return the epochs with the first one clipped to the start of the segment."""
    return {epoch: max(at, start) for epoch, at in epochs.items()}
