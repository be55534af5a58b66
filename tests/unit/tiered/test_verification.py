"""What `milena tier verify` finds, and that it finds nothing where nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from struct import pack
from uuid import UUID

import pytest

from milena.lab.world.world import World, simulate
from milena.protocol.types import Offset
from milena.tiered.metadata.serialization import serialize
from milena.tiered.offline.broker_logs import events_of
from milena.tiered.offline.findings import Finding
from milena.tiered.offline.verification import UNDER_WAY_MS, Verification, confirmed
from milena.tiered.reading import log_contents
from milena.tiered.segments.segment_metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tests.unit.tiered.segments import PARTITION, epochs, update
from tests.unit.tiered.whole_tier import FIRST_TIME, FOLDER, WholeTier, lineage, on_a_tier

Damage = Callable[[WholeTier, RemoteLogSegmentMetadata], None]
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
COPYING = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def three(tier: WholeTier) -> RemoteLogSegmentMetadata:
    """A log of 30 offsets in three segments and two epochs; the one in the middle."""
    tier.put(1, 0, 9, {0: 0})
    middle = tier.put(2, 10, 19, {0: 10, 1: 15}, checkpoint={0: 0, 1: 15})
    tier.put(3, 20, 29, {1: 20}, checkpoint={0: 0, 1: 15})
    return middle


def kinds_of_notes(found: Verification) -> list[str]:
    return [note.kind for note in found.notes]


def kinds(found: Verification) -> list[str]:
    return [finding.kind for finding in found.findings]


@on_a_tier
async def test_nothing_is_found_where_nothing_is_wrong(tier: WholeTier) -> None:
    three(tier)
    tier.put(4, 0, 4, {0: 0}, partition=TopicIdPartition(UUID(int=5), "other", 3))
    for with_metadata in (True, False):
        found = await tier.verified(with_metadata=with_metadata)
        assert (found.findings, found.partitions, found.segments) == ([], 2, 4)
    assert (await tier.verified(lineage({0: 0, 1: 15, 2: 30}, 35, 0))).findings == []


@on_a_tier
async def test_an_empty_tier_has_nothing_wrong(tier: WholeTier) -> None:
    assert await tier.verified() == Verification()


@on_a_tier
async def test_logs_are_read_in_pieces_of_any_size(tier: WholeTier) -> None:
    middle = three(tier)
    whole = log_contents.PIECE
    for piece in (1, 61, 100, 171, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_contents, "PIECE", piece)
            contents = await log_contents.read_contents(tier.storage, middle)
            assert (contents.batches, contents.first_offset, contents.last_offset) == (10, 10, 19), piece
            assert contents.size == middle.size and not contents.damage and not contents.bad_checksums
    assert whole == log_contents.PIECE


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def rewrite(suffix: str, change: Callable[[bytes], bytes]) -> Damage:
    return lambda tier, segment: tier.write(segment, suffix, change(tier.read(segment, suffix)))


def without(*suffixes: str) -> Damage:
    return lambda tier, segment: tier.remove(segment, *suffixes)


def retold(**fields: object) -> Damage:
    """The metadata is another one than the files'."""

    def damage(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
        tier.values[2:4] = map(serialize, events_of(replace(segment, **fields)))  # type: ignore[arg-type]

    return damage


def later(state: RemoteLogSegmentState, *, files: bool = True) -> Damage:
    def damage(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
        if state is not DELETING:
            tier.tell(update(segment, DELETING))
        tier.tell(update(segment, state))
        if not files:
            tier.remove(segment)

    return damage


def only_begun(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
    del tier.values[3]


def long_ago(damage: Damage) -> Damage:
    """The cluster has worked on since."""

    def later_on(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
        damage(tier, segment)
        other = replace(segment, segment_id=RemoteLogSegmentId(PARTITION, UUID(int=99)), state=COPYING)
        after = UNDER_WAY_MS + 10_000
        tier.tell(replace(other, event_timestamp_ms=after), update(other, DELETING), update(other, DELETED))

    return later_on


def foreign(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
    tier.disk.write_atomic(f"{FOLDER}/kafka-tiered-storage/notes.txt", b"mine")


def listed_again(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
    tier.tell(replace(segment, state=COPYING, end_offset=Offset(segment.end_offset - 1)))


def listed_backwards(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
    tier.tell(update(segment, DELETED))


def unknown(value: bytes) -> Damage:
    return lambda tier, _: tier.values.append(value)


def unlisted(tier: WholeTier, segment: RemoteLogSegmentMetadata) -> None:
    del tier.values[2:4]


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (rewrite(".log", lambda data: flip(data, len(data) - 5)), ["crc"]),
        (rewrite(".log", lambda data: data[:-1]), ["truncated"]),
        (rewrite(".log", lambda data: data + b"\0"), ["damaged"]),
        (rewrite(".log", lambda data: bytes(len(data))), ["damaged", "offsets"]),
        (without(".log"), ["missing"]),
        (without(".index", ".snapshot"), ["missing", "missing"]),
        (without(), ["missing"]),
        (rewrite(".index", lambda data: data[:-3]), ["index"]),
        (rewrite(".index", lambda data: data[8:16] + data), ["index"]),
        (rewrite(".index", lambda data: data + pack(">ii", 9, 10**6)), ["index"]),
        (rewrite(".index", lambda data: pack(">ii", 1, 7)), ["index"]),
        (rewrite(".timeindex", lambda data: data + b"\0"), ["index"]),
        (rewrite(".timeindex", lambda data: data * 2), ["index"]),
        (rewrite(".timeindex", lambda data: pack(">qi", 2**40, 3)), ["index"]),
        (rewrite(".timeindex", lambda data: b""), ["index"]),
        (rewrite(".timeindex", lambda data: pack(">qi", FIRST_TIME + 18, 8)), ["index"]),
        (rewrite(".snapshot", lambda data: flip(data, 3)), ["index"]),
        (rewrite(".leader_epoch_checkpoint", lambda data: b"0\n1\n0 0\n"), ["epochs"]),
        (rewrite(".leader_epoch_checkpoint", lambda data: b"nonsense"), ["epochs"]),
        (retold(end_offset=Offset(18)), ["offsets", "index", "gap"]),
        (retold(txn_index_empty=False), ["missing"]),
        (retold(size=10**6), ["truncated"]),
        (only_begun, ["gap"]),
        (later(DELETING), ["gap"]),
        (long_ago(only_begun), ["unfinished", "gap"]),
        (long_ago(later(DELETING)), ["unfinished", "gap"]),
        (later(DELETED), ["undeleted", "gap"]),
        (later(DELETED, files=False), ["gap"]),
        (unlisted, ["orphan", "gap"]),
        (foreign, ["foreign"]),
        (listed_again, ["listed-twice"]),
        (listed_backwards, ["transition"]),
        (unknown(b"\x01\x09\x00"), ["unknown-record"]),
        (unknown(b"\x01\x00\x07"), ["unknown-record"]),
        (unknown(b"\x01\x00\x00\xff"), ["bad-record"]),
    ],
)
def test_damage_is_found(damage: Damage, expected: list[str]) -> None:
    async def run(world: World) -> None:
        tier = WholeTier(world)
        segment = three(tier)
        damage(tier, segment)
        found = await tier.verified()
        assert kinds(found) == expected, found.findings

    simulate(run, seed=1)


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (rewrite(".log", lambda data: flip(data, len(data) - 5)), ["crc"]),
        (rewrite(".log", lambda data: data[:-1]), ["damaged", "index", "gap"]),
        (rewrite(".timeindex", lambda data: b""), ["index"]),
        (rewrite(".log", lambda data: b""), ["unreadable", "gap"]),
        (without(".log"), ["orphan", "gap"]),
        (without(".snapshot"), ["missing"]),
        (without(".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"), ["missing"] * 4),
        (without(".log", ".snapshot"), ["orphan", "gap"]),
        (without(), ["gap"]),
    ],
)
def test_damage_is_found_by_the_files_alone(damage: Damage, expected: list[str]) -> None:
    async def run(world: World) -> None:
        tier = WholeTier(world)
        damage(tier, three(tier))
        found = await tier.verified(with_metadata=False)
        assert kinds(found) == expected, found.findings

    simulate(run, seed=1)


@on_a_tier
async def test_an_offset_index_is_missed_where_the_time_index_shows_that_there_was_one(tier: WholeTier) -> None:
    """A large index.interval.bytes, or timestamps that stand still, leave none; each end of a broker leaves a time."""
    segment = tier.put(1, 0, 19, {0: 0})
    times = [pack(">qi", FIRST_TIME + offset, offset) for offset in range(20)]
    tier.write(segment, ".index", b"")
    for count, expected in ((1, []), (8, []), (9, ["index"]), (20, ["index"])):
        tier.write(segment, ".timeindex", b"".join(times[-count:]))
        found = await tier.verified()
        assert kinds(found) == expected
    assert found.findings[0].what == ".index: it has 0 entries, where the .timeindex has 20"


@on_a_tier
async def test_what_a_checkpoint_should_say_is_said_without_metadata_too(tier: WholeTier) -> None:
    tier.write(three(tier), ".leader_epoch_checkpoint", b"0\n1\n11 0\n")
    [finding] = (await tier.verified(with_metadata=False)).findings
    assert finding.what == ".leader_epoch_checkpoint: it has 11 from 10, and should have 0 from 10, 1 from 15"


@on_a_tier
async def test_a_partition_of_which_all_was_deleted_is_not_counted(tier: WholeTier) -> None:
    segment = tier.put(1, 0, 9, {0: 0})
    tier.tell(update(segment, DELETING), update(segment, DELETED))
    tier.remove(segment)
    found = await tier.verified()
    assert (found.findings, found.partitions) == ([], 0)


@on_a_tier
async def test_what_two_segments_serve_and_what_none_does(tier: WholeTier) -> None:
    tier.put(1, 0, 9, {0: 0})
    tier.put(2, 5, 12, {0: 5})
    tier.put(3, 20, 29, {1: 20}, checkpoint={0: 0, 1: 15})
    tier.put(4, 30, 39, {5: 30})
    found = await tier.verified(lineage({0: 0, 1: 15}, 40, log_start=0))
    assert [(finding.kind, finding.what) for finding in found.findings] == [
        ("unreferenced", "offsets 30 to 39 are of no epoch of this log"),
        ("gap", "offsets 13 to 19 are in no segment"),
    ]
    assert [(note.kind, note.what) for note in found.notes] == [
        ("overlap", "offsets 5 to 9 are in AAAAAAAAAAAAAAAAAAAAAQ too"),
    ]


@on_a_tier
async def test_what_is_under_way_is_a_note(tier: WholeTier) -> None:
    three(tier)
    begun = tier.put(4, 30, 39, {1: 30}, checkpoint={0: 0, 1: 15})
    del tier.values[-1]
    found = await tier.verified()
    assert (found.findings, kinds_of_notes(found)) == ([], ["unfinished"])
    tier.tell(update(begun, DELETING))
    found = await tier.verified()
    assert (found.findings, kinds_of_notes(found)) == ([], ["unfinished"])


@on_a_tier
async def test_what_two_leaders_delete_is_a_note(tier: WholeTier) -> None:
    """The former one does not know of its end, or of what the other did."""
    three(tier)
    first = tier.put(4, 30, 39, {1: 30}, checkpoint={0: 0, 1: 15})
    tier.tell(update(first, DELETING), update(first, DELETED), update(first, DELETING), update(first, DELETED))
    tier.remove(first)
    found = await tier.verified()
    assert (found.findings, kinds_of_notes(found)) == ([], ["transition", "transition"])


@on_a_tier
async def test_a_late_end_of_a_copy_that_was_given_up_is_a_note(tier: WholeTier) -> None:
    three(tier)
    given_up = tier.put(4, 30, 39, {1: 30}, checkpoint={0: 0, 1: 15})
    tier.values.insert(-1, serialize(update(given_up, DELETING)))
    tier.tell(update(given_up, DELETED))
    tier.remove(given_up)
    found = await tier.verified()
    assert (found.findings, kinds_of_notes(found)) == ([], ["transition"])


@on_a_tier
async def test_a_log_that_began_earlier_when_that_was_noted_last_has_no_gap(tier: WholeTier) -> None:
    """The note of the log start is a minute old; the first segments were deleted since, or its epochs tell."""
    first = tier.put(1, 0, 9, {0: 0})
    tier.put(2, 10, 19, {0: 10})
    tier.tell(update(first, DELETING), update(first, DELETED))
    tier.remove(first)
    assert kinds(await tier.verified(lineage({0: 0}, 20, log_start=3))) == []
    tier.put(3, 30, 39, {1: 30})
    assert kinds(await tier.verified(lineage({1: 30}, 40, log_start=3))) == []


@on_a_tier
async def test_only_what_was_deleted_is_no_gap(tier: WholeTier) -> None:
    first = tier.put(1, 0, 9, {0: 0})
    tier.put(2, 15, 19, {0: 15})
    tier.tell(update(first, DELETING), update(first, DELETED))
    tier.remove(first)
    [found] = (await tier.verified(lineage({0: 0}, 20, log_start=3))).findings
    assert found.what == "offsets 10 to 14 are in no segment"


@pytest.mark.parametrize("with_metadata", [True, False])
def test_records_may_go_from_a_segment_before_it_is_copied(with_metadata: bool) -> None:
    """DeleteRecords: the epochs of the copy begin where the log does, within its first segment."""

    async def run(world: World) -> None:
        tier = WholeTier(world)
        listed = tier.put(1, 0, 9, {0: 0, 1: 4}, checkpoint={1: 6})
        tier.values[:] = map(serialize, events_of(replace(listed, epochs=epochs({1: 6}))))
        found = await tier.verified(lineage({1: 6}, 20, log_start=6), with_metadata=with_metadata)
        assert found.findings == []
        tier.write(listed, ".leader_epoch_checkpoint", b"0\n1\n2 6\n")
        assert "epochs" in kinds(await tier.verified(lineage({1: 6}, 20, log_start=6)))

    simulate(run, seed=1)


@on_a_tier
async def test_what_is_found_once_was_the_clusters_work(tier: WholeTier) -> None:
    middle = three(tier)
    tier.remove(middle)
    tier.write(tier.put(4, 30, 39, {1: 30}, checkpoint={0: 0, 1: 15}), ".index", b"1")
    looks: list[object] = []

    async def look(again: object) -> Verification:
        looks.append(again)
        if len(looks) == 2:
            tier.put(2, 10, 19, {0: 10, 1: 15}, checkpoint={0: 0, 1: 15}, listed=False)
        return await tier.verified()

    assert kinds(await confirmed(look)) == ["index"]
    assert looks == [None, {PARTITION}]


@on_a_tier
async def test_what_is_new_at_the_second_look_is_looked_at_once_more(tier: WholeTier) -> None:
    answers = [["gap"], ["missing"], ["missing"], []]

    async def look(_: object) -> Verification:
        return Verification([Finding(kind, "", PARTITION) for kind in answers.pop(0)])

    assert kinds(await confirmed(look)) == ["missing"]
    assert answers == [[]]


@on_a_tier
async def test_a_log_that_begins_before_its_tier_has_a_gap(tier: WholeTier) -> None:
    tier.put(2, 10, 19, {0: 10})
    found = await tier.verified(lineage({0: 0}, 20, log_start=3))
    assert [finding.what for finding in found.findings] == ["offsets 3 to 9 are in no segment"]


@on_a_tier
async def test_segments_of_a_dead_lineage_that_serve_in_part_are_referenced(tier: WholeTier) -> None:
    """kip405-5."""
    tier.put(1, 0, 3, {0: 0})
    tier.put(2, 0, 3, {0: 0, 1: 2})
    tier.put(3, 4, 5, {0: 4, 2: 5}, checkpoint={0: 0, 2: 5})
    assert kinds(await tier.verified(lineage({0: 0, 2: 5}, 7))) == []


def test_findings_are_reported_as_text_and_json() -> None:
    finding = Finding("gap", "offsets 1 to 2 are in no segment", PARTITION, UUID(int=1))
    assert finding.place() == "t-0 AAAAAAAAAAAAAAAAAAAAAQ"
    assert finding.plain() == {
        "kind": "gap",
        "topic": "t",
        "topic_id": "AAAAAAAAAAAAAAAAAAAATQ",
        "partition": 0,
        "segment": "AAAAAAAAAAAAAAAAAAAAAQ",
        "what": "offsets 1 to 2 are in no segment",
    }
    assert Finding("foreign", "x").place() == ""
