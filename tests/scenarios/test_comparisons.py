"""The proposal of KIP-279 and its rejected alternatives on the same logs: the numbers of the KIP, and those that the
KIP does not state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from milena.lab.scenarios.comparing.algorithms import ALGORITHMS
from milena.lab.scenarios.comparing.cases import Comparison, comparison_of
from milena.lab.scenarios.comparing.runs import Outcome, Result, compare
from milena.lab.scenarios.script import ScriptError, parse, script_of, source

UNKNOWN = "UNKNOWN_OFFSET_FOR_LEADER_EPOCH"
CONVERGING = ("proposal", "alternative 1", "alternative 2")


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return compare(comparison_of(source("kip279_alternatives")))


def result(outcome: Outcome, case: str, algorithm: str) -> Result:
    return next(one for one in outcome.cases if one.case.name == case).results[algorithm]


@pytest.mark.parametrize(
    ("case", "algorithm", "round_trips", "request_bits", "response_bits"),
    [
        ("clean", "proposal", 1, [0], [32]),
        ("clean", "alternative 1", 2, [0, 0], [0, 0]),
        ("clean", "alternative 2", 1, [160], [0]),
        ("clean, high watermark 11", "alternative 2", 2, [64, 160], [0, 0]),
        ("unclean", "proposal", 2, [0, 0], [32, 32]),
        ("unclean", "alternative 1", 2, [0, 0], [0, 0]),
        ("unclean", "alternative 2", 2, [64, 160], [0, 0]),
    ],
)
def test_round_trips_and_bits_are_those_of_the_kip(
    case: str, algorithm: str, round_trips: int, request_bits: list[int], response_bits: list[int], outcome: Outcome
) -> None:
    found = result(outcome, case, algorithm)
    assert (found.round_trips, found.request_bits, found.response_bits) == (round_trips, request_bits, response_bits)


@pytest.mark.parametrize(
    ("case", "algorithm", "exchanges"),
    [
        ("clean", "alternative 1", [f"B -> A  epoch 2 -> {UNKNOWN}", "B -> A  epoch 1 -> end offset 21"]),
        ("clean", "alternative 2", ["B -> A  (1, 11), (2, 16) -> end offset 11"]),
        ("unclean", "alternative 1", [f"A -> B  epoch 2 -> {UNKNOWN}", f"A -> B  epoch 0 -> {UNKNOWN}"]),
        ("unclean", "alternative 2", [f"A -> B  (2, 2) -> {UNKNOWN}", f"A -> B  (0, 1), (2, 2) -> {UNKNOWN}"]),
    ],
)
def test_the_exchanges_of_each_alternative_are_as_expected(
    case: str, algorithm: str, exchanges: list[str], outcome: Outcome
) -> None:
    assert result(outcome, case, algorithm).exchanges == exchanges


@pytest.mark.parametrize(("case", "scenario", "step"), [("clean", "kip279_clean", 4), ("unclean", "kip279_unclean", 4)])
def test_the_proposal_has_the_requests_and_responses_of_a_running_cluster(
    case: str, scenario: str, step: int, outcome: Outcome
) -> None:
    rounds = source(scenario)["steps"][step]["exchanges"]["rounds"]
    drawn = [
        f"epoch {one['request']['leader_epoch']} -> epoch {one['response']['leader_epoch']}, "
        f"end offset {one['response']['end_offset']}"
        for one in rounds
    ]
    assert [one.partition("  ")[2] for one in result(outcome, case, "proposal").exchanges] == drawn


def test_all_algorithms_but_kip_101_end_with_the_log_of_the_leader(outcome: Outcome) -> None:
    for one in outcome.cases:
        assert all(one.results[name].differ == [] for name in CONVERGING)
        assert one.results["KIP-101"].differ


def test_alternative_2_needs_two_rounds_however_many_leaderships_there_were(outcome: Outcome) -> None:
    series = {name: [counts[name] for counts in outcome.longer.values()] for name in ALGORITHMS}
    assert list(outcome.longer) == [4, 5, 6, 7, 8]
    assert series["proposal"] == series["alternative 1"] == [2, 2, 3, 3, 4]
    assert series["alternative 2"] == [2, 2, 2, 2, 2]


def test_every_result_is_as_the_scenario_file_expects(outcome: Outcome) -> None:
    comparison = comparison_of(source("kip279_alternatives"))
    assert outcome.wrong(comparison) == []
    assert all(set(case.expect) >= set(CONVERGING) for case in comparison.cases)
    assert all(set(counts) == set(ALGORITHMS) for counts in comparison.longer.values())


def changed(case: int = 0, log: str = "follower", **fields: Any) -> dict[str, Any]:
    data = deepcopy(dict(source("kip279_alternatives")))
    data["cases"][case][log] |= fields
    return data


@pytest.mark.parametrize(
    ("follower", "truncated_to"),
    [
        ({"epochs": {1: 0}, "log_end_offset": 30, "high_watermark": 10}, 21),
        ({"epochs": {1: 0}, "log_end_offset": 7, "high_watermark": 7}, 7),
        ({"epochs": {0: 0, 1: 5, 2: 11}, "log_end_offset": 16, "high_watermark": 3}, 11),
        ({"epochs": {0: 0, 2: 11}, "log_end_offset": 16, "high_watermark": 3}, 0),
        ({"epochs": {1: 0, 2: 11, 3: 13}, "log_end_offset": 16, "high_watermark": 16}, 16),
    ],
)
def test_a_follower_truncates_to_the_last_offset_that_it_shares_with_the_leader(
    follower: dict[str, Any], truncated_to: int
) -> None:
    """In the last case no algorithm truncates: both logs are in the same epoch, and the follower's is not longer."""
    leader = {"epochs": {1: 0, 3: 21}, "log_end_offset": 21}
    if follower["epochs"].get(3) is not None:
        leader = {"epochs": {1: 0, 2: 11, 3: 13}, "log_end_offset": 21}
    data = changed(**follower)
    data["cases"] = [data["cases"][0] | {"leader": {"replica": "A"} | leader, "expect": {}}]
    (one,) = compare(comparison_of(data)).cases
    assert {one.results[name].truncated_to for name in CONVERGING} == {truncated_to}


