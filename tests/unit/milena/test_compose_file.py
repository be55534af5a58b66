"""`docker-compose.yml`, without a container engine: the configurations of its containers form a cluster."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from milena.commands.container import DATA, implied, settings
from milena.config.node_config import NodeConfig
from milena.config.sources import from_environment
from milena.runtime.process import real_runtime
from milena.tiered.store.fsspec_tier import FsspecTier
from milena.tiered.store.tier_config import remote_storage

ROOT = Path(__file__).resolve().parents[3]


def services(**variables: str) -> dict[str, dict[str, Any]]:
    """The services by name, with variables substituted as compose does."""
    content = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, dict[str, Any]] = filled(content["services"], variables)
    return found


def filled(value: Any, variables: Mapping[str, str]) -> Any:
    """Substitute variables in all strings, as compose does after it has parsed the file."""
    if isinstance(value, dict):
        return {key: filled(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, variables) for one in value]
    if not isinstance(value, str):
        return value
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: variables.get(found[1], found[2]), value)
    assert "$" not in text
    return text


def nodes(**variables: str) -> dict[str, dict[str, Any]]:
    """The services that are nodes of the cluster."""
    return {name: one for name, one in services(**variables).items() if "KAFKA_NODE_ID" in one.get("environment", {})}


def configured(service: dict[str, Any]) -> NodeConfig:
    environment = {name: str(value) for name, value in service["environment"].items()}
    return NodeConfig(from_environment(environment | implied(environment, "")))


def test_a_controller_and_three_brokers_in_racks_form_a_cluster() -> None:
    found = {name: configured(service) for name, service in nodes().items()}
    assert list(found) == ["controller", "broker-1", "broker-2", "broker-3"]
    assert {name: node.node_id for name, node in found.items()} == dict(zip(found, (1000, 1, 2, 3), strict=True))
    assert {config.get_str_or_none("broker.rack") for config in found.values()} == {None, "rack-1", "rack-2", "rack-3"}
    assert not any(config.warnings for config in found.values())
    for name, config in found.items():
        assert config.get_bool("remote.log.storage.system.enable")  # the controller checks the topics' configuration
        assert config.quorum_voters == {1000: ("controller", 9093)}
        assert config.log_dirs == (f"{DATA}/log",)
        if config.is_broker:
            inside, outside = config.advertised_listeners
            assert (inside.host, inside.port) == (name, 9092)
            assert (outside.host, outside.port) == ("localhost", 9091 + config.node_id)


def test_published_ports_equal_advertised_ports() -> None:
    for variables in ({}, {"PORT_2": "29093", "MILENA_HOST": "kafka.example", "MILENA_BIND": "0.0.0.0"}):
        for service in nodes(**variables).values():
            if "KAFKA_BROKER_RACK" not in service["environment"]:
                continue
            config = configured(service)
            outside = config.advertised_listeners[1]
            assert outside.host == variables.get("MILENA_HOST", "localhost")
            bind = variables.get("MILENA_BIND", "127.0.0.1")
            assert f"{bind}:{outside.port}:{config.broker_listeners[1].port}" in service["ports"]


def test_data_and_tier_are_in_volumes_and_each_node_has_a_limit() -> None:
    for service in nodes().values():
        mounted = dict(reversed(volume.split(":")) for volume in service["volumes"])
        given = settings({name: str(value) for name, value in service["environment"].items()}, "")
        assert DATA in mounted
        assert service["mem_limit"].endswith("m")
        if given["process.roles"] == "broker":
            assert mounted[given["rsm.config.dir"]] == "tier"
            assert service["depends_on"] == {"controller": {"condition": "service_healthy"}}


async def test_with_the_variables_of_s3_env_the_tier_is_a_bucket() -> None:
    lines = (ROOT / "docker" / "s3.env").read_text().splitlines()
    variables = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    made = services(**variables)
    for service in nodes(**variables).values():
        given = settings({name: str(value) for name, value in service["environment"].items()}, "")
        if given["process.roles"] == "broker":
            prefix = "rsm.config."
            own = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
            storage = remote_storage(real_runtime(), given["remote.log.storage.manager.class.name"], own, "1")
            assert isinstance(storage, FsspecTier)
            assert made["s3-bucket"]["environment"]["KAFKA_RSM_CONFIG_URL"] == own["url"] == "s3://milena/tier"
            assert json.loads(own["options"])["endpoint_url"] == "http://s3:9000"
    assert made["s3"]["profiles"] == made["s3-bucket"]["profiles"] == [variables["COMPOSE_PROFILES"]]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert made["broker-1"]["build"]["args"]["EXTRAS"] in extras
