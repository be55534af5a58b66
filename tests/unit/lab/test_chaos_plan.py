"""The plan of a chaos run: determined by the seed, with every kind of fault, and without loss of promised records."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import pytest

from milena.lab.chaos.faults import CLIENTS, FAULTS, Kind, Notice, Shape, Step, Trait, has
from milena.lab.chaos.plan import UNSAFE_FIRST, Round, go_together, in_rounds, overlapping, overlaps, plan, within
from milena.lab.histories.progress import PATIENCE

SHAPE = Shape([1, 2, 3], 100, session=3.0, lag=5.0)
LONG = 2000.0
ROUNDS = [kind for kind in Kind if in_rounds(kind)]


def kinds_with(trait: Trait) -> frozenset[Kind]:
    return frozenset(kind for kind in FAULTS if has(kind, trait))


def long_plans() -> list[Round]:
    return list(itertools.chain.from_iterable(plan(seed, LONG, ROUNDS, SHAPE) for seed in range(20)))


def test_the_seed_determines_the_plan() -> None:
    assert plan(7, 300, ROUNDS, SHAPE) == plan(7, 300, ROUNDS, SHAPE)
    assert plan(7, 300, ROUNDS, SHAPE) != plan(8, 300, ROUNDS, SHAPE)


def test_the_order_of_the_kinds_does_not_matter() -> None:
    assert plan(7, 300, ROUNDS, SHAPE) == plan(7, 300, list(reversed(ROUNDS)), SHAPE)


@pytest.mark.parametrize("seed", range(10))
def test_each_kind_of_fault_comes_once_before_any_kind_is_repeated(seed: int) -> None:
    drawn = [step.kind for one in plan(seed, LONG, ROUNDS, SHAPE) for step in one.steps]
    assert set(drawn[: len(ROUNDS)]) == set(ROUNDS)


def test_a_plan_is_as_long_as_requested() -> None:
    rounds = plan(1, 100, [Kind.KILL], SHAPE)
    assert sum(one.pause + max(step.seconds for step in one.steps) for one in rounds) >= 100
    assert {step.kind for one in rounds for step in one.steps} == {Kind.KILL}


def test_a_plan_without_kinds_of_faults_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one kind"):
        plan(1, 100, [], SHAPE)


def test_a_round_has_one_or_two_faults() -> None:
    assert {len(one.steps) for one in long_plans()} == {1, 2}


def test_data_is_lost_on_one_broker_at_a_time_while_no_other_leaves_an_isr() -> None:
    for one in long_plans():
        kinds = [step.kind for step in one.steps]
        losing = [step for step in one.steps if has(step.kind, Trait.LOSES)]
        assert len(losing) <= 1
        for step in losing:
            assert len(step.nodes) == 1
            assert set(kinds) - {step.kind} <= kinds_with(Trait.KEEPS_ISR)


def test_two_faults_of_a_round_have_different_nodes() -> None:
    for one in long_plans():
        nodes = [node for step in one.steps for node in step.nodes]
        brokers = [node for node in nodes if node in SHAPE.brokers]
        assert len(brokers) == len(set(brokers)), one


def test_only_one_fault_of_a_round_cuts_links() -> None:
    assert all(sum(has(step.kind, Trait.OF_LINKS) for step in one.steps) <= 1 for one in long_plans())


def test_faults_that_end_every_broker_come_alone() -> None:
    assert all(len(one.steps) == 1 for one in long_plans() for step in one.steps if has(step.kind, Trait.ALONE))


def test_a_one_way_cut_has_two_ends_of_which_one_is_a_broker() -> None:
    for one in long_plans():
        for step in one.steps:
            if step.kind is Kind.CUT_ONE_WAY:
                sender, receiver = step.nodes
                assert sender != receiver
                assert {sender, receiver} & set(SHAPE.brokers)


def test_the_table_has_a_row_for_each_kind_and_a_counter_where_one_is_needed() -> None:
    assert list(FAULTS) == list(Kind)
    assert all((row.notice is Notice.COUNTED) == bool(row.counted) for row in FAULTS.values())


def test_an_unsafe_run_begins_with_faults_that_lose_records() -> None:
    drawn = [step.kind for one in plan(3, LONG, ROUNDS, SHAPE, unsafe=True) for step in one.steps]
    first = set(drawn[: 2 * len(UNSAFE_FIRST)])
    assert set(UNSAFE_FIRST) <= first


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Kind.KILL, Kind.RESTART, True),
        (Kind.KILL, Kind.KILL, False),
        (Kind.WIPE, Kind.KILL, False),
        (Kind.WIPE, Kind.POWER_LOSS, False),
        (Kind.WIPE, Kind.REASSIGN, False),
        (Kind.WIPE, Kind.HANG, False),
        (Kind.WIPE, Kind.CONTROLLER, True),
        (Kind.POWER_LOSS, Kind.TIER_AWAY, True),
        (Kind.ROLLING, Kind.CONTROLLER, False),
        (Kind.ISOLATE, Kind.CUT_ONE_WAY, False),
        (Kind.TIER_AWAY, Kind.SLOW_OBJECTS, False),
    ],
)
def test_only_compatible_faults_may_come_in_one_round(one: Kind, other: Kind, expected: bool) -> None:
    assert go_together(one, other) is expected
    assert go_together(other, one) is expected


def test_some_faults_of_each_kind_last_until_a_lack_of_progress_is_an_anomaly() -> None:
    lasting = {
        step.kind
        for one in long_plans()
        for step in one.steps
        if step.seconds > max(within(other, SHAPE) for other in one.steps) + PATIENCE
    }
    assert lasting >= set(ROUNDS) - kinds_with(Trait.BOUNDED)


def test_a_node_hangs_for_less_than_its_session_timeout() -> None:
    steps = [step for one in long_plans() for step in one.steps if step.kind is Kind.HANG]
    assert all(step.seconds < SHAPE.session for step in steps)


WATCHED = Shape([1, 2, 3, 4], 1000, session=3.0, lag=5.0, watched=True)


def streams(seed: int, count: int = 40, kinds: Collection[Kind] = tuple(Kind)) -> dict[str, list[Step]]:
    found = overlapping(seed, count, kinds, WATCHED)
    return {one.name: [step for part in one.rounds for step in part.steps] for one in found}


def test_the_seed_determines_an_overlapping_plan() -> None:
    assert streams(7) == streams(7)
    assert streams(7) != streams(8)


def test_an_overlapping_plan_has_as_many_faults_of_links_and_of_the_tier_as_of_nodes() -> None:
    assert {name: len(steps) for name, steps in streams(1, 40).items()} == {"nodes": 40, "links": 40, "tier": 40}


def test_a_stream_without_kinds_of_faults_is_empty() -> None:
    assert {name: len(steps) for name, steps in streams(1, 40, [Kind.SLOW_LINK]).items()} == {
        "nodes": 0,
        "links": 40,
        "tier": 0,
    }


def test_every_kind_with_a_weight_comes_in_its_stream_of_overlapping_plans() -> None:
    drawn = {name: {step.kind for seed in range(9) for step in streams(seed)[name]} for name in streams(0)}
    assert set().union(*drawn.values()) == {kind for kind in Kind if overlaps(kind)}
    assert drawn["links"] == kinds_with(Trait.OF_LINKS)
    assert drawn["tier"] < kinds_with(Trait.OF_TIER)


def test_kinds_that_need_insight_come_in_overlapping_plans_only() -> None:
    assert all(in_rounds(kind) or overlaps(kind) for kind in Kind)
    assert not in_rounds(Kind.BLACKOUT)


def test_only_a_place_with_insight_cuts_links_to_clients_and_unmounts_the_tier_of_one_broker() -> None:
    of_clients = {step.kind for seed in range(9) for step in streams(seed)["links"] if CLIENTS in step.nodes}
    assert of_clients == {Kind.ISOLATE, Kind.CUT_ONE_WAY, Kind.CUT_LINK, Kind.SLOW_LINK}
    unmounted = {len(step.nodes) for seed in range(9) for step in streams(seed)["tier"]}
    assert unmounted == {0, 1}
    assert not any(CLIENTS in step.nodes for one in long_plans() for step in one.steps)
    assert not any(step.nodes for one in long_plans() for step in one.steps if step.kind is Kind.TIER_UNMOUNTED)
