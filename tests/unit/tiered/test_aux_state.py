"""What a follower takes from the tier is what its leader had at that offset, or an error (docs/kafka-semantics.md:
Followers that begin in the tier)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from milena.protocol.records.batch import CorruptBatch
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.files.producer_snapshot import decode_snapshot, encode_snapshot
from milena.storage.log.loading import open_log
from milena.storage.log.recovery import replay_producers
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.state.epoch_cache import EpochEntry
from milena.storage.state.producer_state import ProducerState
from milena.tiered.aux_state.aux_state import (
    AuxState,
    CorruptAuxState,
    EndOfEpoch,
    LocalStart,
    build_aux_state,
    newest,
)
from milena.tiered.metadata.metadata_manager import MetadataNotReady
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentState, TopicIdPartition
from milena.tiered.store.remote_storage import RemoteResourceNotFound, RemoteStorageError
from milena.tiered.work.copying import prepare
from milena.tiered.work.deletion import update_of
from tests.unit.storage.logs import batch_of, marker
from tests.unit.tiered.segments import epochs, segment
from tests.unit.tiered.tiered_log import ROOT, TOPIC_ID, Bench, on_bench

PARTITION = TopicIdPartition(TOPIC_ID, "t", 0)
NO_PRODUCERS = encode_snapshot(ProducerState())


def new_log(bench: Bench, name: str) -> UnifiedLog:
    """Of the same partition, as another broker may have it."""
    zero = Offset(0)
    return open_log(
        bench.log.context,
        f"/data/{name}-0",
        "t",
        0,
        TOPIC_ID,
        bench.log.config,
        recovery_point=zero,
        log_start_offset=zero,
        clean=True,
    )


def written(bench: Bench, records: Sequence[int], rolls: Sequence[int] = (), *, name: str = "leader") -> UnifiedLog:
    """A log with one record at each offset, of these epochs, in segments that begin at ``rolls``. All but the active
    one are in the tier afterwards, if ``carry`` is called."""
    log = new_log(bench, name)
    for offset, epoch in enumerate(records):
        if offset in rolls:
            log.roll()
        log.append_as_leader(batch_of(b"msg %d" % offset), leader_epoch=LeaderEpoch(epoch))
    if len(records) in rolls:
        log.roll()
    log.set_high_watermark(log.log_end_offset)
    return log


async def carry(bench: Bench, log: UnifiedLog, *bases: int) -> None:
    """Put the closed segments of ``log``, or those at ``bases``, into the tier."""
    role = bench.role()
    for index in range(len(log.segments) - 1):
        if bases and log.segments[index].base_offset not in bases:
            continue
        prepared = prepare(bench.tier, role, log, log.segments[index], log.segments[index + 1].base_offset)
        await bench.metadata.add(prepared.metadata)
        await bench.store.copy(prepared.metadata, prepared.files)
        finished = update_of(bench.tier, prepared.metadata, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, UNFENCED)
        await bench.metadata.update(finished)


class Leader:
    """Answers as the leader of ``log`` does, and notes what it was asked."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log = log
        self.asked: list[int] = []

    async def end_of(self, epoch: LeaderEpoch) -> EndOfEpoch:
        self.asked.append(epoch)
        return EndOfEpoch(*self.log.leader_epoch_end_offset(epoch))

    def start(self, offset: int, log_start: int = 0) -> LocalStart:
        return LocalStart(Offset(offset), self.log.epochs.epoch_for_offset(Offset(offset)), Offset(log_start))


async def build(bench: Bench, leader: Leader, offset: int, log_start: int = 0) -> AuxState:
    return await build_aux_state(bench.tier, PARTITION, leader.start(offset, log_start), leader.end_of)


