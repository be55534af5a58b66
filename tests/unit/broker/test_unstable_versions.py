"""Unstable versions of APIs are served with ``unstable.api.versions.enable`` alone."""

from __future__ import annotations

import pytest

from milena.broker.apis.table import broker_apis, unstable_versions
from milena.config.node_config import NodeConfig
from milena.protocol.api_keys import ApiKey


def config(**values: object) -> NodeConfig:
    return NodeConfig.of(
        process_roles="broker",
        node_id=1,
        listeners="PLAINTEXT://h:9092",
        controller_listener_names="CONTROLLER",
        controller_quorum_voters="100@h:9093",
        **values,
    )


@pytest.mark.parametrize(("release", "versions"), [("4.4", {ApiKey.INIT_PRODUCER_ID: (0, 6)}), ("4.0", {})])
def test_the_key_adds_the_versions_of_the_release(release: str, versions: dict[ApiKey, tuple[int, int]]) -> None:
    enabled = config(kafka_version=release, unstable_api_versions_enable=True)
    assert unstable_versions(enabled) == broker_apis(enabled).ranges == versions


def test_no_version_is_unstable_without_the_key() -> None:
    assert unstable_versions(config()) == broker_apis(config()).ranges == {}
