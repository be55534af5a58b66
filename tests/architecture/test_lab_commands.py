"""The catalog of lab commands describes what nodes serve, with the parameters of the functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from milena.broker.lab_commands import BrokerLabCommands
from milena.config.node_config import NodeConfig
from milena.controller.lab_commands import ControllerLabCommands
from milena.node.links.links import link_commands
from milena.node.metadata.image import MetadataImage
from milena.node.rules.rules import RuleAction, Rules
from milena.node.serving.lab_catalog import CATALOG, GROUPS, RULES, WORK
from milena.node.serving.lab_commands import LabCommand, LabCommands
from milena.runtime.process import real_runtime
from milena.steering.command import OF_PROCESSES
from milena.steering.document import renewed
from milena.steering.lab import Lab
from milena.steering.tier_troubles import ODD_ANSWERS
from milena.testing.lab_node import Acting, LabNode, Matching, Rule
from milena.up.layout import ClusterDir
from tests.architecture.source import ROOT

KINDS = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
TABLES: dict[str, Callable[[Any], dict[str, LabCommand]]] = {
    "broker": lambda node: BrokerLabCommands(node).table(),
    "controller": lambda node: ControllerLabCommands(node).table(),
}


async def served(kind: str, folder: Path) -> dict[str, LabCommand]:
    """The functions of a node of this kind in lab mode, by the names of the commands."""
    config = NodeConfig.of(log_dirs=str(folder / "data"))
    lab = Lab(ClusterDir(str(folder)), config, real_runtime(), AsyncMock(), AsyncMock())
    own = TABLES[kind](SimpleNamespace()) | link_commands(lab.runtime.network)
    commands = LabCommands(Rules(lab.runtime.clock), own, [])
    await lab.open(kind, cast("Any", SimpleNamespace(ready=True, lab_commands=commands)), MetadataImage)
    await lab.close()
    return dict(commands.functions)


@pytest.mark.parametrize("kind", TABLES)
async def test_the_catalog_has_the_commands_of_a_node(kind: str, tmp_path: Path) -> None:
    served_by_node = {
        one.name for one in CATALOG.values() if kind in one.nodes and (not one.of_process or one.name == "power_off")
    }
    assert served_by_node == set(await served(kind, tmp_path))


@pytest.mark.parametrize("kind", TABLES)
async def test_arguments_are_described_as_the_functions_take_them(kind: str, tmp_path: Path) -> None:
    for name, function in (await served(kind, tmp_path)).items():
        parameters = dict(inspect.signature(function).parameters)
        parameters.pop("action", None)
        described = {argument.name: argument for argument in CATALOG[name].arguments}
        assert described.keys() <= {parameter.rstrip("_") for parameter in parameters}, name
        for parameter in parameters.values():
            argument = described.get(parameter.name.rstrip("_"))
            if argument is None:
                assert name in {action.value for action in RuleAction}, (name, parameter.name)
                continue
            if parameter.default is inspect.Parameter.empty:
                assert argument.required, (name, argument.name)
            elif not argument.required:
                assert argument.default == parameter.default, (name, argument.name)
            kinds = [KINDS.get(one, "array") for one in str(parameter.annotation).split(" | ") if one != "None"]
            assert argument.kinds == kinds, (name, argument.name)


def test_the_processes_of_nodes_have_the_described_commands() -> None:
    assert set(OF_PROCESSES) == {one.name for one in CATALOG.values() if one.of_process}


def test_the_wrong_answers_of_a_tier_are_those_that_it_can_give() -> None:
    (odd,) = (one for one in CATALOG["break_tier"].arguments if one.name == "odd")
    assert set(odd.choices) == {"", *ODD_ANSWERS}


@pytest.mark.parametrize("name", CATALOG)
def test_a_description_is_one_sentence_without_a_line_that_is_too_long(name: str) -> None:
    one = CATALOG[name]
    assert one.group in GROUPS
    assert one.summary[0].isupper()
    assert one.summary.endswith(".")
    assert len(one.summary) <= 120
    assert one.returns
    assert not one.undo.endswith(".")
    assert "``" not in repr(one.as_json())


OF_RULES = {"wait", "release", "traced"}
"""Methods of a rule."""


@pytest.mark.parametrize("name", [one.name for one in CATALOG.values() if not one.of_process])
def test_the_python_class_of_a_node_has_the_commands_with_their_arguments(name: str) -> None:
    if not hasattr(LabNode, name) and name not in OF_RULES:
        assert CATALOG[name].group not in (RULES, WORK), "tests call other commands by name"
        return
    described = {argument.name: argument for argument in CATALOG[name].arguments}
    parameters = dict(inspect.signature(getattr(Rule if name in OF_RULES else LabNode, name)).parameters)
    parameters.pop("self")
    if parameters.pop("rule", None) is not None:
        matching = Acting if "side" in described else Matching
        found = {*parameters, *matching.__required_keys__, *matching.__optional_keys__}
    else:
        found = {parameter.rstrip("_") for parameter in parameters} | ({"rule"} if name in OF_RULES else set())
    assert found == set(described)
    for parameter in parameters.values():
        if parameter.default is not inspect.Parameter.empty:
            assert parameter.default == described[parameter.name.rstrip("_")].default, parameter.name


def test_every_rule_can_be_released() -> None:
    rules = [CATALOG[action.value] for action in RuleAction]
    assert {one.group for one in rules} == {RULES}
    assert {one.undo for one in rules} == {"`release` with its number, or `clear`"}


def test_the_document_has_all_commands() -> None:
    document = (ROOT / "docs" / "lab-commands.md").read_text()
    assert document == renewed(document), "run: python -m milena.steering.document < docs/lab-commands.md"
