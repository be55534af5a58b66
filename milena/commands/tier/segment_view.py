"""`milena tier show`: prints the metadata, the events, the files and the log of one segment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final, NotRequired, TypedDict

from milena.command_line.errors import UserError
from milena.command_line.options import Values
from milena.command_line.table import say
from milena.commands.tier.cleaning_view import Cleaning, CleaningsShown, remark
from milena.commands.tier.listing import verdict
from milena.commands.tier.opening import Opened
from milena.protocol.uuids import to_text
from milena.storage.files.checkpoints import CorruptCheckpoint, decode_epochs
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from milena.tiered.offline.metadata_history import LoggedEvent
from milena.tiered.reading.log_contents import LogContents, read_contents
from milena.tiered.rebuilding.rebuilt_metadata import NotASegment, rebuilt
from milena.tiered.segments.cleanings import Cleanings
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentUpdate,
    TopicIdPartition,
)
from milena.tiered.store.remote_storage import LOG_SUFFIX, IndexType, RemoteStorageError, StoredSegment

ENTRY_SIZES: Final = {IndexType.OFFSET: 8, IndexType.TIMESTAMP: 12, IndexType.TRANSACTION: 34}


class Found:
    """A segment: its files, its metadata, or both."""

    def __init__(self, stored: StoredSegment | None, metadata: RemoteLogSegmentMetadata | None) -> None:
        self.stored = stored
        self.metadata = metadata

    @property
    def segment_id(self) -> RemoteLogSegmentId:
        known = self.stored or self.metadata
        assert known is not None
        return known.segment_id


async def find(opened: Opened, word: str, *, or_partition: bool = False) -> Found:
    """Return the segment whose id starts with ``word``. Raises UserError if there is no such segment, or more than one.

    ``or_partition``: the command also accepts TOPIC:PARTITION."""
    stored = {one.segment_id: one for one in await opened.storage.segments()}
    described = opened.history.events.keys() if opened.history else ()
    ids = [one for one in stored.keys() | set(described) if to_text(one.id).startswith(word)]
    if not ids and word in {one.partition.topic for one in stored.keys() | set(described)}:
        partition = f"write TOPIC:PARTITION, as in {word}:0, or " if or_partition else ""
        raise UserError(f"{word} is a topic: {partition}give a segment's id; `milena tier ls {word}` lists them")
    if not ids or not word:
        raise UserError(f"there is no segment {word}; `milena tier ls` lists them")
    if len(ids) > 1:
        raise UserError(f"{word} may be any of {', '.join(sorted(to_text(one.id) for one in ids))}")
    cache = opened.history.caches.get(ids[0].partition) if opened.history else None
    return Found(stored.get(ids[0]), cache.get(ids[0].id) if cache else None)


async def readable_metadata(opened: Opened, found: Found) -> RemoteLogSegmentMetadata:
    """Return the segment's metadata, which are needed to read its objects; if the metadata topic has none, they are
    derived from its files. Raises UserError."""
    if found.metadata is not None:
        return found.metadata
    try:
        assert found.stored is not None
        return (await rebuilt(opened.storage, found.stored)).metadata
    except NotASegment as error:
        raise UserError(f"segment {to_text(found.segment_id.id)}: {error}") from None


async def show(values: Values, opened: Opened) -> int:
    """Print the events, files and contents of a segment."""
    found = await find(opened, values.segment)
    plain = await describe(opened, found)
    for line in [json.dumps(plain)] if values.json else lines(plain):
        say(line)
    return 0


class Event(TypedDict):
    """An event of a segment in the metadata topic."""

    metadata_partition: int
    offset: int
    state: str
    broker: int
    timestamp_ms: int
    accepted: bool
    leader_epoch: int | None
    """The author's leader epoch; null if the event has none, as those of Kafka's brokers."""
    fenced: bool
    """Whether the event is fenced: it follows a fence, or a record, of a higher leader epoch."""
    republishes: bool
    """Whether it republishes a segment whose deletion had started."""


class Segment(TypedDict):
    """A segment, for ``--json``."""

    id: str
    topic: str
    topic_id: str
    partition: int
    history: list[Event]
    files: dict[str, int]
    metadata: NotRequired[dict[str, object]]
    cleaning: NotRequired[Cleaning]
    log: NotRequired[dict[str, object]]
    indexes: NotRequired[dict[str, object]]
    """By suffix: entries, producers, or the checkpoint's content; an error text if it is unreadable."""
    unreadable: NotRequired[str]


async def describe(opened: Opened, found: Found) -> Segment:
    """Return the segment for ``--json``."""
    partition = found.segment_id.partition
    plain: Segment = {
        "id": to_text(found.segment_id.id),
        "topic": partition.topic,
        "topic_id": to_text(partition.topic_id),
        "partition": partition.partition,
        "history": _history(opened, found.segment_id),
        "files": dict(sorted(found.stored.objects.items())) if found.stored else {},
    }
    metadata = found.metadata
    if metadata is not None:
        segments = opened.history.segments(partition) if opened.history else []
        plain["metadata"] = {
            "start_offset": metadata.start_offset,
            "end_offset": metadata.end_offset,
            "epochs": [[epoch, start] for epoch, start in metadata.epochs],
            "state": metadata.state.name,
            "size": metadata.size,
            "max_timestamp_ms": metadata.max_timestamp_ms,
            "broker": metadata.broker_id,
            "doubtful": metadata.at_risk,
            "first_dirty_offset": _first_dirty(opened, partition),
            "custom_metadata": metadata.custom_metadata.hex() if metadata.custom_metadata else None,
            "lineage": verdict(metadata, await opened.lineage(partition, segments)),
        }
        cache = opened.history.caches.get(partition) if opened.history else None
        plain["cleaning"] = CleaningsShown(Cleanings() if cache is None else cache.cleanings, segments).of(metadata)
    if found.stored is not None and LOG_SUFFIX in found.stored.objects:
        try:
            known = await readable_metadata(opened, found)
            plain["log"] = _log(await read_contents(opened.storage, known))
            plain["indexes"] = await _indexes(opened, found.stored, known)
        except (UserError, RemoteStorageError) as error:
            plain["unreadable"] = str(error)
    return plain


