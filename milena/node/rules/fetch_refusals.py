"""Refusing some partitions of a broker's Fetch: its handler does it, as it alone knows what the session has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.node.api import RefusedPartitions
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.schemas.registry import Role

ERROR_SINCE: Final = 7
"""The first version whose answer has an error for the whole."""


def is_left_to_handler(role: Role, key: int, version: int, topic: str | None) -> bool:
    """Whether a rule of this topic (None: of any) refuses partitions of such a request, and not the whole of it."""
    return role is Role.BROKER and key == ApiKey.FETCH and (topic is not None or version < ERROR_SINCE)


def refused(
    topic: str | None, partition: int | None, error: ErrorCode, *, handled: bool, is_over: Callable[[], bool]
) -> RefusedPartitions:
    """What a rule refuses, all partitions if ``topic`` is None. Once it ``is_over``, answers under way pass."""

    def error_of(name: str | None, index: int) -> ErrorCode:
        meant = topic is None or (name == topic and partition in (None, index))
        return error if meant and not (handled and is_over()) else ErrorCode.NONE

    return RefusedPartitions(error_of, handled)
