"""Which offsets were cleaned in favour of values that an unclean election has cut off."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final
from uuid import UUID

import pytest

from milena.protocol.types import LeaderEpoch, Offset
from milena.storage.state.epoch_cache import EpochEntry
from milena.tiered.segments.lost_values import LostValues, lost_values
from milena.tiered.segments.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from milena.tiered.shared.pool import Pool
from milena.tiered.work.copying import copy_round
from milena.tiered.work.expiration import expire_round
from milena.tiered.work.gauges import TierGauges
from tests.unit.tiered.segments import epochs, offsets, segment, update
from tests.unit.tiered.tiered_log import Bench, on_bench

FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED


def part(
    number: int, start: int, end: int, starts: Mapping[int, int], cleaned: Mapping[int, int | None] | None = None
) -> RemoteLogSegmentMetadata:
    return replace(segment(number, start, end, starts, state=FINISHED), cleaned=offsets(cleaned or {}))


def lost(
    *segments: RemoteLogSegmentMetadata, starts: Mapping[int, int], log_end: int, rejected: tuple[int, ...] = ()
) -> list[tuple[int, ...]]:
    found = lost_values(
        segments,
        lambda one: one.id.int not in rejected,
        leader_epochs=epochs(starts),
        log_end=Offset(log_end),
    )
    return [tuple(one) for one in found]


FIRST = part(1, 0, 99, {0: 0}, {0: 155})
"""Cleaned by the leader of epoch 0, which had 155 records then."""


def test_without_an_unclean_election_nothing_is_lost() -> None:
    assert lost(FIRST, starts={0: 0}, log_end=155) == []
    assert lost(FIRST, starts={0: 0, 1: 155}, log_end=200) == []
    assert lost(part(1, 0, 99, {0: 0}), starts={0: 0, 1: 120}, log_end=200) == []


def test_what_the_new_leader_does_not_have_is_lost_with_what_was_cleaned_for_it() -> None:
    assert lost(FIRST, starts={0: 0, 1: 120}, log_end=200) == [(0, 99, 120, 154)]


def test_before_the_new_leaders_first_record_its_log_end_decides() -> None:
    assert lost(FIRST, starts={0: 0}, log_end=120) == [(0, 99, 120, 154)]


def test_a_rejected_cleaning_is_not_read_and_has_lost_nothing() -> None:
    assert lost(FIRST, starts={0: 0, 1: 120}, log_end=200, rejected=(1,)) == []


def test_ranges_that_follow_each_other_are_merged() -> None:
    parts = [part(n, 40 * n, 40 * n + 39, {0: 40 * n}, {0: 155}) for n in range(3)]
    assert lost(*parts, starts={0: 0, 1: 130}, log_end=200) == [(0, 119, 130, 154)]
    assert lost(parts[0], parts[2], starts={0: 0, 1: 130}, log_end=200) == [(0, 39, 130, 154), (80, 119, 130, 154)]


def test_what_only_a_later_leader_had_was_not_cleaned_by_a_former_one() -> None:
    later = part(2, 120, 139, {1: 120}, {0: 155, 1: 180})
    assert lost(later, starts={0: 0, 1: 120}, log_end=200) == []
    whole = part(2, 0, 139, {0: 0, 1: 120}, {0: 155, 1: 180})
    assert lost(whole, starts={0: 0, 1: 120}, log_end=200) == [(0, 119, 120, 154)]


def test_lost_values_of_two_leaders_are_both_found() -> None:
    whole = part(2, 0, 139, {0: 0, 1: 120}, {0: 155, 1: 180})
    assert lost(whole, starts={0: 0, 1: 120, 2: 150}, log_end=200) == [(0, 119, 120, 154), (0, 139, 150, 179)]


def test_only_what_a_segment_serves_counts() -> None:
    cut = part(1, 0, 139, {0: 0}, {0: 155})
    assert lost(cut, starts={0: 0, 1: 120}, log_end=200) == [(0, 119, 120, 154)]
    assert lost(cut, starts={3: 0}, log_end=200) == []


def test_what_was_cleaned_after_the_lost_range_cannot_have_been_for_it() -> None:
    later = part(2, 155, 199, {1: 155}, {0: 155, 1: 200})
    assert lost(later, starts={0: 0, 1: 150}, log_end=200) == []


def test_a_later_leaders_map_keeps_what_a_former_one_has_cleaned_for() -> None:
    later = part(2, 0, 99, {0: 0}, {0: 155, 1: 180})
    assert lost(later, starts={0: 0, 1: 120}, log_end=200) == [(0, 99, 120, 154)]


def test_an_epoch_without_records_in_the_log_is_known_from_its_segments() -> None:
    """B led in epoch 1 from offset 50 on, A is elected uncleanly and its log of epoch 0 is longer (kip405-5)."""
    of_b = part(1, 0, 79, {0: 0, 1: 50}, {0: None, 1: 80})
    assert lost(of_b, starts={0: 0, 2: 100}, log_end=200) == [(0, 49, 50, 79)]
    below = [part(1, 0, 49, {0: 0}, {1: 80}), part(2, 50, 79, {1: 50}, {1: 80})]
    assert lost(*below, starts={0: 0, 2: 100}, log_end=200) == [(0, 49, 50, 79)]


def test_an_epoch_of_which_nothing_is_known_counts_as_far_as_the_one_before_it() -> None:
    assert lost(part(1, 0, 49, {0: 0}, {1: 80}), starts={0: 0, 2: 60}, log_end=200) == [(0, 49, 60, 79)]
    assert lost(part(1, 0, 49, {0: 0}, {1: 80}), starts={0: 0, 2: 90}, log_end=200) == []


def test_what_retention_has_deleted_is_not_lost() -> None:
    kept = part(1, 100, 149, {1: 100}, {0: 90, 1: 200})
    assert lost(kept, starts={1: 100}, log_end=200) == []
    assert lost(kept, starts={1: 100, 2: 160}, log_end=200) == [(100, 149, 160, 199)]


def test_a_log_without_epochs_has_no_segments() -> None:
    assert lost(FIRST, starts={}, log_end=0) == []


# -- against logs whose records are known


@dataclass
class Replica:
    """The epoch of each record."""

    log: list[int]

    def entries(self) -> tuple[EpochEntry, ...]:
        found: list[EpochEntry] = []
        for offset, epoch in enumerate(self.log):
            if not found or found[-1].epoch != epoch:
                found.append(EpochEntry(LeaderEpoch(epoch), Offset(offset)))
        return tuple(found)


@pytest.mark.parametrize("seed", range(200))
def test_of_any_elections_the_lost_records_are_found(seed: int) -> None:
    """Each leader copies its whole log in small segments and cleans it, after an election among replicas that are in
    part behind: what the last log lacks of its log must be found, and no more."""
    random = Random(seed)
    replicas = [Replica([]) for _ in range(3)]
    used: list[tuple[int, list[int]]] = []
    segments: list[RemoteLogSegmentMetadata] = []
    leader = replicas[0]
    for epoch in range(random.randrange(2, 6)):
        leader = random.choice(replicas)
        leader.log += [epoch] * random.randrange(1, 5)
        for follower in replicas:
            if follower is not leader and random.random() < 0.6:  # else it is behind, or has another log
                follower.log = leader.log[: len(leader.log) - random.choice([0, 0, 1, 2])]
        used.append((epoch, list(leader.log)))
        known = {int(entry.epoch): int(entry.start) for entry in leader.entries()}
        number = len(segments) + 1
        segments.append(part(number, 0, len(leader.log) - 1, known, {epoch: len(leader.log)}))
    present, ends = leader.entries(), Offset(len(leader.log))
    for number, (epoch, log) in enumerate(used):
        shared = next(
            (at for at, (one, other) in enumerate(zip(log, leader.log, strict=False)) if one != other),
            min(len(log), len(leader.log)),
        )
        found = lost_values([segments[number]], lambda _: True, leader_epochs=present, log_end=ends, others=segments)
        expected = [LostValues(Offset(0), Offset(shared - 1), Offset(shared), Offset(len(log) - 1))]
        assert found == (expected if 0 < shared < len(log) else []), (epoch, log, leader.log)


# -- on a leader


def test_a_leader_counts_them_and_says_so_once() -> None:
    async def scenario(bench: Bench) -> None:
        TierGauges(bench.metrics, (Pool(lambda: 1),)).show(role := bench.role())

        def counted() -> float:
            return bench.metrics.value("kafka_server_brokertopicmetrics_remotelogcleanlostranges", topic="t")

        def logged() -> list[dict[str, object]]:
            return bench.events.named("records were cleaned because of others that an unclean election has truncated")

        bench.write(2)
        await copy_round(bench.tier, role)
        await expire_round(bench.tier, role)
        assert (counted(), logged()) == (0, [])
        [source, _] = bench.published_segments()
        again = replace(
            source,
            segment_id=replace(source.segment_id, id=UUID(int=1)),
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            cleaned=offsets({0: 9}),
            replaces=(source.id,),
        )
        await bench.metadata.add(again)
        await bench.metadata.update(update(again, FINISHED))
        for _ in range(2):
            await expire_round(bench.tier, role)
            logged_values = [tuple(fields[name] for name in LostValues._fields) for fields in logged()]
            assert (counted(), logged_values) == (1, [(0, 1, 4, 8)])

    on_bench(scenario)
