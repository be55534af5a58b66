"""A scenario whose expectation is not met fails, and its message names the step, and what was expected and found."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from milena.lab.scenarios.script import script_of, source
from milena.lab.scenarios.simulated import play_simulated
from milena.lab.scenarios.stage import ScenarioFailed

LAST = "A comes back, truncates below its own high watermark in two rounds, and has what B has"


def played_with(title: str, **changes: Any) -> str:
    """The message with which kip279_unclean fails if one of its steps has these other expectations."""
    data = deepcopy(dict(source("kip279_unclean")))
    step = next(step for step in data["steps"] if step["title"] == title)
    step |= changes
    with pytest.raises(ScenarioFailed) as failed:
        play_simulated(script_of(data))
    return str(failed.value)


def test_a_replica_has_no_records_after_its_disk_was_wiped() -> None:
    data = deepcopy(dict(source("kip903_reboot_race")))
    step = next(step for step in data["steps"] if {"wipe": "B"} in step["do"])
    step["expect"] = {"B": {"stopped": True, "log": {0: [0, 0], 1: [1, 0], 2: [2, 0]}}}
    with pytest.raises(ScenarioFailed, match=r"B: log: expected .*, found \{\}"):
        play_simulated(script_of(data))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"log": {0: ["A:0", 1], 1: ["B:1", 3]}}, "A: log: expected"),
        ({"log": {0: ["B:0", 1]}}, "A: log: expected"),
        ({"epochs": {0: 0, 3: 1}}, "A: epochs: expected {0: 0, 3: 1}, found {1: 0, 3: 1}"),
        ({"committed": 0}, "A: committed: expected 0, found 1"),
        ({"in_isr": False}, "A: in_isr: expected False, found True"),
        ({"stopped": True}, "A: it is running"),
    ],
)
def test_a_wrong_expectation_of_a_replica_fails_the_scenario(table: dict[str, Any], said: str) -> None:
    failed = played_with(LAST, expect={"A": table})
    assert failed.startswith(f"kip279_unclean (plain), step 5: {LAST}\n")
    assert said in failed
    assert "0: B:0 LE-1" in failed, "the replicas are drawn"


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ({"differ": {"between": ["A", "B"], "at": [0, 0]}}, "the logs differ at [], expected 0 to 0"),
        ({"lost": []}, "acknowledged and lost are ['A:0', 'A:1'], expected []"),
        ({"partition": {"isr": [2]}}, "partition.isr: expected [2], found [2, 1]"),
        ({"describe": {"B": {"role": "follower"}}}, "B.role: expected 'follower', found 'leader'"),
    ],
)
def test_a_wrong_expectation_of_the_partition_fails_the_scenario(expect: dict[str, Any], said: str) -> None:
    assert said in played_with(LAST, expect=expect)


def test_a_later_step_cannot_meet_the_expectation_of_an_earlier_one() -> None:
    failed = played_with("epoch 3: B takes B:1", expect={"B": {"log": {0: ["B:0", 1]}}})
    assert "step 4: epoch 3: B takes B:1" in failed


def test_one_expected_round_too_few_fails_the_scenario() -> None:
    rounds = [{"request": {"leader_epoch": 2}, "response": {"leader_epoch": 1, "end_offset": 1}}]
    assert "1 exchanges expected, 2 found" in played_with(LAST, exchanges={"rounds": rounds})


def test_a_control_experiment_without_its_test_peer_fails() -> None:
    data = deepcopy(dict(source("kip279_unclean")))
    data["variants"]["kip101"] = {}
    with pytest.raises(ScenarioFailed, match="as KIP-101 did, and keeps A:0"):
        play_simulated(script_of(data, "kip101"))


LAST_OF_TIER = "consumers read messages 0 and 4 from uuid-2, and never what only uuid-1 has"
SEGMENTS = {
    "seg-0-2": {"id": "uuid-1", "epochs": {0: 0}, "log": {0: [0, 0], 1: [1, 0], 2: [2, 0]}},
    "seg-0-1": {"id": "uuid-2", "epochs": {0: 0, 1: 1}, "log": {0: [0, 0], 1: [4, 1]}},
}


def played_on_tier(**changes: Any) -> str:
    """The message with which kip405_4 fails if it ends with this step, with other expectations."""
    data = deepcopy(dict(source("kip405_4")))
    at = [step["title"] for step in data["steps"]].index(LAST_OF_TIER)
    data["steps"][at:] = [{"title": LAST_OF_TIER, **changes}]
    with pytest.raises(ScenarioFailed) as failed:
        play_simulated(script_of(data))
    return str(failed.value)


@pytest.mark.parametrize(
    ("segment", "fields"),
    [
        ("seg-0-2", {"id": "uuid-2"}),
        ("seg-0-2", {"id": "uuid-3"}),
        ("seg-0-2", {"epochs": {0: 0, 1: 1}}),
        ("seg-0-1", {"log": {0: [0, 0], 1: [4, 0]}}),
        ("seg-0-1", {"log": {0: [0, 0], 1: [1, 1]}}),
    ],
)
def test_a_wrong_remote_segment_fails_the_scenario(segment: str, fields: dict[str, Any]) -> None:
    expected = SEGMENTS | {segment: SEGMENTS[segment] | fields}
    failed = played_on_tier(expect={"remote": expected})
    assert f"remote: no {segment} with" in failed
    assert "is not expected: seg-0-" in failed


def test_an_unexpected_remote_segment_fails_the_scenario() -> None:
    assert "remote: uuid-2 is not expected" in played_on_tier(expect={"remote": {"seg-0-2": SEGMENTS["seg-0-2"]}})


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"uuid-1": {0: 0}}, "metadata: uuid-2 is not expected"),
        ({"uuid-1": {0: 0}, "uuid-2": {0: 0, 1: 1}, "uuid-3": {0: 0}}, "metadata: nothing of uuid-3"),
        ({"uuid-1": {0: 0}, "uuid-2": {0: 0, 1: 2}}, "metadata: expected uuid-2 with {0: 0, 1: 2}, found {0: 0, 1: 1}"),
    ],
)
def test_wrong_metadata_of_remote_segments_fails_the_scenario(metadata: dict[str, Any], said: str) -> None:
    assert said in played_on_tier(expect={"metadata": metadata})


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ({0: [0, 0], 1: [1, 0], 2: [5, 1]}, "B returns from offset 0 on"),
        ({0: [0, 0], 1: [4, 1]}, "B has committed 2, expected 1"),
        ({0: [0, 0], 1: [4, 1], 2: [5, 1], 3: [6, 1]}, "reading offset 3 of t-0 at B: after 30 s"),
    ],
)
def test_wrong_records_fail_the_scenario(records: dict[int, list[int]], said: str) -> None:
    assert said in played_on_tier(do=[{"read": {"at": "B", "from": 0, "records": records}}])


def quiet_step(**changes: Any) -> dict[str, Any]:
    """kip903_epoch_source with a leader that proposes B soon after the delayed fetch, up to a step that expects that
    nothing comes. The step's expectations hold at first."""
    data = deepcopy(dict(source("kip903_epoch_source")))
    data["variants"] = {"plain": {"peers": {"A": "metadata_epochs"}}}
    step = {"title": "A proposes nothing", "do": [{"release": "the last fetch"}], **changes}
    return {**data, "steps": [*data["steps"][:2], step]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"exchanges": {"proposals": []}}, "0 exchanges expected, 1 found"),
        ({"expect": {"partition": {"isr": [1]}}}, "partition.isr: expected [1], found [1, 2]"),
        ({"expect": {"B": {"in_isr": False}}}, "B: in_isr: expected False, found True"),
    ],
)
def test_what_comes_a_little_later_fails_a_step_that_expects_nothing(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioFailed) as failed:
        play_simulated(script_of(quiet_step(**changes)))
    assert said in str(failed.value)


