"""The handler modules of the broker's APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.config.node_config import NodeConfig
from milena.node.api import ApiTable
from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.registry import Role, VersionRange, served, unstable

_IN_NODE: Final = {
    key: f"milena.node.apis.{key.name.lower()}"
    for key in (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
}
_CONFIG_CHANGES: Final = dict.fromkeys(
    (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS), "milena.broker.controller_link.config_changes"
)
_FORWARDED: Final = dict.fromkeys(
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ELECT_LEADERS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.UPDATE_FEATURES,
    ),
    "forwarded",
)
_HOT: Final = (ApiKey.API_VERSIONS, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA)


def broker_apis(config: NodeConfig) -> ApiTable:
    """All API keys that a broker serves, each with its module, which has the API's name unless listed above. The
    modules of frequent requests are imported when the server listens, the others on first use."""
    named = {key: key.name.lower() for key in served(Role.BROKER)}
    modules = named | _IN_NODE | _CONFIG_CHANGES | _FORWARDED
    return ApiTable("milena.broker.apis", modules, hot=_HOT, ranges=unstable_versions(config))


def unstable_versions(config: NodeConfig) -> Mapping[ApiKey, VersionRange]:
    """Return the versions of APIs whose newest one is unstable, if ``unstable.api.versions.enable`` is set."""
    return unstable(Role.BROKER, config.release) if config.get_bool("unstable.api.versions.enable") else {}
