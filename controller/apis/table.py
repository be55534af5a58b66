"""Which module answers which API of a controller."""

from __future__ import annotations

from typing import Final

from node.api import ApiTable
from protocol.api_keys import ApiKey
from protocol.registry import Role, served

_ELSEWHERE: Final = {
    key: f"node.apis.{key.name.lower()}"
    for key in (ApiKey.API_VERSIONS, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS)
}


def controller_apis() -> ApiTable:
    """Every served key; a module has its key's name, and is imported on first use."""
    return ApiTable("controller.apis", {key: _ELSEWHERE.get(key, key.name.lower()) for key in served(Role.CONTROLLER)})