def built(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    on_bench(scenario)


def spoil(bench: Bench, suffix: str, change: Callable[[bytes], bytes], *, first: int = 0) -> None:
    """Change one object of the segment that begins at ``first``."""
    files = bench.world.tier.files
    path = next(one for one in files if one.startswith(ROOT) and f"/{first:020d}-" in one and one.endswith(suffix))
    inode = bench.world.tier.files[path]
    inode.data[:] = change(bytes(inode.data))


def test_kip405_1_epochs_come_from_the_segment_that_holds_the_earliest_local_offset() -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0, 0, 0, 1, 1, 2, 2, 3], [3, 6]))
        await carry(bench, leader.log)
        state = await build(bench, leader, 3)
        assert tuple(state.epochs) == epochs({0: 0, 1: 3, 2: 5})
        assert not leader.asked, "the tier says it all"

    built(scenario)


def test_kip405_2_and_where_the_tier_does_not_hold_it_from_the_segment_before() -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3, 3], [3, 6, 9]))
        await carry(bench, leader.log)
        state = await build(bench, leader, 9)
        assert tuple(state.epochs) == epochs({0: 0, 1: 3, 2: 5, 3: 7})
        assert leader.asked == [2]

    built(scenario)


def test_kip405_5_of_two_lineages_the_leaders_is_taken() -> None:
    async def scenario(bench: Bench) -> None:
        await carry(bench, written(bench, [0] * 5, [4], name="first"))
        await carry(bench, written(bench, [0, 0, 1, 1, 1], [4], name="second"))
        leader = Leader(written(bench, [0, 0, 0, 0, 0, 2, 2], [4, 6]))
        await carry(bench, leader.log, 4)
        state = await build(bench, leader, 6)
        assert tuple(state.epochs) == epochs({0: 0, 2: 5})
        assert tuple((await build(bench, leader, 4)).epochs) == epochs({0: 0, 2: 5})
        assert tuple((await build(bench, leader, 2)).epochs) == epochs({0: 0})

    built(scenario)


def test_the_epoch_before_is_the_leaders_answer_where_a_new_one_begins_with_the_local_log() -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0, 0, 0, 5, 5], [3]))
        await carry(bench, leader.log)
        assert tuple((await build(bench, leader, 3)).epochs) == epochs({0: 0})
        assert leader.asked == [4]

    built(scenario)


def test_what_follows_in_a_segment_of_another_lineage_is_left_out() -> None:
    async def scenario(bench: Bench) -> None:
        await carry(bench, written(bench, [0, 0, 1, 1], [4], name="former"))
        leader = Leader(written(bench, [0, 0, 2, 2]))
        assert tuple((await build(bench, leader, 2)).epochs) == epochs({0: 0})

    built(scenario)


def test_kafka_20770_an_epoch_that_is_not_known_is_no_epoch_0() -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0, 0, 0, 4, 4], [3]))
        await carry(bench, leader.log)

        async def knows_nothing(epoch: LeaderEpoch) -> EndOfEpoch:
            return EndOfEpoch(None, None)

        with pytest.raises(RemoteResourceNotFound, match="leader epoch 4"):
            await build_aux_state(bench.tier, PARTITION, leader.start(3), knows_nothing)
        with pytest.raises(RemoteResourceNotFound, match=": -1"):
            start = LocalStart(Offset(3), None, Offset(0))
            await build_aux_state(bench.tier, PARTITION, start, leader.end_of)

    built(scenario)


def test_a_segment_that_is_not_known_or_whose_metadata_is_not_read_is_an_error() -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0] * 6, [3, 6]))
        with pytest.raises(MetadataNotReady):
            await build(bench, leader, 6)
        await carry(bench, leader.log, 0)
        with pytest.raises(RemoteResourceNotFound, match="offset 5 in leader epoch 0"):
            await build(bench, leader, 6)

    built(scenario)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: b"\xff" + data,
        lambda data: b"0\n1\n0 0\n",
        lambda data: b"0\n2\n0 0\n1 4\n",
        lambda data: b"0\n2\n1 3\n0 0\n",
        lambda data: b"0\n3\n0 0\n1 3\n2 5\n",
        lambda data: data.replace(b"1 3", b"1 2"),
    ],
)
def test_epochs_that_are_not_the_segments_are_refused(change: Callable[[bytes], bytes]) -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0, 0, 0, 1, 1, 1], [2, 5, 6]))
        await carry(bench, leader.log)
        spoil(bench, ".leader_epoch_checkpoint", change, first=2)
        with pytest.raises(CorruptAuxState):
            await build(bench, leader, 4)

    built(scenario)


@pytest.mark.parametrize(
    "wrong",
    [
        b"0\n3\n5 0\n1 1\n2 3\n",
        b"0\n3\n0 1\n1 0\n2 3\n",
        b"0\n3\n1 0\n1 1\n2 3\n",
        b"0\n3\n0 0\n1 0\n2 3\n",
        b"0\n2\n0 0\n2 3\n",
    ],
    ids=["epochs fall", "offsets fall", "an epoch twice", "an offset twice", "another epoch at the beginning"],
)
def test_epochs_that_end_as_the_segments_are_refused_if_they_cannot_be_a_logs(wrong: bytes) -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [1, 1, 1, 2, 2, 2], [2, 5, 6]))
        await carry(bench, leader.log)
        assert tuple((await build(bench, leader, 4)).epochs) == epochs({1: 0, 2: 3})
        spoil(bench, ".leader_epoch_checkpoint", lambda _: wrong, first=2)
        with pytest.raises(CorruptAuxState):
            await build(bench, leader, 4)

    built(scenario)


def test_epochs_may_begin_inside_the_segment_as_the_log_does() -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0, 0, 0, 1, 1], [4]))
        leader.log.increment_log_start(Offset(2))
        await carry(bench, leader.log)
        assert tuple((await build(bench, leader, 3)).epochs) == epochs({0: 2, 1: 3})

    built(scenario)


def test_of_segments_with_an_offset_the_one_that_ends_there_is_taken_or_that_of_the_latest_epoch() -> None:
    ends_there, of_the_latest_epoch = segment(1, 0, 5, {0: 0}), segment(2, 0, 6, {0: 0, 2: 6})
    is_longer = segment(3, 0, 7, {0: 0, 1: 6})
    segments = (of_the_latest_epoch, ends_there, is_longer)
    assert newest(segments, ending_at=Offset(5)) is ends_there
    assert newest(segments, ending_at=Offset(4)) is of_the_latest_epoch
    assert newest(()) is None


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: data[:-1], lambda data: data[:-1] + b"\x01"])
def test_a_damaged_snapshot_of_the_producers_is_refused(change: Callable[[bytes], bytes]) -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(new_log(bench, "leader"))
        leader.log.append_as_leader(batch_of(b"one", producer=(7, 0, 0)), leader_epoch=LeaderEpoch(0))
        leader.log.roll()
        leader.log.append_as_leader(batch_of(b"two"), leader_epoch=LeaderEpoch(0))
        await carry(bench, leader.log)
        spoil(bench, ".snapshot", change)
        with pytest.raises(RemoteStorageError, match="producer snapshot"):
            await build(bench, leader, 1)

    built(scenario)


@pytest.mark.parametrize("suffix", [".leader_epoch_checkpoint", ".snapshot"])
def test_a_missing_object_is_an_error(suffix: str) -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0] * 4, [3]))
        await carry(bench, leader.log)
        path = next(path for path in bench.world.tier.files if path.startswith(ROOT) and path.endswith(suffix))
        del bench.world.tier.files[path]
        with pytest.raises(RemoteResourceNotFound):
            await build(bench, leader, 3)

    built(scenario)


def test_no_producers_are_searched_before_the_log_start() -> None:
    """The segments there may be gone."""

    async def scenario(bench: Bench) -> None:
        leader = Leader(written(bench, [0] * 8, [2, 4, 7]))
        await carry(bench, leader.log, 4)
        state = await build(bench, leader, 5, log_start=4)
        assert (state.epochs, state.producers) == (list(epochs({0: 0})), NO_PRODUCERS)
        assert (state.source.start_offset, state.source.end_offset) == (4, 6)

    built(scenario)


def random_log(bench: Bench, random: Random, name: str) -> UnifiedLog:
    """Epochs, producers and transactions at random; every roll is a segment of this leader."""
    log, epoch, sequences, open_txns = new_log(bench, name), 0, dict.fromkeys((1, 2, 3), 0), set[int]()
    for _ in range(40):
        if random.random() < 0.15:
            epoch += random.randint(1, 3)
        producer, choice = random.choice([1, 2, 3]), random.random()
        if choice < 0.2:
            log.append_as_leader(batch_of(b"plain"), leader_epoch=LeaderEpoch(epoch))
        elif producer in open_txns and choice < 0.5:
            data = marker((producer, 0), commit=random.random() < 0.5)
            log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch), origin=Origin.COORDINATOR)
            open_txns.discard(producer)
        else:
            values = [b"value"] * random.randint(1, 3)
            data = batch_of(*values, producer=(producer, 0, sequences[producer]), transactional=producer > 1)
            log.append_as_leader(data, leader_epoch=LeaderEpoch(epoch))
            sequences[producer] += len(values)
            open_txns |= {producer} - {1}
    log.set_high_watermark(log.log_end_offset)
    return log


def copy_with_rolls(bench: Bench, log: UnifiedLog, random: Random, name: str) -> UnifiedLog:
    """The same records on another broker, in other segments."""
    other = new_log(bench, name)
    offset = Offset(0)
    while offset < log.log_end_offset:
        if random.random() < 0.2:
            other.roll()
        data = log.read_bytes(offset, 1, upper=log.log_end_offset, min_one=True)
        offset = Offset(other.append_as_follower(memoryview(bytearray(data))).last_offset + 1)
    other.roll()
    other.set_high_watermark(other.log_end_offset)
    return other


def producers_of(log: UnifiedLog, upto: Offset) -> dict[int, tuple[object, ...]]:
    state = ProducerState()
    replay_producers(log.segments, state, Offset(0), upto)
    return comparable(encode_snapshot(state))


def comparable(snapshot: bytes) -> dict[int, tuple[object, ...]]:
    return {
        key: (entry.epoch, entry.batches, entry.txn_first_offset, entry.coordinator_epoch)
        for key, entry in decode_snapshot(snapshot)
    }


@pytest.mark.parametrize("seed", range(12))
def test_wherever_the_local_log_begins_epochs_and_producers_are_those_of_the_leader(seed: int) -> None:
    """Also where leaders have cut the same records into different segments."""

    async def scenario(bench: Bench) -> None:
        random = Random(seed)
        first = random_log(bench, random, "first")
        tiers = [copy_with_rolls(bench, first, random, f"log-{number}") for number in range(1 + seed % 2)]
        leader = Leader(copy_with_rolls(bench, first, random, "leader"))
        for log in tiers:
            bases = [segment.base_offset for segment in log.segments][:-1]
            await carry(bench, log, *(bases if log is tiers[0] else random.sample(bases, len(bases) // 2)))
        for closed in list(leader.log.segments)[1:-1]:
            offset = closed.base_offset
            state = await build(bench, leader, offset)
            known: list[EpochEntry] = list(leader.log.epochs.entries)
            assert [one for one in state.epochs if one.start <= offset] == [one for one in known if one.start <= offset]
            assert set(state.epochs) <= set(known)
            assert comparable(state.producers) == producers_of(leader.log, offset)

    built(scenario)


def test_batches_with_a_wrong_checksum_are_no_source_for_producers() -> None:
    async def scenario(bench: Bench) -> None:
        leader = Leader(new_log(bench, "leader"))
        for number in range(4):
            data = batch_of(b"one", producer=(7, 0, number))
            leader.log.append_as_leader(data, leader_epoch=LeaderEpoch(0))
        leader.log.roll()
        await carry(bench, leader.log)
        assert comparable((await build(bench, leader, 3)).producers) == producers_of(leader.log, Offset(3))
        spoil(bench, ".log", lambda data: data[:66] + bytes([data[66] ^ 1]) + data[67:])
        with pytest.raises(CorruptBatch):
            await build(bench, leader, 3)

    built(scenario)