def test_a_step_that_expects_nothing_fails_if_nothing_later_can_be_waited_for() -> None:
    data = quiet_step(exchanges={"proposals": []})
    held = {"hold": {"at": "controller", "api": "BROKER_HEARTBEAT"}}
    data["steps"][-1]["do"] = [held]
    with pytest.raises(ScenarioFailed, match="nothing that comes later can be waited for"):
        play_simulated(script_of(data))


@pytest.mark.parametrize(
    ("served_by", "said"),
    [
        ({0: "uuid-1", 1: "uuid-2", 2: "local"}, "B serves offset 0 from uuid-2, not from uuid-1"),
        ({0: "uuid-2"}, "B serves offset 2 from local, not from uuid-2"),
    ],
)
def test_a_read_from_another_segment_fails_the_scenario(served_by: dict[int, str], said: str) -> None:
    records = {0: [0, 0], 1: [4, 1], 2: [5, 1]}
    assert said in played_on_tier(do=[{"read": {"at": "B", "from": 0, "records": records, "served_by": served_by}}])


def fenced(**changes: Any) -> str:
    """The message with which kip98_zombie fails if its third step has these actions or expectations."""
    data = deepcopy(dict(source("kip98_zombie")))
    data["steps"] = [*data["steps"][:2], {"title": "P is fenced", "in": ["plain"], **changes}]
    with pytest.raises(ScenarioFailed) as failed:
        play_simulated(script_of(data, "plain"))
    return str(failed.value)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"commit": "P"}, "P: PRODUCER_FENCED, not NONE"),
        ({"commit": {"producer": "Q", "error": "PRODUCER_FENCED"}}, "Q: INVALID_TXN_STATE, not PRODUCER_FENCED"),
        ({"commit": "R"}, "there is no producer R"),
        ({"read_committed": {"at": "A", "values": [0], "stable": 2}}, "A returns [] up to 2, expected ['msg 0']"),
        ({"read_committed": {"at": "A", "values": [], "stable": 1}}, "A returns [] up to 2, expected []"),
        ({"hanging": {"in": ["t-0"], "are": ["t-0"]}}, "hanging transactions in ['t-0']: after 30 s found in []"),
    ],
)
def test_a_wrong_answer_to_a_producer_fails_the_scenario(action: dict[str, Any], said: str) -> None:
    assert said in fenced(do=[action])


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ({"transactions": {"app": {"state": "Ongoing"}}}, "transactions.app.state: expected 'Ongoing', found 'Empty'"),
        ({"transactions": {"other": {}}}, "other: TRANSACTIONAL_ID_NOT_FOUND"),
        ({"A": {"log": {0: [0, 0], 1: ["COMMIT", 0]}}}, "A: log: expected"),
    ],
)
def test_a_wrong_expectation_of_a_transaction_fails_the_scenario(expect: dict[str, Any], said: str) -> None:
    assert said in fenced(expect=expect)


def test_a_late_answer_other_than_the_expected_one_fails_the_scenario() -> None:
    do = [
        {"hold": {"at": "B", "api": "END_TXN", "from": "P", "as": "the EndTxn"}},
        {"commit": {"producer": "P", "unanswered": "the late EndTxn"}},
        {"wait": {"hits": {"the EndTxn": 1}}},
        {"release": "the EndTxn"},
        {"answered": {"the late EndTxn": "NONE"}},
    ]
    assert "the late EndTxn: PRODUCER_FENCED, not NONE" in fenced(do=do)


@pytest.mark.parametrize("scenario", ["kafka_17754", "kip890_epoch_bump"])
def test_a_control_of_an_older_client_fails_with_transaction_version_2(scenario: str) -> None:
    data = deepcopy(dict(source(scenario)))
    data["variants"]["version_1"] = {"set": {"client": 2}}
    with pytest.raises(ScenarioFailed):
        play_simulated(script_of(data, "version_1"))
