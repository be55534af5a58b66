"""Scenario files: what a variant contains, and which files are refused."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from milena.lab.scenarios.heads import all_scenarios
from milena.lab.scenarios.script import (
    ScriptError,
    is_comparison,
    load,
    node_id,
    script_of,
    source,
    variants_of,
)

DATA: dict[str, Any] = {
    "id": "some",
    "title": "Some scenario",
    "replicas": ["A", "B"],
    "epochs": [0, 2],
    "config": {"min.insync.replicas": 1},
    "variants": {
        "plain": None,
        "strict": {"config": {"min.insync.replicas": 2}, "set": {"n": 15}, "peers": {"B": "old"}},
    },
    "steps": [
        {"title": "all do this", "do": [{"start": ["A", "B"]}, {"kill": "B"}]},
        {"title": "one does this", "in": ["strict"], "expect": {"A": {"committed": 3}}},
    ],
}


def changed(**fields: Any) -> dict[str, Any]:
    return deepcopy(DATA) | fields


def test_a_variant_has_its_own_steps_and_the_common_ones() -> None:
    assert [step.title for step in script_of(DATA).steps] == ["all do this"]
    assert [step.title for step in script_of(DATA, "strict").steps] == ["all do this", "one does this"]


def test_actions_are_read_in_order() -> None:
    assert list(script_of(DATA).steps[0].actions) == [("start", ["A", "B"]), ("kill", "B")]


def test_a_variants_configuration_overrides_the_common_one_and_is_text() -> None:
    assert script_of(DATA).config == {"min.insync.replicas": "1"}
    assert script_of(DATA, "strict").config == {"min.insync.replicas": "2"}


def test_a_variant_has_its_peers_and_values() -> None:
    script = script_of(DATA, "strict")
    assert (script.peers, script.values) == ({"B": "old"}, {"n": 15})


def test_a_boolean_of_yaml_becomes_a_boolean_of_kafka() -> None:
    script = script_of(changed(nodes={"broker.connection.loss.fencing.enable": False}))
    assert script.nodes == {"broker.connection.loss.fencing.enable": "false"}


def test_a_scenario_without_variants_has_the_variant_plain() -> None:
    data = changed(steps=DATA["steps"][:1])
    del data["variants"]
    assert script_of(data).variant == "plain"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"replica": ["A"]}, "some has no replica"),
        ({"variants": {"plain": {"sets": {}}}}, "variant plain has no sets"),
        ({"steps": [{"title": "t", "expects": {}}]}, "step 1 has no expects"),
        ({"steps": [{"title": "t", "in": ["lax"]}]}, "no variant lax"),
    ],
)
def test_unknown_fields_and_variants_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ScriptError, match=said):
        script_of(changed(**fields))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ScriptError, match="it has plain, strict"):
        script_of(DATA, "lax")


def test_an_unknown_scenario_is_refused() -> None:
    with pytest.raises(ScriptError, match="there are cleaner_compacted, cleaner_fencing, cleaner_table, "):
        load("kafka_1")


def test_the_letters_of_brokers_are_converted_to_node_ids() -> None:
    assert [node_id(letter) for letter in "ABE"] == [1, 2, 5]
    for name in ("F", "AB", "controller", ""):
        with pytest.raises(ScriptError):
            node_id(name)


def test_all_files_are_read_in_all_variants() -> None:
    for scenario in (one for one in all_scenarios() if not is_comparison(source(one))):
        for variant in variants_of(source(scenario)):
            script = load(scenario, variant)
            assert script.id == scenario
            assert script.steps
