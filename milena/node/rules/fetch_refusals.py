"""Refuses some partitions of a broker's Fetch. Its handler does so, since only it knows the partitions of the
session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.node.api import RefusedPartitions
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.schemas.registry import Role

ERROR_SINCE: Final = 7
"""The first version whose response has an error code for the whole request."""


def is_left_to_handler(role: Role, key: int, version: int, topic: str | None) -> bool:
    """Whether a rule for this topic (None: for any) refuses partitions of such a request, and not the whole request."""
    return role is Role.BROKER and key == ApiKey.FETCH and (topic is not None or version < ERROR_SINCE)


def refused(
    topic: str | None, partition: int | None, error: ErrorCode, *, handled: bool, is_over: Callable[[], bool]
) -> RefusedPartitions:
    """The partitions that a rule refuses: all if ``topic`` is None. Once the rule ``is_over``, pending answers pass."""

    def error_of(name: str | None, index: int) -> ErrorCode:
        meant = topic is None or (name == topic and partition in (None, index))
        return error if meant and not (handled and is_over()) else ErrorCode.NONE

    return RefusedPartitions(error_of, handled)