def _first_dirty(opened: Opened, partition: TopicIdPartition) -> int | None:
    """Return the offset at which the next cleaning of the partition starts; None if no cleaning was finished."""
    cache = opened.history.caches.get(partition) if opened.history else None
    return None if cache is None or cache.cleaned_to is None else cache.cleaned_to.offset


def _history(opened: Opened, segment_id: RemoteLogSegmentId) -> list[Event]:
    return plain_history(opened.history.events.get(segment_id, []) if opened.history else [])


def plain_history(events: Sequence[LoggedEvent]) -> list[Event]:
    """Return the events of one segment for ``--json``."""
    return [
        {
            "metadata_partition": one.number,
            "offset": one.offset,
            "state": one.event.state.name,
            "broker": one.event.broker_id,
            "timestamp_ms": one.event.event_timestamp_ms,
            "accepted": one.accepted,
            "leader_epoch": None if one.event.leader_epoch == UNFENCED else one.event.leader_epoch,
            "fenced": one.fenced,
            "republishes": isinstance(one.event, RemoteLogSegmentUpdate) and one.event.republishes,
        }
        for one in events
    ]


def _log(contents: LogContents) -> dict[str, object]:
    return {
        "batches": contents.batches,
        "records": contents.records,
        "first_offset": contents.first_offset,
        "last_offset": contents.last_offset,
        "max_timestamp_ms": contents.max_timestamp_ms,
        "epochs": [[epoch, start] for epoch, start in contents.epochs],
        "compression": sorted(contents.codecs),
        "damage": [*(f"{where} has a wrong checksum" for where in contents.bad_checksums), *contents.damage],
    }


async def _indexes(opened: Opened, stored: StoredSegment, metadata: RemoteLogSegmentMetadata) -> dict[str, object]:
    """Return the contents of the segment's files other than its log, by suffix: entries, producers, or the checkpoint's
    content; an error text if a file is unreadable."""
    found: dict[str, object] = {
        index.value: stored.objects[index.value] // size
        for index, size in ENTRY_SIZES.items()
        if index.value in stored.objects
    }
    for index in (IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH):
        if index.value in stored.objects:
            data = await opened.storage.fetch_index(metadata, index)
            try:
                if index is IndexType.LEADER_EPOCH:
                    found[index.value] = [[epoch, start] for epoch, start in decode_epochs(data)]
                else:
                    found[index.value] = len(decode_snapshot(data))
            except (CorruptCheckpoint, CorruptSnapshot) as error:
                found[index.value] = f"damaged: {error}"
    return found


def lines(plain: Segment) -> Iterator[str]:
    """Yield the segment as lines of text."""
    yield f"{plain['topic']}-{plain['partition']}  segment {plain['id']}  topic id {plain['topic_id']}"
    for key, value in (plain.get("metadata") or {"metadata": "none"}).items():
        yield f"  {key}: {_text(value)}"
    if "cleaning" in plain:
        yield from _cleaning_lines(plain["cleaning"])
    yield "history:"
    yield from map(event_line, plain["history"])
    yield "files:"
    for suffix, size in plain["files"].items():
        content = plain.get("indexes", {}).get(suffix)
        entries = "" if content is None else f"  {_entries(suffix, content)}"
        yield f"  {suffix:<26} {size:>12} bytes{entries}"
    if "log" in plain:
        yield "log:"
        for key, value in plain["log"].items():
            yield f"  {key}: {_text(value)}"
    if "unreadable" in plain:
        yield f"unreadable: {plain['unreadable']}"


def _cleaning_lines(plain: Cleaning) -> Iterator[str]:
    if plain["cleaner_offsets"] or plain["replaces"] or not plain["counts"]:
        yield f"  cleaning: {remark(plain)}"
        yield f"  replaces: {_text(plain['replaces'])}"


def event_line(event: Event) -> str:
    """Return an event as a line of text."""
    where = f"{event['metadata_partition']}:{event['offset']}"
    who = f"broker {event['broker']}" + (f" in {event['leader_epoch']}" if event["leader_epoch"] is not None else "")
    return f"  {where:<10} {event['state']:<24} {who}  at {event['timestamp_ms']} ms{_remark(event)}"


def _remark(event: Event) -> str:
    if event["fenced"]:
        return "  (fenced: a later leader had published its leader epoch fence)"
    if not event["accepted"]:
        return "  (invalid transition, ignored)"
    return "  (republished after a former leader started to delete it)" if event["republishes"] else ""


def _entries(suffix: str, content: object) -> str:
    if not isinstance(content, int):
        return _text(content)
    return f"{content} {'producers' if suffix == IndexType.PRODUCER_SNAPSHOT.value else 'entries'}"


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"{one[0]} from {one[1]}" if isinstance(one, list) else str(one) for one in value) or "none"
    return "none" if value is None else str(value)
