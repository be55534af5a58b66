"""A reader that reads on has the same contents as one that reads everything, whatever happens to the logs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from milena.protocol.records.batch import Codec
from milena.protocol.records.control_records import AbortMarker, control_batch
from milena.protocol.records.records import BatchBuilder
from milena.protocol.types import LeaderEpoch, Offset
from milena.runtime.disk import Disk
from milena.tiered.metadata.event_decoder import EventDecoder
from milena.tiered.metadata.serialization import serialize
from milena.tiered.metadata.snapshot import Snapshot
from milena.tiered.offline.metadata_history import read_history
from milena.tiered.offline.metadata_reader import PIECE, MetadataReader
from tests.unit.tiered.segments import PARTITION, segment
from tests.unit.tiered.whole_tier import FIRST_TIME, WholeTier, on_a_tier

Reader = MetadataReader[EventDecoder]


def new_reader() -> Reader:
    return MetadataReader(EventDecoder)


def batch(*numbers: int, base: int, epoch: int = 0, codec: Codec = Codec.NONE, key: bytes | None = None) -> bytes:
    """A record for each of these segments."""
    builder = BatchBuilder()
    for number in numbers:
        value = serialize(segment(number, number, number, {0: number}))
        builder.append(timestamp=FIRST_TIME + number, key=key, value=value)
    return bytes(builder.build(base_offset=Offset(base), leader_epoch=LeaderEpoch(epoch), codec=codec))


def one_by_one(first: int, end: int, epoch: int = 0) -> bytes:
    """A batch for each segment, whose number is its offset + 1."""
    return b"".join(batch(offset + 1, base=offset, epoch=epoch) for offset in range(first, end))


def write(disk: Disk, log_dir: str, data: bytes, base: int = 0, number: int = 0) -> None:
    folder = f"{log_dir}/__remote_log_metadata-{number}"
    disk.make_folders(folder)
    disk.write_atomic(f"{folder}/{base:020d}.log", data)


def found(reader: Reader) -> list[int]:
    events = reader.contents.partitions.get(PARTITION)
    return [] if events is None else [one.id.int for one in events.cache.segments()]


def check(disk: Disk, reader: Reader, log_dirs: Sequence[str] = ("/a",)) -> list[int]:
    """Read on, compare with a history that is read from the beginning, and return the segments."""
    reader.read_on(disk, log_dirs)
    history = read_history(disk, log_dirs)
    assert history.unreadable == reader.unreadable == [] and reader.numbers == history.numbers
    for partition, cache in history.caches.items():
        ours = reader.contents.partitions[partition].cache
        assert Snapshot.of(ours, None, Offset(0)) == Snapshot.of(cache, None, Offset(0))
    return found(reader)


@on_a_tier
async def test_only_new_records_are_read(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    write(disk, "/a", one_by_one(0, 3))
    write(disk, "/a", batch(50, base=0), number=7)
    assert check(disk, reader) == [1, 2, 3, 50]
    damaged = bytearray(one_by_one(0, 5))
    damaged[70] ^= 1  # in what was read
    write(disk, "/a", bytes(damaged))
    reader.read_on(disk, ["/a"])
    assert found(reader) == [1, 2, 3, 4, 5, 50]
    fresh = new_reader()
    fresh.read_on(disk, ["/a"])
    assert found(fresh) == [2, 3, 4, 5, 50]
    [damage] = fresh.unreadable
    assert damage.number == 0 and "the batch at offset 0 has a wrong checksum" in damage.why


@on_a_tier
async def test_batches_of_every_form_are_read(tier: WholeTier) -> None:
    disk = tier.runtime.disk
    marker = bytes(control_batch([AbortMarker(coordinator_epoch=0)], timestamp=FIRST_TIME, base_offset=Offset(4)))
    data = [
        batch(1, 2, base=0),
        batch(3, base=2, codec=Codec.GZIP),
        batch(4, base=3, key=b"k"),
        marker,
        batch(5, base=5),
    ]
    write(disk, "/a", b"".join(data))
    assert check(disk, new_reader()) == [1, 2, 3, 4, 5]


@on_a_tier
async def test_a_torn_end_is_read_when_it_is_whole(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    whole = one_by_one(0, 4)
    for length in (0, 40, 100, len(whole) - 1, len(whole)):
        write(disk, "/a", whole[:length])
        check(disk, reader)
    assert found(reader) == [1, 2, 3, 4]


@on_a_tier
async def test_a_log_goes_on_in_its_next_file(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    write(disk, "/a", one_by_one(0, 2))
    write(disk, "/a", b"", base=2)
    assert check(disk, reader) == [1, 2]
    before = reader.contents
    write(disk, "/a", one_by_one(2, 4), base=2)
    write(disk, "/a", one_by_one(4, 5), base=4)
    assert check(disk, reader) == [1, 2, 3, 4, 5]
    assert check(disk, reader) == [1, 2, 3, 4, 5] and reader.contents is before


@on_a_tier
async def test_batches_larger_than_a_piece_are_read(tier: WholeTier) -> None:
    disk = tier.runtime.disk
    numbers = range(1, PIECE // 60)
    write(disk, "/a", batch(*numbers, base=0) + batch(PIECE, base=len(numbers)))
    assert check(disk, new_reader()) == [*numbers, PIECE]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_truncated_and_rewritten_log_is_read_again(left: int) -> None:
    @on_a_tier
    async def run(tier: WholeTier) -> None:
        disk, reader = tier.runtime.disk, new_reader()
        write(disk, "/a", one_by_one(0, 3))
        check(disk, reader)
        other = batch(70, base=left, epoch=1)
        write(disk, "/a", one_by_one(0, left) + other + one_by_one(left + 1, 6, epoch=1))
        assert 70 in check(disk, reader)
        write(disk, "/a", one_by_one(0, 1))
        assert check(disk, reader) == [1]

    run()


@on_a_tier
async def test_another_replica_goes_on_where_the_first_one_was(tier: WholeTier) -> None:
    disk, reader, both = tier.runtime.disk, new_reader(), ("/a", "/b")
    write(disk, "/a", one_by_one(0, 3))
    write(disk, "/b", one_by_one(0, 2))
    assert check(disk, reader, both) == [1, 2, 3]
    before = reader.contents
    for log_dir, end in (("/b", 5), ("/a", 6), ("/b", 7)):
        write(disk, log_dir, one_by_one(0, end))
        assert check(disk, reader, both) == list(range(1, end + 1))
    assert reader.contents is before
    write(disk, "/a", one_by_one(0, 6) + batch(90, base=6, epoch=1) + one_by_one(7, 9, epoch=1))
    assert check(disk, reader, both) == [1, 2, 3, 4, 5, 6, 8, 9, 90]
    assert reader.contents is not before  # the seventh was another one


@on_a_tier
async def test_a_partition_that_is_gone_is_not_remembered(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    write(disk, "/a", one_by_one(0, 2))
    write(disk, "/b", batch(9, base=0), number=1)
    assert check(disk, reader, ("/a", "/b")) == [1, 2, 9]
    assert check(disk, reader, ("/a",)) == [1, 2]


@on_a_tier
async def test_the_file_after_bytes_that_are_no_batch_is_read(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    write(disk, "/a", one_by_one(0, 2) + bytes(100), number=4)
    write(disk, "/a", one_by_one(5, 7), base=5, number=4)
    reader.read_on(disk, ["/a"])
    assert found(reader) == [1, 2, 6, 7]
    [damage] = reader.unreadable
    assert damage.number == 4 and damage.why.startswith(f"/a/__remote_log_metadata-4/{0:020d}.log: ")


@on_a_tier
async def test_a_record_that_cannot_be_read_is_listed_and_the_next_ones_are_read(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    builder = BatchBuilder()
    for value in (b"\x01\x09\x00", b"", serialize(segment(3, 3, 3, {0: 3}))):
        builder.append(timestamp=FIRST_TIME, value=value)
    write(disk, "/a", bytes(builder.build(base_offset=Offset(0))) + batch(4, base=3))
    reader.read_on(disk, ["/a"])
    assert found(reader) == [3, 4]
    assert [damage.unknown for damage in reader.unreadable] == [True, False]


@on_a_tier
async def test_after_damage_everything_is_read_again(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    whole = one_by_one(0, 3)
    damaged = bytearray(whole)
    damaged[70] ^= 1
    write(disk, "/a", bytes(damaged))
    reader.read_on(disk, ["/a"])
    assert found(reader) == [2, 3] and len(reader.unreadable) == 1
    write(disk, "/a", whole)
    assert check(disk, reader) == [1, 2, 3]


@on_a_tier
async def test_a_replica_with_a_damaged_end_is_not_the_longest(tier: WholeTier) -> None:
    disk, reader = tier.runtime.disk, new_reader()
    write(disk, "/a", one_by_one(0, 2) + batch(3, base=2)[:-1] + b"x")
    write(disk, "/b", one_by_one(0, 3))
    assert check(disk, reader, ("/a", "/b")) == [1, 2, 3]
