"""A mark of a former leader that does not hold: the segment is read again at once, and published under a new id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.metadata_cache import RemoteLogMetadataCache
from milena.tiered.metadata.metadata_manager import Deposed
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.store.remote_storage import IndexType, RemoteResourceNotFound, RemoteStorageError
from milena.tiered.work.copying import copy_round
from milena.tiered.work.deletion import announce_deletion, finish_deletion
from milena.tiered.work.expiration import expire_round
from milena.tiered.work.former_deletions import gaps, unjustified
from milena.tiered.work.log_updates import follow_round
from milena.tiered.work.republishing import PREFIX
from milena.tiered.work.retention import LogView
from milena.tiered.work.roles import ReplicaRole
from tests.unit.tiered.remote_reads import lose_local
from tests.unit.tiered.segments import epochs, offsets, segment, update
from tests.unit.tiered.tiered_log import Bench, on_bench

STARTED, FINISHED, MARKED, DELETED = RemoteLogSegmentState
FORMER, PRESENT = LeaderEpoch(0), LeaderEpoch(1)


async def with_mark(bench: Bench, *, local: bool = False, remove: bool = False, number: int = 0) -> ReplicaRole:
    """Three segments are in the tier. The former leader marks one, reads its mark back, and is paused (``remove``: or
    is not) before it deletes the files. Then another leads."""
    role = bench.role()
    bench.write(3)
    await copy_round(bench.tier, role)
    if not local:
        lose_local(bench.log)
    one = bench.metadata.cache(role.partition).segments()[number]
    await announce_deletion(bench.tier, one, role.leader_epoch)
    if remove:
        await bench.store.delete(one)
    bench.tier.unreliable.forget(role.partition)  # it is another broker
    bench.replica.term, bench.replica.leader_epoch = 2, PRESENT
    return bench.role()


def served(bench: Bench, role: ReplicaRole, *, at: int = 0) -> RemoteLogSegmentMetadata | None:
    cache = bench.metadata.cache(role.partition)
    found = cache.segment_for(Offset(at), leader_epochs=bench.log.epochs.entries, log_end=bench.log.log_end_offset)
    return None if found is None else found.segment


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_is_still_wanted_is_read_at_once_and_published_under_a_new_id(number: int) -> None:
    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench, number=number)
        assert served(bench, role, at=2 * number) is None
        await copy_round(bench.tier, role)
        at_risk_segment = served(bench, role, at=2 * number)
        assert at_risk_segment is not None and at_risk_segment.at_risk
        assert bench.log.log_start_offset == 0
        await expire_round(bench.tier, role)
        again = served(bench, role, at=2 * number)
        assert again is not None and again.id != at_risk_segment.id and not again.at_risk
        assert (again.epochs, again.size, again.leader_epoch) == (at_risk_segment.epochs, at_risk_segment.size, PRESENT)
        assert (bench.stored(), [one.id for one in bench.store.deleted]) == ([0, 2, 4], [at_risk_segment.id])
        for suffix in (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"):
            assert bench.stored(suffix) == [0, 2, 4]
        data = await (await bench.store.fetch(again, 0)).read()
        assert len(data) == again.size
        assert [name for name in bench.runtime.disk.list(bench.log.folder) if name.startswith(PREFIX)] == []

    on_bench(scenario)


def test_a_round_of_a_former_office_that_ends_late_takes_no_files_of_the_next_one() -> None:
    """This broker led, waits for the store, and leads again."""

    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench)
        await copy_round(bench.tier, role)
        data = await (await bench.store.fetch(bench.metadata.cache(role.partition).segments()[0], 0)).read()
        fetch, waiting, goes_on = bench.store.fetch, asyncio.Event(), asyncio.Event()

        async def fetching(*arguments: Any, **options: Any) -> Any:
            if not waiting.is_set():
                waiting.set()
                await goes_on.wait()
            return await fetch(*arguments, **options)

        async def copying() -> None:
            goes_on.set()
            await asyncio.wait([former])

        bench.store.fetch, bench.store.copying = fetching, copying  # type: ignore[method-assign]
        former = asyncio.ensure_future(expire_round(bench.tier, role))
        await waiting.wait()
        bench.replica.term, bench.replica.leader_epoch = 3, LeaderEpoch(2)
        role = bench.role()
        await expire_round(bench.tier, role)
        goes_on.set()
        await former
        await expire_round(bench.tier, role)
        again = served(bench, role)
        assert again is not None and not again.at_risk
        assert await (await bench.store.fetch(again, 0)).read() == data

    on_bench(scenario)


def test_the_former_leader_may_delete_the_old_one_then() -> None:
    """It was paused between its check and the unlink."""

    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench)
        marked = bench.metadata.cache(role.partition).segments()[0]
        await expire_round(bench.tier, role)
        await bench.store.delete(marked)
        assert bench.stored() == [0, 2, 4]
        found = served(bench, role)
        assert found is not None and await (await bench.store.fetch(found, 0)).read()
        with pytest.raises(Deposed):
            await finish_deletion(bench.tier, marked, FORMER)

    on_bench(scenario)


def test_if_it_has_deleted_it_before_the_log_begins_behind_it() -> None:
    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench, remove=True)
        await expire_round(bench.tier, role)
        assert bench.events.named("segment was deleted by a former leader")
        assert served(bench, role) is None
        await expire_round(bench.tier, bench.role())
        assert bench.log.log_start_offset == 2

    on_bench(scenario)


def test_what_has_expired_for_the_present_leader_too_goes() -> None:
    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench)
        await bench.runtime.clock.sleep(10)
        await expire_round(bench.tier, role)
        assert bench.stored() == [] and not bench.events.named("deletion by a former leader withdrawn")

    on_bench(scenario, retention_ms=1000)


def test_what_is_local_is_copied_from_there() -> None:
    """No deletion is withdrawn: the local segment is copied again, and the other one deleted."""

    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench, local=True)
        marked = bench.metadata.cache(role.partition).segments()[0]
        await copy_round(bench.tier, role)
        await expire_round(bench.tier, role)
        found = served(bench, role)
        assert found is not None and found.id != marked.id
        assert [one.id for one in bench.store.deleted] == [marked.id]
        assert not bench.events.named("deletion by a former leader withdrawn")

    on_bench(scenario)


def test_a_store_that_fails_is_tried_again() -> None:
    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench)

        def fail() -> None:
            raise RemoteStorageError("no")

        bench.store.copying = fail
        with pytest.raises(RemoteStorageError):
            await expire_round(bench.tier, role)
        kept = served(bench, role)
        assert kept is not None and kept.at_risk
        bench.store.copying = lambda: None
        published = len(bench.metadata.published)
        await expire_round(bench.tier, role)
        assert len(bench.metadata.published) == published, "each attempt leaves a record: not at once"
        role.attempts.forget()
        await expire_round(bench.tier, role)
        found = served(bench, role)
        assert found is not None and not found.at_risk and bench.stored() == [0, 2, 4]

    on_bench(scenario)


@pytest.mark.parametrize("damaged", [IndexType.LEADER_EPOCH, IndexType.PRODUCER_SNAPSHOT])
def test_a_segment_with_a_truncated_object_is_not_published_again_but_the_next_one_is(damaged: IndexType) -> None:
    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench)
        first, second, _ = bench.metadata.cache(role.partition).segments()
        await announce_deletion(bench.tier, second, FORMER)
        bench.tier.unreliable.forget(role.partition)
        fetch_index = bench.store.fetch_index

        async def truncated(metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
            data = await fetch_index(metadata, index)
            return data[:-1] if metadata.id == first.id and index is damaged else data

        bench.store.fetch_index = truncated  # type: ignore[method-assign]
        await expire_round(bench.tier, role)
        kept, again = served(bench, role), served(bench, role, at=2)
        assert kept is not None and kept.id == first.id and kept.at_risk
        assert again is not None and again.id != second.id and not again.at_risk
        assert len(bench.events.named("segment is not republished")) == 1

    on_bench(scenario)


@pytest.mark.parametrize("missing", [index for index in IndexType if index is not IndexType.TRANSACTION])
def test_a_segment_with_a_log_and_without_an_index_is_not_deleted(missing: IndexType) -> None:
    """A former leader that deletes it removes the log first. The store may have lost the index, perhaps for a while."""

    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench)
        first = bench.metadata.cache(role.partition).segments()[0]
        fetch_index = bench.store.fetch_index

        async def without(metadata: RemoteLogSegmentMetadata, index: IndexType) -> bytes:
            if index is missing:
                raise RemoteResourceNotFound(f"there is no {index.value}")
            return await fetch_index(metadata, index)

        bench.store.fetch_index = without  # type: ignore[method-assign]
        await expire_round(bench.tier, role)
        kept = served(bench, role)
        assert kept is not None and kept.id == first.id and kept.at_risk
        assert bench.stored() == [0, 2, 4] and not bench.store.deleted
        bench.store.fetch_index = fetch_index  # type: ignore[method-assign]
        await expire_round(bench.tier, role)
        again = served(bench, role)
        assert again is not None and not again.at_risk

    on_bench(scenario)


def test_the_next_leader_goes_on_where_one_has_crashed() -> None:
    """After the deletion was withdrawn, and before the segment was republished."""

    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench)
        await copy_round(bench.tier, role)
        bench.replica.term, bench.replica.leader_epoch = 3, LeaderEpoch(2)
        await expire_round(bench.tier, bench.role())
        found = served(bench, role)
        assert found is not None and (found.at_risk, found.leader_epoch) == (False, 2)

    on_bench(scenario)


def test_a_doubtful_segment_is_no_copy_of_a_local_one() -> None:
    """Else a follower would delete the last copy."""

    async def scenario(bench: Bench) -> None:
        role = await with_mark(bench, local=True)
        one = bench.metadata.cache(role.partition).segments()[0]
        await bench.metadata.update(replace(update(one, FINISHED), leader_epoch=PRESENT, republishes=True))
        bench.replica.is_leader = False
        await follow_round(bench.tier, bench.role())
        assert bench.log.highest_offset_in_remote_storage == -1

    on_bench(scenario)


# -- the decision

VIEW = LogView(epochs({0: 0, 2: 10}), Offset(0), Offset(40), 0, -1, -1, Offset(29))


def judged(
    *segments: RemoteLogSegmentMetadata, marked: Sequence[int] = (1,), view: LogView = VIEW, author: int = 0
) -> list[int]:
    cache = RemoteLogMetadataCache()
    for one in segments:
        cache.apply(one)
        cache.apply(update(one, FINISHED))
        if one.id.int in marked:
            cache.apply(replace(update(one, MARKED), leader_epoch=LeaderEpoch(author)))
    found = unjustified(cache, view, Offset(30), by=LeaderEpoch(3), now=1_000_000)
    return [one.id.int for one in found]


ON, NEXT = segment(1, 0, 9, {0: 0}), segment(2, 10, 29, {2: 10})


def test_a_mark_that_would_open_a_gap_does_not_hold() -> None:
    assert judged(ON, NEXT) == [1]
    assert judged(NEXT, ON, marked=(1, 2)) == [1, 2]


def test_below_the_log_start_it_holds() -> None:
    assert judged(ON, NEXT, view=replace(VIEW, log_start=Offset(10))) == []


def test_beyond_retention_it_holds() -> None:
    assert judged(ON, NEXT, view=replace(VIEW, retention_ms=1000)) == []
    assert judged(ON, NEXT, view=replace(VIEW, retention_bytes=2000)) == []
    assert judged(ON, NEXT, view=replace(VIEW, retention_bytes=2001)) == [1]


def test_off_the_lineage_it_holds() -> None:
    other = segment(1, 0, 9, {1: 0})
    assert judged(other, NEXT) == []


def test_of_a_segment_that_is_partly_on_the_lineage_the_part_is_wanted() -> None:
    straddling = segment(1, 0, 15, {0: 0, 1: 8})
    assert judged(straddling, NEXT) == [1]
    assert judged(straddling, segment(3, 0, 9, {0: 0}), NEXT) == []


def test_what_others_serve_is_not_needed() -> None:
    assert judged(ON, segment(3, 0, 9, {0: 0}), NEXT) == []
    cleaned = replace(segment(3, 0, 9, {0: 0}), cleaned=offsets({0: 9}), replaces=(ON.id,))
    assert judged(ON, cleaned, NEXT) == []


def test_gaps_elsewhere_do_not_make_it_needed() -> None:
    copy_of_on, copy_of_next = segment(3, 0, 9, {0: 0}), segment(4, 10, 29, {2: 10})
    assert judged(ON, copy_of_on) == [], "offsets 10 to 29 are lacking"
    assert judged(NEXT, copy_of_next, marked=(2,)) == [], "offsets 0 to 9 are lacking"
    straddling = segment(5, 0, 15, {0: 0, 2: 10})
    assert judged(straddling, ON, NEXT, marked=(5,)) == [], "nothing is lacking"


def test_only_segments_that_a_former_leader_deletes_are_withdrawn() -> None:
    """Another segment with lacking offsets is a cleaning that was rejected."""
    rejected = replace(segment(3, 0, 9, {0: 0}), cleaned=offsets({0: 9}))
    later = replace(segment(4, 10, 29, {2: 10}), cleaned=offsets({0: 5, 2: 30}))
    cache = RemoteLogMetadataCache()
    for one in (ON, rejected, later):
        cache.apply(one)
        cache.apply(replace(update(one, FINISHED), leader_epoch=LeaderEpoch(0)))
    cache.apply(replace(update(ON, MARKED), leader_epoch=LeaderEpoch(0)))
    found = unjustified(cache, VIEW, Offset(30), by=LeaderEpoch(3), now=1_000_000)
    assert [one.id.int for one in found] == [1]


def test_gaps_are_the_offsets_that_no_segment_serves() -> None:
    cache = RemoteLogMetadataCache()
    for one in (segment(1, 2, 4, {0: 2}), segment(2, 5, 7, {0: 5}), segment(3, 10, 11, {0: 10})):
        cache.apply(one)
        cache.apply(update(one, FINISHED))
    log = epochs({0: 0})
    assert list(gaps(cache, log, Offset(0), Offset(14))) == [(0, 1), (8, 9), (12, 13)]
    assert list(gaps(cache, log, Offset(2), Offset(8))) == []


def test_marks_of_kafka_and_of_this_leader_hold() -> None:
    assert judged(ON, NEXT, author=-1) == []
    assert judged(ON, NEXT, author=3) == []


def test_the_remains_of_a_copy_that_never_ended_are_not_made_readable() -> None:
    cache = RemoteLogMetadataCache()
    cache.apply(ON)
    cache.apply(replace(update(ON, MARKED), leader_epoch=LeaderEpoch(0)))
    assert unjustified(cache, VIEW, Offset(30), by=LeaderEpoch(3), now=1) == []
