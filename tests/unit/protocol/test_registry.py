"""The registry beside Kafka's schemas, and the document that is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.compatibility import renewed
from milena.protocol.schemas.registry import (
    REGISTRY,
    Api,
    Role,
    VersionRange,
    advertised,
    served,
    unstable,
)
from tests.unit.protocol.kio_samples import kio_class, kio_versions

DOCUMENT = Path(__file__).parents[3] / "docs" / "compatibility.md"


NEWER = {18: 5, 28: 6, 42: 3, 88: 1, 89: 1}
"""The newest versions of Kafka 4.4 that are later than kafka-python's copies: ApiVersions, TxnOffsetCommit,
DeleteGroups, StreamsGroupHeartbeat and StreamsGroupDescribe."""


def kafkas_requests() -> Mapping[int, Mapping[str, Any]]:
    """Kafka's own definitions of requests, of which kafka-python carries about half."""
    spec = find_spec("kafka")
    assert spec is not None and spec.origin is not None
    found = {}
    for path in Path(spec.origin).parent.glob("protocol/schemas/**/*Request.json"):
        definition = json.loads(re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.MULTILINE))
        if definition["validVersions"] != "none":
            found[definition["apiKey"]] = definition
    return found


def test_keys_versions_and_listeners_are_those_of_kafkas_schemas() -> None:
    definitions = kafkas_requests()
    assert len(definitions) > 40
    for key, definition in definitions.items():
        api = REGISTRY[key]
        low, _, high = definition["validVersions"].partition("-")
        newest = NEWER.get(key, int(high or low) - bool(definition.get("latestVersionUnstable")))
        assert api.kafka == (int(low), newest), api.key
        flexible = definition["flexibleVersions"]
        assert api.flexible == (None if flexible == "none" else int(flexible.rstrip("+"))), api.key
        assert {role.value for role in api.listeners} == set(definition["listeners"]), api.key


@pytest.mark.parametrize("api", REGISTRY.values(), ids=lambda api: api.key.name)
def test_kio_agrees_on_the_form_of_every_version_that_it_has(api: Api) -> None:
    for version in kio_versions(api):
        for kind in ("request", "response"):
            cls = kio_class(api.key, version, kind)
            assert (cls.__api_key__, cls.__version__) == (api.key, version)
            flexible = api.flexible is not None and version >= api.flexible
            assert cls.__flexible__ is flexible
            generation = cls.__header_schema__.__version__
            flexible = flexible and not (kind == "response" and api.key is ApiKey.API_VERSIONS)
            assert generation == flexible + (kind == "request")


def test_what_is_served_lies_within_kafkas_versions() -> None:
    for api in REGISTRY.values():
        if api.ours is not None:
            assert api.kafka.min <= api.ours.min <= api.ours.max <= api.kafka.max
        else:
            assert api.note, f"{api.key.name} is not served, and nothing says why"


def test_each_role_serves_its_own_apis() -> None:
    broker, controller = served(Role.BROKER), served(Role.CONTROLLER)
    assert ApiKey.PRODUCE in broker and ApiKey.PRODUCE not in controller
    assert ApiKey.BROKER_HEARTBEAT in controller and ApiKey.BROKER_HEARTBEAT not in broker
    assert broker[ApiKey.FETCH] == controller[ApiKey.FETCH] == VersionRange(4, 18)
    assert ApiKey.END_TXN in broker and ApiKey.END_TXN not in controller


def test_an_unstable_version_is_served_only_with_the_key_and_in_releases_that_have_it() -> None:
    assert served(Role.BROKER)[ApiKey.INIT_PRODUCER_ID] == VersionRange(0, 5)
    assert unstable(Role.BROKER) == unstable(Role.BROKER, "4.1") == {ApiKey.INIT_PRODUCER_ID: VersionRange(0, 6)}
    assert unstable(Role.BROKER, "4.0") == {}
    assert unstable(Role.CONTROLLER) == {}


def test_the_unstable_versions_are_those_of_kafkas_schemas() -> None:
    definitions = {
        key: int(definition["validVersions"].rpartition("-")[2])
        for key, definition in kafkas_requests().items()
        if definition.get("latestVersionUnstable")
    }
    assert definitions == {int(key): versions.max for key, versions in unstable(Role.BROKER).items()}


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    assert served(Role.BROKER)[ApiKey.PRODUCE] == VersionRange(3, 13)
    assert advertised(Role.BROKER)[ApiKey.PRODUCE] == VersionRange(0, 13)
    assert {key: versions for key, versions in advertised(Role.BROKER).items() if key is not ApiKey.PRODUCE} == {
        key: versions for key, versions in served(Role.BROKER).items() if key is not ApiKey.PRODUCE
    }
    assert advertised(Role.CONTROLLER) == served(Role.CONTROLLER)


def test_the_document_is_up_to_date() -> None:
    document = DOCUMENT.read_text()
    assert renewed(document) == document, "run: python -m milena.protocol.schemas.compatibility < docs/compatibility.md"


def test_a_document_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="has no table"):
        renewed("# nothing")
