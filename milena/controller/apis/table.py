"""The handler modules of a controller's APIs, by API key."""

from __future__ import annotations

from typing import Final

from milena.node.api import ApiTable
from milena.protocol.api_keys import ApiKey
from milena.protocol.schemas.registry import Role, served

_ELSEWHERE: Final = {
    key: f"milena.node.apis.{key.name.lower()}"
    for key in (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
}


def controller_apis() -> ApiTable:
    """Return all supported APIs. A module has the name of its API and is imported on first use."""
    return ApiTable(
        "milena.controller.apis", {key: _ELSEWHERE.get(key, key.name.lower()) for key in served(Role.CONTROLLER)}
    )