def outcome_of(data: dict[str, Any]) -> list[str]:
    comparison: Comparison = comparison_of(data)
    return compare(comparison).wrong(comparison)


def test_the_report_names_each_wrong_expectation() -> None:
    data = changed()
    data["cases"][2]["expect"]["proposal"] |= {"exchanges": ["A -> B  epoch 2 -> end offset 1"]}
    data["cases"][0]["expect"]["alternative 2"]["request_bits"] = [64]
    data["longer"]["expect"][6]["proposal"] = 2
    bits, exchanges, longer = outcome_of(data)
    assert bits.startswith("clean: alternative 2.request_bits: expected 64, found 160")
    assert exchanges.startswith("unclean: proposal.exchanges: expected ['A -> B  epoch 2 -> end offset 1'], found")
    assert longer == "6 leaderships, proposal: expected 2 round trips, found 3"


def test_a_log_that_ends_at_another_offset_is_truncated_at_another_offset() -> None:
    assert any("truncated_to: expected 11, found 9" in one for one in outcome_of(changed(epochs={1: 0, 2: 9})))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"epochs": {2: 0, 1: 11}}, "epochs and their start offsets rise from 0 to the log end"),
        ({"epochs": {1: 0, 2: 17}}, "epochs and their start offsets rise from 0 to the log end"),
        ({"epoch": {1: 0}}, r"case 1, follower has no epoch \(did you mean epochs\?\)"),
    ],
)
def test_impossible_logs_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        comparison_of(changed(**fields))


def test_the_error_for_an_unknown_algorithm_or_result_names_the_nearest_known_one() -> None:
    data = changed()
    data["cases"][0]["expect"] = {"propsal": {}}
    with pytest.raises(ScriptError, match=r"no algorithm propsal \(did you mean proposal\?\)"):
        comparison_of(data)
    data["cases"][0]["expect"] = {"proposal": {"request_bytes": [0]}}
    with pytest.raises(ScriptError, match=r"has no request_bytes \(did you mean request_bits\?\)"):
        comparison_of(data)


def test_a_comparison_is_not_played_step_by_step() -> None:
    with pytest.raises(ScriptError, match="kip279_alternatives compares algorithms and has no steps"):
        script_of(source("kip279_alternatives"))
    with pytest.raises(ScriptError, match="a scenario needs title"):
        parse("id: some\ncases: []\n", "some.yaml")
