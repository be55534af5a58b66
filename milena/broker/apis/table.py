"""The handler modules of the broker's APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from milena.node.api import ApiTable
from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.api_versions import NO_OTHERS
from milena.protocol.schemas.registry import Role, VersionRange, served

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


def broker_apis(unstable: Mapping[ApiKey, VersionRange] = NO_OTHERS) -> ApiTable:
    """All API keys that a broker serves, each with its module, which has the API's name unless listed above. The
    modules of frequent requests are imported when the server listens, the others on first use. ``unstable``: the
    versions of APIs that have unstable ones, if these are served."""
    named = {key: key.name.lower() for key in served(Role.BROKER)}
    return ApiTable("milena.broker.apis", named | _IN_NODE | _CONFIG_CHANGES | _FORWARDED, hot=_HOT, ranges=unstable)
