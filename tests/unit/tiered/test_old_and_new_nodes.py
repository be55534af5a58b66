"""Versions change back and forth: what a node reads that skips our tagged fields, and what is left when we are back.

An older node (and Kafka's) is our own cache given the events without the fields: its decoder skips them
(tests/oracle/test_remote_log_metadata.py), it knows no fences, and drops what takes a mark back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.serialization import MetadataEvent, deserialize, serialize
from milena.tiered.metadata.snapshot import Snapshot, decode_snapshot, encode_snapshot
from milena.tiered.segments.cleaner_offsets import NOT_CLEANED
from milena.tiered.segments.segment_metadata import (
    UNFENCED,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemoteLogSegmentUpdate,
)
from tests.unit.tiered.segments import PARTITION, epochs, fence, offsets, segment, update

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
LINEAGE = epochs({0: 0})
SOURCE, OTHER, STALE, CLEANED, LATE = 1, 2, 11, 12, 13


def without_fields(event: MetadataEvent) -> MetadataEvent:
    """As an older node decodes it, or would have written it."""
    if isinstance(event, RemoteLogSegmentMetadata):
        return replace(event, leader_epoch=UNFENCED, cleaned=NOT_CLEANED, replaces=())
    return replace(event, leader_epoch=UNFENCED, republishes=False, first_dirty=None)


def copied(one: RemoteLogSegmentMetadata, epoch: int = -1) -> list[MetadataEvent]:
    fenced = replace(one, leader_epoch=LeaderEpoch(epoch))
    return [fenced, replace(update(fenced, FINISHED), leader_epoch=LeaderEpoch(epoch))]


def cleaned(number: int, entries: dict[int, int | None]) -> RemoteLogSegmentMetadata:
    return replace(segment(number, 0, 9, {0: 0}), cleaned=offsets(entries), replaces=(UUID(int=SOURCE),))


def read_by(events: Iterable[MetadataEvent], *, old: bool = False) -> RemoteLogMetadataCache:
    cache = RemoteLogMetadataCache()
    for event in events:
        decoded = deserialize(serialize(without_fields(event) if old else event), Offset(0))
        assert decoded is not None
        cache.apply(decoded)
    return cache


def served(cache: RemoteLogMetadataCache) -> list[int]:
    found = cache.served(Offset(0), leader_epochs=LINEAGE, log_end=Offset(30))
    return [one.segment.id.int for one in found]


NEW: Sequence[MetadataEvent] = [
    *copied(segment(SOURCE, 0, 9, {0: 0}), 0),
    *copied(segment(OTHER, 10, 19, {0: 10}), 0),
    replace(fence(1), first_dirty=None),
    *copied(cleaned(STALE, {0: 18}), 0),
    *copied(cleaned(CLEANED, {0: 10, 1: 20}), 1),
    replace(fence(1), first_dirty=Offset(20)),
]
"""What leaders of this version have published, a former one among them."""


def test_a_node_that_skips_our_fields_takes_sources_void_and_cleaned_segments_for_alike() -> None:
    """So it must not host such a partition: which of them it reads is not said."""
    assert served(read_by(NEW)) == [CLEANED, OTHER]
    old = read_by(NEW, old=True)
    assert [one.id.int for one in old.find(LeaderEpoch(0), Offset(3))] == [SOURCE, STALE, CLEANED]
    assert (old.fence_epoch, bool(old.cleanings)) == (UNFENCED, False)


def test_claims_are_about_no_segment_that_it_knows() -> None:
    before = read_by(NEW[:4], old=True)
    changes = before.changes
    assert not before.apply(without_fields(fence(7)))
    assert before.changes == changes


def test_what_an_old_node_has_copied_meanwhile_brings_no_cleaned_key_back() -> None:
    """Its leader publishes no fence, so it is not fenced; of several segments the furthest cleaned one serves."""
    late = copied(segment(LATE, 0, 9, {0: 0}))
    assert served(read_by([*NEW, *late])) == [CLEANED, OTHER]


def test_what_an_old_node_has_marked_meanwhile_is_marked_and_what_it_has_deleted_is_gone() -> None:
    of_cleaned = next(one for one in NEW if isinstance(one, RemoteLogSegmentMetadata) and one.id.int == CLEANED)
    marks = [without_fields(update(of_cleaned, state)) for state in (DELETING, DELETED)]
    after = read_by([*NEW, *marks])
    assert served(after) == [OTHER], "what the cleaning has replaced does not come back"
    assert not read_by([*NEW, *marks, *copied(cleaned(LATE, {0: 18}))]).cleanings.count(cleaned(LATE, {0: 18}))


def random_events(random: Random) -> list[MetadataEvent]:
    """Of this version, then of an old one, then of this one; those of old ones have none of the fields."""
    events: list[MetadataEvent] = []
    known: list[RemoteLogSegmentMetadata] = []
    for phase in range(3):
        for _ in range(random.randrange(1, 12)):
            epoch = LeaderEpoch(random.randrange(4))
            made: MetadataEvent
            if not known or random.random() < 0.4:
                entries = {at: random.randrange(1, 30) for at in range(random.randrange(epoch + 2))}
                sources = tuple(one.id for one in random.sample(known, min(len(known), 2))) if entries else ()
                made = replace(
                    segment(len(known) + 1, 0, 9, {0: 0}),
                    leader_epoch=epoch,
                    cleaned=offsets(dict(entries)),
                    replaces=sources,
                )
                known.append(made)
            elif random.random() < 0.2:
                made = fence(epoch)
            else:
                state = random.choice([FINISHED, FINISHED, DELETING, DELETED])
                republishes = state is FINISHED and random.random() < 0.3
                made = replace(update(random.choice(known), state), leader_epoch=epoch, republishes=republishes)
            if phase == 1:
                if isinstance(made, RemoteLogSegmentUpdate) and made.is_fence:
                    continue
                made = without_fields(made)
                if isinstance(made, RemoteLogSegmentMetadata):
                    known[-1] = made
            events.append(made)
    return events


@pytest.mark.parametrize("seed", range(50))
def test_a_node_that_was_absent_has_the_same_state(seed: int) -> None:
    """Compares a node that has read everything, one that was downgraded in between, and reads the topic again because
    the old version's snapshot is invalid, and one that was down and starts with its own snapshot."""
    random = Random(seed)
    events = random_events(random)
    at = random.randrange(len(events) + 1)
    before = Snapshot.of(read_by(events[:at]), None, Offset(at))
    back = decode_snapshot(encode_snapshot(PARTITION, before), PARTITION).cache()
    for event in events[at:]:
        back.apply(event)
    everything = read_by(events)
    assert Snapshot.of(back, None, Offset(0)) == Snapshot.of(everything, None, Offset(0))
    assert served(back) == served(everything)
