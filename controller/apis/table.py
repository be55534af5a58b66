"""Which module answers which API of a controller."""

from __future__ import annotations

from typing import Final

from node.api import ApiTable
from protocol.api_keys import ApiKey
from protocol.registry import Role, served

_ELSEWHERE: Final = {ApiKey.API_VERSIONS: "node.apis.api_versions"}


def controller_apis() -> ApiTable:
    """Every served key; a module has its key's name, and is imported on first use."""
    return ApiTable("controller.apis", {key: _ELSEWHERE.get(key, key.name.lower()) for key in served(Role.CONTROLLER)})
