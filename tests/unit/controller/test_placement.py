"""Replicas are striped over racks and brokers."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.controller.rules.placement import UsableBroker, place
from milena.protocol.errors import ErrorCode, KafkaError
from milena.runtime.randomness import Randomness


def brokers(count: int, *, racks: int = 1, fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(n, f"r{n % racks}" if racks > 1 else None, n in fenced) for n in range(count)]


def test_leaders_go_round_robin_so_that_each_broker_leads_as_often() -> None:
    placed = place(brokers(3), partitions=6, replicas=1, random=Randomness(1))
    assert Counter(replicas[0] for replicas in placed) == {0: 2, 1: 2, 2: 2}


def test_the_replicas_of_a_partition_spread_over_all_racks() -> None:
    placed = place(brokers(6, racks=3), partitions=40, replicas=3, random=Randomness(2))
    assert all({broker % 3 for broker in replicas} == {0, 1, 2} for replicas in placed)


def test_a_fenced_broker_never_comes_first_and_takes_replicas_only_where_it_must() -> None:
    placed = place(brokers(3, fenced=(2,)), partitions=12, replicas=2, random=Randomness(3))
    assert all(set(replicas) == {0, 1} for replicas in placed)
    with_three = place(brokers(3, fenced=(2,)), partitions=12, replicas=3, random=Randomness(3))
    assert all(replicas[2] == 2 for replicas in with_three)


@pytest.mark.parametrize(
    ("usable", "replicas"), [(brokers(2), 3), (brokers(2), 0), (brokers(2, fenced=(0, 1)), 1), ([], 1)]
)
def test_what_cannot_be_carried_is_an_invalid_replication_factor(usable: list[UsableBroker], replicas: int) -> None:
    with pytest.raises(KafkaError) as failure:
        place(usable, partitions=1, replicas=replicas, random=Randomness(4))
    assert failure.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(st.data())
def test_any_cluster_gets_distinct_replicas_with_an_unfenced_leader(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    racks = [data.draw(st.sampled_from([None, "a", "b", "c"])) for _ in range(count)]
    fenced = [data.draw(st.booleans()) for _ in range(count - 1)]
    usable = [UsableBroker(n, racks[n], n > 0 and fenced[n - 1]) for n in range(count)]
    replicas = data.draw(st.integers(1, count))
    placed = place(usable, partitions=30, replicas=replicas, random=Randomness(data.draw(st.integers(0, 99))))
    for chosen in placed:
        assert len(set(chosen)) == len(chosen) == replicas
        assert not usable[chosen[0]].fenced
