"""Copying segments, step by step, with every step failing or losing its leader (docs/kafka-semantics.md: Copying a
segment)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from milena.protocol.errors import KafkaError
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset
from milena.tiered.metadata.descriptions import described
from milena.tiered.metadata.metadata_manager import Deposed, RemoteLogMetadataError
from milena.tiered.segments.segment_metadata import UNFENCED, RemoteLogSegmentState
from milena.tiered.store.remote_storage import IndexType, RemoteStorageError, RetriableRemoteStorageError
from milena.tiered.work.copying import CustomMetadataTooLarge, copy_round
from milena.tiered.work.deletion import update_of
from milena.tiered.work.expiration import expire_round
from milena.tiered.work.roles import ReplicaRole
from tests.unit.storage.logs import append, marker
from tests.unit.tiered.tiered_log import TIER, Bench, on_bench

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
WHOLE_COPY = ["COPY_SEGMENT_STARTED 0", "COPY_SEGMENT_FINISHED 0"]
COPY_TAKEN_BACK = ["COPY_SEGMENT_STARTED 0", "DELETE_SEGMENT_STARTED 0", "DELETE_SEGMENT_FINISHED 0"]


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_a_segment_is_announced_copied_and_confirmed() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(2)
        bench.store.copying = lambda: seen.append(bench.states()[-1])
        seen: list[str] = []
        await copy_round(bench.tier, bench.role())
        assert seen == ["COPY_SEGMENT_STARTED 0", "COPY_SEGMENT_STARTED 2"]
        assert bench.states() == [*WHOLE_COPY, "COPY_SEGMENT_STARTED 2", "COPY_SEGMENT_FINISHED 2"]
        assert bench.stored() == [0, 2]
        assert bench.log.highest_offset_in_remote_storage == 3
        assert (bench.counted("remotecopyrequests"), bench.counted("remotecopyerrors")) == (2, 0)
        assert bench.counted("remotecopybytes") == sum(segment.size for segment in bench.log.segments)

    on_bench(scenario)


def test_of_a_compacted_log_the_segments_metadata_is_kept_beside_it() -> None:
    """Also if it is not compacted any more: its records have gaps."""

    async def scenario(bench: Bench) -> None:
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        bench.log.cleaned_to = Offset(1)
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        [plain, compacted] = bench.published_segments()
        assert await bench.store.description(plain.segment_id, plain.start_offset) is None
        kept = await bench.store.description(compacted.segment_id, compacted.start_offset)
        assert kept is not None and described(kept, compacted.segment_id) == compacted

    on_bench(scenario)


def test_a_segment_is_listed_with_its_own_epochs_and_stored_with_all_before_its_end() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1, epoch=0)
        bench.write(1, epoch=2)
        bench.write(1, epoch=2)
        await copy_round(bench.tier, bench.role())
        published = bench.published_segments()
        assert [one.epochs for one in published] == [((0, 0),), ((2, 2),), ((2, 4),)]
        texts = [await bench.store.fetch_index(one, IndexType.LEADER_EPOCH) for one in published]
        assert texts == [b"0\n1\n0 0\n", b"0\n2\n0 0\n2 2\n", b"0\n2\n0 0\n2 2\n"]
        assert [one.end_offset for one in published] == [1, 3, 5]
        assert all(one.broker_id == 1 and one.txn_index_empty for one in published)

    on_bench(scenario)


def test_aborted_transactions_go_along() -> None:
    async def scenario(bench: Bench) -> None:
        now = bench.runtime.clock.time_ms()
        append(bench.log, producer=(7, 0, 0), transactional=True, timestamp=now)
        abort = marker((7, 0), commit=False, timestamp=now)
        bench.log.append_as_leader(abort, leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        [published] = bench.published_segments()
        assert not published.txn_index_empty
        assert len(await bench.store.fetch_index(published, IndexType.TRANSACTION)) == 34

    on_bench(scenario)


def test_an_open_transaction_holds_its_segment_back() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1)
        append(bench.log, producer=(7, 0, 0), transactional=True, timestamp=bench.runtime.clock.time_ms())
        bench.write(2)
        await copy_round(bench.tier, bench.role())
        assert bench.stored() == [0]

    on_bench(scenario)


def test_nothing_is_copied_twice() -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(1)
        await copy_round(bench.tier, role)
        bench.write(1)
        await copy_round(bench.tier, role)
        await copy_round(bench.tier, bench.role())
        assert len(bench.published_segments()) == 2

    on_bench(scenario)


def test_after_an_error_that_may_pass_nothing_is_deleted_and_another_id_is_used() -> None:
    """KAFKA-19981."""

    async def scenario(bench: Bench) -> None:
        bench.write(1)
        role = bench.role()
        bench.store.copying = failing(RetriableRemoteStorageError("busy"))
        with pytest.raises(RetriableRemoteStorageError):
            await copy_round(bench.tier, role)
        assert bench.states() == ["COPY_SEGMENT_STARTED 0"]
        bench.store.copying = lambda: None
        await copy_round(bench.tier, role)
        assert bench.states() == ["COPY_SEGMENT_STARTED 0"], "not so soon"
        await bench.runtime.clock.sleep(30)
        await copy_round(bench.tier, role)
        first, second = bench.published_segments()
        assert first.id != second.id
        assert bench.states() == ["COPY_SEGMENT_STARTED 0", *WHOLE_COPY]
        assert (bench.store.deleted, role.copying) == ([], set())

    on_bench(scenario)


def test_after_another_error_what_was_copied_is_deleted() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1)
        bench.store.copying = failing(RemoteStorageError("no"))
        with pytest.raises(RemoteStorageError):
            await copy_round(bench.tier, bench.role())
        assert bench.states() == COPY_TAKEN_BACK
        assert bench.log.highest_offset_in_remote_storage == -1
        assert bench.counted("remotecopyerrors") == 1

    on_bench(scenario)


def test_what_cannot_be_deleted_after_a_failed_copy_stays_to_be_deleted() -> None:
    """KAFKA-17428."""

    async def scenario(bench: Bench) -> None:
        bench.write(1)
        bench.store.copying = bench.store.deleting = failing(RemoteStorageError("no"))
        with pytest.raises(RemoteStorageError):
            await copy_round(bench.tier, bench.role())
        assert bench.states() == COPY_TAKEN_BACK[:2]
        assert bench.counted("remotedeleteerrors") == 1

    on_bench(scenario)


@pytest.mark.parametrize(("size", "taken"), [(0, True), (128, True), (129, False)])
def test_the_stores_own_metadata_is_limited(size: int, taken: bool) -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()
        bench.write(2)
        bench.store.custom = b"x" * size
        if taken:
            await copy_round(bench.tier, role)
            assert [one.custom_metadata for one in bench.updates(FINISHED)] == [b"x" * size] * 2
            return
        with pytest.raises(CustomMetadataTooLarge):
            await copy_round(bench.tier, role)
        assert [one.custom_metadata for one in bench.store.deleted] == [b"x" * size]
        assert all(one.custom_metadata is None for one in bench.metadata.published)
        bench.store.custom = None
        await copy_round(bench.tier, role)
        assert bench.states() == COPY_TAKEN_BACK  # copying has ended for good
        await copy_round(bench.tier, bench.role())
        assert bench.stored() == [0, 2]

    on_bench(scenario)


def test_a_leader_that_resigns_while_it_copies_takes_the_copy_back() -> None:
    async def scenario(bench: Bench) -> None:
        def resign() -> None:
            bench.replica.is_leader = False

        bench.write(2)
        bench.store.copying = resign
        await copy_round(bench.tier, bench.role())
        assert bench.states() == COPY_TAKEN_BACK
        assert (bench.stored(), bench.log.highest_offset_in_remote_storage) == ([], -1)

    on_bench(scenario)


def test_a_leader_that_was_elected_again_has_another_role() -> None:
    async def scenario(bench: Bench) -> None:
        def elected_again() -> None:
            bench.replica.term += 1

        bench.write(1)
        bench.store.copying = elected_again
        await copy_round(bench.tier, bench.role())
        assert bench.states() == COPY_TAKEN_BACK

    on_bench(scenario)


def test_a_copy_whose_offsets_expire_meanwhile_is_not_deleted_under_its_hands() -> None:
    """Kafka's ``segmentIdsBeingCopied`` (docs/kafka-semantics.md: Copying a segment)."""

    async def scenario(bench: Bench) -> None:
        role = bench.role()

        async def expire() -> None:
            await bench.runtime.clock.sleep(2)
            await expire_round(bench.tier, role)

        bench.write(1)
        bench.store.copying = expire
        await copy_round(bench.tier, role)
        assert bench.states() == WHOLE_COPY
        assert (bench.store.deleted, bench.log.log_start_offset) == ([], 0)
        await expire_round(bench.tier, role)
        assert (bench.stored(), bench.log.log_start_offset) == ([], 2), "now its turn has come"

    on_bench(scenario, retention_ms=1000)


