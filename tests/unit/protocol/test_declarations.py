"""The declarations of messages: up to date, and about what decoded messages really have."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.schemas.declarations import FOLDER, modules
from milena.protocol.schemas.registry import REGISTRY

SERVED = [
    (api.key, version) for api in REGISTRY.values() if api.ours for version in range(api.ours.min, api.ours.max + 1)
]
made = cache(modules)


def test_the_folder_is_what_the_generator_makes() -> None:
    kept = {path.stem: path.read_text() for path in FOLDER.glob("*.py") if path.name != "__init__.py"}
    assert kept == made(), "run python -m milena.protocol.schemas.declarations"


def test_every_served_api_is_declared() -> None:
    assert made().keys() == {api.key.name.lower() for api in REGISTRY.values() if api.ours is not None}


@pytest.mark.parametrize(("key", "version"), SERVED)
def test_a_decoded_message_has_only_fields_that_are_declared(key: ApiKey, version: int) -> None:
    declared = _attributes(FOLDER / f"{key.name.lower()}.py")
    name = key.name.title().replace("_", "")
    for kind, build in (("Request", messages.build_request), ("Response", messages.build_response)):
        built = build(key, version)
        assert {field.name for field in dataclasses.fields(built)} <= declared[f"{name}{kind}"]


def test_a_request_has_the_fields_of_all_served_versions_alone() -> None:
    fetch = _attributes(FOLDER / "fetch.py")["FetchRequest"]
    assert {"replica_id", "replica_state"} <= fetch  # up to version 14, and since 15
    # Version 6 of Kafka 4.3 is unstable, and not served.
    assert "enable2_pc" not in _attributes(FOLDER / "init_producer_id.py")["InitProducerIdRequest"]


def test_a_field_that_a_version_may_lack_is_read_by_a_name_that_some_version_has() -> None:
    """``messages.get`` takes the name as a text, which mypy cannot check."""
    wrong = []
    for path in FOLDER.parents[1].rglob("*.py"):
        text = path.read_text()
        if "requests.messages import get" not in text and "import messages" not in text:
            continue
        apis = re.findall(r"from milena\.protocol\.apis(?:\.| import )(\w+)", text) or sorted(made())
        known = {name for api in apis for names in _attributes(FOLDER / f"{api}.py").values() for name in names}
        wrong += [f"{path.name}: {name}" for name in _read_by_get(text) if not _spellings(name) & known]
    assert not wrong


def _read_by_get(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Name(id="get") | ast.Attribute(value=ast.Name(id="messages"), attr="get"),
                args=[_, ast.Constant(value=str(name)), _],
            ):
                yield name


def _spellings(name: str) -> set[str]:
    return {name, name.removesuffix("_ms"), f"{name}_"}


def test_nobody_loads_the_declarations_at_run_time() -> None:
    for key in ApiKey:
        for role in ("broker", "controller"):
            path = FOLDER.parents[1] / role / "apis" / f"{key.name.lower()}.py"
            if path.exists():
                importlib.import_module(f"milena.{role}.apis.{path.stem}")
    assert not [name for name in sys.modules if name.startswith("milena.protocol.apis.")]


def _attributes(path: Path) -> dict[str, set[str]]:
    """The properties of each protocol in a module."""
    return {
        node.name: {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }
