"""The handler modules of the broker's APIs."""

from __future__ import annotations

from typing import Final

from milena.node.api import ApiTable
from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.registry import Role, served

_IN_NODE: Final = {
    key: f"milena.node.apis.{key.name.lower()}"
    for key in (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
}
_HOT: Final = (ApiKey.API_VERSIONS, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA)


def broker_apis() -> ApiTable:
    """All API keys that a broker serves, each with the module of its name. The modules of frequent requests are
    imported when the server listens, the others on first use."""
    return ApiTable(
        "milena.broker.apis", {key: _IN_NODE.get(key, key.name.lower()) for key in served(Role.BROKER)}, hot=_HOT
    )
