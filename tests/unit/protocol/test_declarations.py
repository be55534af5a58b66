"""The declarations of messages: up to date, and about what decoded messages really have."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.schemas.declarations import STUB, stub
from milena.protocol.schemas.registry import REGISTRY

MILENA = STUB.parents[1]
SERVED = [
    (api.key, version) for api in REGISTRY.values() if api.ours for version in range(api.ours.min, api.ours.max + 1)
]


def test_the_stub_is_what_the_generator_makes() -> None:
    assert STUB.read_text() == stub(), "run make format"


def test_each_class_has_a_name_of_its_own() -> None:
    names = [node.name for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_decoded_message_has_only_fields_that_are_declared(key: ApiKey, version: int) -> None:
    declared = _attributes()
    name = key.name.title().replace("_", "")
    for kind, build in (("Request", messages.build_request), ("Response", messages.build_response)):
        built = build(key, version)
        assert {field.name for field in dataclasses.fields(built)} <= declared[f"{name}{kind}"]


def test_a_request_has_the_fields_of_all_served_versions_alone() -> None:
    fetch = _attributes()["FetchRequest"]
    assert {"replica_id", "replica_state"} <= fetch  # up to version 14, and since 15
    assert "enable2_pc" in _attributes()["InitProducerIdRequest"]  # of the unstable version 6


def test_a_field_that_a_version_may_lack_is_read_by_a_name_that_some_version_has() -> None:
    """``messages.get`` takes the name as a text, which mypy cannot check."""
    apis, wrong = _apis(), []
    for path in MILENA.rglob("*.py"):
        text = path.read_text()
        if "requests.messages import get" not in text and "import messages" not in text:
            continue
        imported = set(
            re.findall(r"\w+", " ".join(re.findall(r"from milena\.protocol\.apis import ([^(\n]+|\([^)]+)", text)))
        )
        chosen = [classes for classes in apis if imported & classes] or apis
        known = {name for classes in chosen for one in classes for name in _attributes().get(one, ())}
        known |= _private_fields() if "add_private_version" in text else set()
        wrong += [f"{path.name}: {name}" for name in _read_by_get(text) if not _spellings(name) & known]
    assert not wrong


def _private_fields() -> set[str]:
    """The fields of the private versions that test peers of scenarios use."""
    return {
        node.target.id
        for path in (MILENA / "lab/scenarios/peers").glob("*_messages_v*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _read_by_get(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Name(id="get") | ast.Attribute(value=ast.Name(id="messages"), attr="get"),
                args=[_, ast.Constant(value=str(name)), _],
            ):
                yield name


def _apis() -> list[set[str]]:
    """Return the classes of each API."""
    parts = re.split(r"^# ", STUB.read_text(), flags=re.MULTILINE)[1:]
    return [set(re.findall(r"^class (\w+)", part, re.MULTILINE)) for part in parts]


def _spellings(name: str) -> set[str]:
    return {name, name.removesuffix("_ms"), f"{name}_"}


def test_no_module_loads_the_declarations_at_run_time() -> None:
    for key in ApiKey:
        for role in ("broker", "controller"):
            path = MILENA / role / "apis" / f"{key.name.lower()}.py"
            if path.exists():
                importlib.import_module(f"milena.{role}.apis.{path.stem}")
    assert not [name for name in sys.modules if name.startswith("milena.protocol.apis")]


@cache
def _attributes() -> dict[str, set[str]]:
    """Return the properties of each protocol in the stub."""
    return {
        node.name: {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
