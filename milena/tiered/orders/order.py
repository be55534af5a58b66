"""A work order: what the leader of a compacted partition wants to be cleaned, and how.

It lies in the tier's staging prefix as ``PARTITION/EPOCH-ID/order.json``, with the producers at the end of what is to
be cleaned (``producers.snapshot``). Nothing in it is secret: what comes of it counts if the leader finds it right.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

from milena.protocol.records.remote_log_records import UnreadableRemoteLogRecord
from milena.protocol.types import LeaderEpoch, Offset
from milena.protocol.uuids import to_text
from milena.tiered.cleaning.window import Source, Window
from milena.tiered.metadata.serialization import deserialize, serialize
from milena.tiered.orders.texts import BadText, Fields
from milena.tiered.segments.cleaner_offsets import CleanerOffset, CleanerOffsets
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, TopicIdPartition
from milena.tiered.store.staging import work_folder

VERSION: Final = 1
ORDER: Final = "order.json"
PRODUCERS: Final = "producers.snapshot"
MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class OrderedGroup:
    """Neighbouring segments that become one. ``deletes_at``: the time (ms) by which tombstones and markers may go;
    None: none may, since what they delete may still be on the leader's disk."""

    sources: tuple[Source, ...]
    deletes_at: int | None

    @property
    def first(self) -> Offset:
        return self.sources[0].first

    @property
    def last(self) -> Offset:
        return self.sources[-1].last

    @property
    def size(self) -> int:
        """Bytes of its sources at most."""
        return sum(source.segment.size for source in self.sources)


@dataclass(frozen=True, slots=True)
class Order:
    """Times are ms. ``expires_at``: the leader takes nothing from then on. ``delete_retention_ms``: from a group's
    ``deletes_at``, how long tombstones stay that are new in a cleaned segment; it has the time until then, since what
    they delete is there until the result is published. ``claimed``: the leader epoch that has claimed the tier.
    ``map``: the cleaner offsets that the result will have. ``secret``: keys are told apart by their hash with it."""

    id: UUID
    partition: TopicIdPartition
    leader_epoch: LeaderEpoch
    claimed: LeaderEpoch
    map: CleanerOffsets
    issued_at: int
    expires_at: int
    first_dirty: Offset
    delete_retention_ms: int
    segment_bytes: int
    index_interval: int
    limit: int
    """Bytes to which a compressed batch may grow."""
    secret: bytes
    groups: tuple[OrderedGroup, ...]

    @property
    def first(self) -> Offset:
        return self.groups[0].first

    @property
    def end(self) -> Offset:
        """The offset after the last."""
        return Offset(self.groups[-1].last + 1)

    @property
    def folder(self) -> str:
        """In the staging prefix."""
        return f"{work_folder(self.partition)}/{self.name}"

    @property
    def name(self) -> str:
        return f"{self.leader_epoch}-{to_text(self.id)}"

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"


class Issued(NamedTuple):
    """An order that was written, and the window as it was then."""

    order: Order
    window: Window


def encode_order(order: Order) -> bytes:
    partition = order.partition
    return json.dumps(
        {
            "version": VERSION,
            "id": to_text(order.id),
            "topic": partition.topic,
            "topicId": to_text(partition.topic_id),
            "partition": partition.partition,
            "leaderEpoch": order.leader_epoch,
            "claimed": order.claimed,
            "map": [[one.epoch, one.offset] for one in order.map],
            "issuedAt": order.issued_at,
            "expiresAt": order.expires_at,
            "firstDirty": order.first_dirty,
            "deleteRetentionMs": order.delete_retention_ms,
            "segmentBytes": order.segment_bytes,
            "indexInterval": order.index_interval,
            "limit": order.limit,
            "secret": order.secret.hex(),
            "groups": [
                {"deletesAt": group.deletes_at, "sources": [_plain(source) for source in group.sources]}
                for group in order.groups
            ],
        }
    ).encode()


def _plain(source: Source) -> Mapping[str, object]:
    return {
        "segment": to_text(source.segment.id),
        "first": source.first,
        "last": source.last,
        "whole": source.whole,
        "metadata": b64encode(serialize(source.segment)).decode(),
    }


def decode_order(data: bytes) -> Order:
    """Raises BadText."""
    found = Fields.read(data, "the order")
    if found.number("version") != VERSION:
        raise BadText(f"the order has version {found.number('version')}, {VERSION} is known")
    try:
        secret = bytes.fromhex(found.text("secret"))
    except ValueError:
        raise BadText("the order's secret is not in hexadecimal digits") from None
    order = Order(
        found.id("id"),
        TopicIdPartition(found.id("topicId"), found.text("topic"), found.number("partition")),
        LeaderEpoch(found.number("leaderEpoch")),
        LeaderEpoch(found.number("claimed", -1)),
        _map(found.every("map")),
        found.number("issuedAt"),
        found.number("expiresAt"),
        Offset(found.number("firstDirty")),
        found.number("deleteRetentionMs"),
        found.number("segmentBytes", 1),
        found.number("indexInterval"),
        found.number("limit", 1),
        secret,
        tuple(_group(Fields(one, "a group of the order")) for one in found.every("groups")),
    )
    if not order.groups:
        raise BadText("the order has no groups")
    every = [source for group in order.groups for source in group.sources]
    if any(one.last + 1 != other.first for one, other in pairwise(every)):
        raise BadText("the sources of the order do not follow each other")
    return order


def _map(found: object) -> CleanerOffsets:
    assert isinstance(found, list)
    entries: list[CleanerOffset] = []
    for one in found:
        if (
            not isinstance(one, list)
            or len(one) != 2
            or type(one[0]) is not int
            or type(one[1]) not in (int, type(None))
        ):
            raise BadText("the order's map does not have leader epochs and offsets")
        entries.append(CleanerOffset(LeaderEpoch(one[0]), None if one[1] is None else Offset(one[1])))
    return tuple(entries)


def _group(found: Fields) -> OrderedGroup:
    deletes_at = None if found.get("deletesAt") is None else found.number("deletesAt")
    sources = tuple(_source(Fields(one, "a source of the order")) for one in found.every("sources"))
    if not sources:
        raise BadText("a group of the order has no sources")
    return OrderedGroup(sources, deletes_at)


def _source(found: Fields) -> Source:
    try:
        segment = deserialize(b64decode(found.text("metadata"), validate=True), Offset(0))
    except (ValueError, UnreadableRemoteLogRecord) as error:
        raise BadText(f"the metadata of a source of the order cannot be read: {error}") from None
    if not isinstance(segment, RemoteLogSegmentMetadata):
        raise BadText("the metadata of a source of the order is of something else")
    first, last = Offset(found.number("first")), Offset(found.number("last"))
    if not segment.start_offset <= first <= last <= segment.end_offset:
        raise BadText(f"a source of the order has offsets {first} to {last}, which are not its segment's")
    return Source(segment, first, last, found.flag("whole"))