def test_objects_that_are_stored_after_a_later_leader_has_deleted_their_segment_are_deleted() -> None:
    """Its topic may be gone, so that no leader looks for them any more."""

    async def scenario(bench: Bench) -> None:
        async def delete() -> None:
            [published] = bench.published_segments()
            for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
                update = update_of(bench.tier, published, state, LeaderEpoch(1))
                await bench.metadata.update(update)

        bench.write(1)
        bench.store.copying = delete
        with pytest.raises(Deposed, match="leader epoch 1 has fenced"):
            await copy_round(bench.tier, bench.role())
        assert bench.stored() == bench.stored(".index") == []

    on_bench(scenario)


def test_a_sweep_knows_what_is_being_copied_whatever_the_metadata_says() -> None:
    """Another broker, which took itself for the leader, may have ended the segment's life there."""

    async def scenario(bench: Bench) -> None:
        role = bench.role()

        async def sweep() -> None:
            [published] = bench.published_segments()
            for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
                await bench.metadata.update(update_of(bench.tier, published, state, UNFENCED))
            await expire_round(bench.tier, role)

        bench.write(1)
        bench.store.copying = sweep
        with pytest.raises(Deposed, match="is not known any more, and not COPY_SEGMENT_FINISHED in 0"):
            await copy_round(bench.tier, role)
        assert bench.log.highest_offset_in_remote_storage == -1, "its local segment stays"
        assert bench.store.swept == [{one.id for one in bench.published_segments()}]

    on_bench(scenario)


