"""Rules that refuse some partitions of a broker's Fetch. The handler applies them, since only the handler knows the
partitions of the fetch session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from milena.node.api import RefusedPartitions
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.schemas.registry import Role

ERROR_SINCE: Final = 7
"""The first version whose response has an error code for the whole request."""


def is_refused_by_handler(role: Role, key: int, version: int, topic: str | None) -> bool:
    """Whether the handler, not the dispatcher, refuses such a request for a rule with this ``topic`` (None: any
    topic)."""
    return role is Role.BROKER and key == ApiKey.FETCH and (topic is not None or version < ERROR_SINCE)


def refused(
    topic: str | None, partition: int | None, error: ErrorCode, *, handled: bool, is_over: Callable[[], bool]
) -> RefusedPartitions:
    """Return the partitions that a rule refuses: all if ``topic`` is None. If ``is_over`` returns True when the answer
    is made, because the rule has been released, the answer is not changed."""

    def error_of(name: str | None, index: int) -> ErrorCode:
        matches = topic is None or (name == topic and partition in (None, index))
        return error if matches and not (handled and is_over()) else ErrorCode.NONE

    return RefusedPartitions(error_of, handled)
