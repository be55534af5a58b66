"""`docker-compose.yml`, without an engine: what its containers are configured with is a cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from milena.commands.container import DATA, implied, settings
from milena.config.node_config import NodeConfig
from milena.config.sources import from_environment

ROOT = Path(__file__).resolve().parents[3]


def services(**variables: str) -> dict[str, dict[str, Any]]:
    """By name, with the variables that compose would put in."""
    text = (ROOT / "docker-compose.yml").read_text()
    filled = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), text)
    assert "$" not in filled
    found: dict[str, dict[str, Any]] = yaml.safe_load(filled)["services"]
    return found


def configured(service: dict[str, Any]) -> NodeConfig:
    environment = {name: str(value) for name, value in service["environment"].items()}
    return NodeConfig(from_environment(environment | implied(environment, "")))


def test_a_controller_and_three_brokers_in_racks_find_each_other() -> None:
    nodes = {name: configured(service) for name, service in services().items() if "environment" in service}
    assert list(nodes) == ["controller", "broker-1", "broker-2", "broker-3"]
    assert {name: node.node_id for name, node in nodes.items()} == dict(zip(nodes, (1000, 1, 2, 3), strict=True))
    assert {config.get_str_or_none("broker.rack") for config in nodes.values()} == {None, "rack-1", "rack-2", "rack-3"}
    assert not any(config.warnings for config in nodes.values())
    for name, config in nodes.items():
        assert config.get_bool("remote.log.storage.system.enable")  # the controller checks the topics' configuration
        assert config.quorum_voters == {1000: ("controller", 9093)}
        assert config.log_dirs == (DATA,)
        if config.is_broker:
            inside, outside = config.advertised_listeners
            assert (inside.host, inside.port) == (name, 9092)
            assert (outside.host, outside.port) == ("localhost", 9091 + config.node_id)


def test_what_is_published_is_what_is_advertised_under_other_ports_too() -> None:
    for variables in ({}, {"PORT_2": "29093", "MILENA_HOST": "kafka.example", "MILENA_BIND": "0.0.0.0"}):
        for service in services(**variables).values():
            if "KAFKA_BROKER_RACK" not in service.get("environment", {}):
                continue
            config = configured(service)
            outside = config.advertised_listeners[1]
            assert outside.host == variables.get("MILENA_HOST", "localhost")
            bind = variables.get("MILENA_BIND", "127.0.0.1")
            assert f"{bind}:{outside.port}:{config.broker_listeners[1].port}" in service["ports"]


def test_data_and_tier_are_in_volumes_and_each_node_has_a_limit() -> None:
    for service in services().values():
        if "environment" not in service:
            continue
        mounted = dict(reversed(volume.split(":")) for volume in service["volumes"])
        given = settings({name: str(value) for name, value in service["environment"].items()}, "")
        assert DATA in mounted
        assert service["mem_limit"].endswith("m")
        if given["process.roles"] == "broker":
            assert mounted[given["rsm.config.dir"]] == "tier"
            assert service["depends_on"] == {"controller": {"condition": "service_healthy"}}