def test_copying_that_is_switched_off_while_the_quota_holds_it_back_is_over() -> None:
    """KIP-950: another broker's administrator has said ``remote.log.copy.disable``."""

    async def scenario(bench: Bench) -> None:
        def switch_off() -> None:
            bench.log.update_config(replace(bench.log.config, remote_log_copy_disable=True))

        await held_back(bench, bench.role(), switch_off)

    on_bench(scenario)


@pytest.mark.parametrize("how", ["ended", "resigned", "elected again"])
def test_a_role_that_ends_while_the_quota_holds_it_back_copies_no_more(how: str) -> None:
    async def scenario(bench: Bench) -> None:
        role = bench.role()

        def change() -> None:
            if how == "ended":
                role.end()
            elif how == "resigned":
                bench.replica.is_leader = False
            else:
                bench.replica.term += 1

        await held_back(bench, role, change)

    on_bench(scenario)


async def held_back(bench: Bench, role: ReplicaRole, change: Callable[[], None]) -> None:
    """While the second of three segments waits for the quota, there is a ``change``: nothing more is begun."""
    bench.tier.copy_quota.limit = 30
    bench.write(3)
    bench.runtime.clock.call_later(2, change)
    await copy_round(bench.tier, role)
    assert bench.states() == WHOLE_COPY
    assert (bench.stored(), bench.counted("remotecopyrequests")) == ([0], 1)
    assert bench.metrics.value("kafka_server_remotelogmanager_remote_copy_throttle_time") > 0


def test_a_copy_that_cannot_be_confirmed_does_not_count() -> None:
    async def scenario(bench: Bench) -> None:
        def metadata_fails() -> None:
            bench.metadata.failure = RemoteLogMetadataError("no leader")

        bench.write(1)
        role = bench.role()
        bench.store.copying = metadata_fails
        with pytest.raises(RemoteLogMetadataError):
            await copy_round(bench.tier, role)
        assert bench.log.highest_offset_in_remote_storage == -1
        assert not role.copying

    on_bench(scenario)


def test_nothing_is_copied_while_copying_is_switched_off() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        assert bench.states() == []

    on_bench(scenario, remote_log_copy_disable=True)


def test_a_segment_whose_epochs_are_not_known_is_not_copied() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(1)
        bench.log.epochs.clear()
        with pytest.raises(KafkaError, match="no leader epoch"):
            await copy_round(bench.tier, bench.role())

    on_bench(scenario)


def test_a_leader_that_lost_its_oldest_epochs_leaves_the_log_start_where_it_is() -> None:
    async def scenario(bench: Bench) -> None:
        bench.write(3)
        await copy_round(bench.tier, bench.role())
        bench.log.epochs.clear()
        bench.log.assign_epoch(LeaderEpoch(5), Offset(4))
        await copy_round(bench.tier, bench.role())
        assert bench.log.log_start_offset == 0
        assert bench.events.named("leader epochs do not reach back to the log start")

    on_bench(scenario)


def test_work_orders_of_earlier_versions_are_removed_before_the_first_copy() -> None:
    async def scenario(bench: Bench) -> None:
        order = f"{TIER}/milena-work/t-0-CW5A9SKRS_WxyxtSqNbcrQ/7-AAAAAAAAAAAAAAAAAAAABw"
        await copy_round(bench.tier, bench.role())
        bench.runtime.tier_disk.make_folders(order)
        bench.runtime.tier_disk.write_atomic(f"{order}/order.json", b"{}")
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        assert not bench.runtime.tier_disk.exists(f"{TIER}/milena-work")
        assert bench.events.named("work orders of an earlier version removed from the tier")
        bench.runtime.tier_disk.make_folders(order)
        bench.write(1)
        await copy_round(bench.tier, bench.role())
        assert bench.runtime.tier_disk.exists(order)  # once in a process
        assert bench.stored() == [0, 2]

    on_bench(scenario)


def test_copies_go_on_if_work_orders_cannot_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        asked: list[str] = []

        async def refuse() -> bool:
            asked.append("removal")
            raise RemoteStorageError("access denied")

        monkeypatch.setattr(bench.store, "remove_work_orders", refuse)
        for _ in range(2):
            bench.write(1)
            await copy_round(bench.tier, bench.role())
        assert (asked, bench.stored()) == (["removal"], [0, 2])
        found = bench.events.named("work orders of an earlier version not removed")
        assert [one["reason"] for one in found] == ["access denied"]

    on_bench(scenario)
