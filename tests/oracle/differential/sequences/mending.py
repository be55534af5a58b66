"""Differences that are being mended elsewhere. Each entry goes when its mend is merged: without it the random run says
whether the mend is whole. In the end ``MENDING`` is empty, and this module goes with its one use in ``run.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.oracle.differential.sequences.known import Found, Known
from tests.oracle.differential.sides import SILENT


def _texts(found: Found) -> bool:
    return found.key in _WITHOUT_TEXTS and found.line.endswith("Kafka '<a text>', Milena None")


_WITHOUT_TEXTS: Final = frozenset({
    ApiKey.DELETE_TOPICS, ApiKey.DESCRIBE_PRODUCERS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS,
})  # fmt: skip


def _unknown_partitions(found: Found) -> bool:
    if found.key is ApiKey.DESCRIBE_GROUPS:
        commits = any(step.key is ApiKey.OFFSET_COMMIT for step in found.before)
        return commits and ("Dead", "Empty") in found.states()
    if found.key in (ApiKey.OFFSET_DELETE, ApiKey.DELETE_GROUPS):
        gone = "Kafka 69, Milena 0" in found.line or found.kafka.get("error_code") == ErrorCode.GROUP_ID_NOT_FOUND
        return gone and any(step.key is ApiKey.OFFSET_COMMIT for step in found.before)
    return found.key is ApiKey.OFFSET_COMMIT and "error_code: Kafka 3, Milena" in found.line


def _throttled(found: Found) -> bool:
    return found.key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS) and "'0:1,'" in repr(found.step.fields)


def _cursor(found: Found) -> bool:
    return found.key is ApiKey.DESCRIBE_TOPIC_PARTITIONS and (
        found.step.fields["cursor"] is not None
        or "next_cursor" in found.line
        or "nowhere" in found.line
        or "error_code': 3" in found.line
    )


def _authorized(found: Found) -> bool:
    return found.key is ApiKey.METADATA and "topic_authorized_operations" in found.line


def _other_resources(found: Found) -> bool:
    kinds = {one["resource_type"] for one in found.step.fields.get("resources", ())}
    return bool(kinds & {16, 32}) or found.key is ApiKey.LIST_CONFIG_RESOURCES


def _rubbish(found: Found) -> bool:
    return (
        found.key is ApiKey.PRODUCE
        and any(field in line for line in [repr(found.step.fields)] for field in ("codec=",))
        and any(name in repr(found.step.fields) for name in ("changed=", "body="))
    )


def _deleted_offsets(found: Found) -> bool:
    return found.key is ApiKey.OFFSET_DELETE and found.codes(0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)


def _left_while_joining(found: Found) -> bool:
    """The answer to the JoinGroup of a member that was made to leave while it waited: Kafka's names no member."""
    if found.key is not ApiKey.JOIN_GROUP or not isinstance(found.milena, dict):
        return False
    refused = found.milena["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    return bool(refused) and found.line.startswith(".member_id: Kafka ''")


def _full_before_protocols(found: Found) -> bool:
    """A JoinGroup without protocols to a full group."""
    if found.key is not ApiKey.JOIN_GROUP or not isinstance(found.milena, dict):
        return False
    full, inconsistent = ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return bool(found.kafka["error_code"] == full and found.milena["error_code"] == inconsistent)


def _removed_when_full(found: Found) -> bool:
    """A member that is refused as the group is full (GROUP_MAX_SIZE_REACHED): Kafka removes it, so that the others need
    not wait for it."""
    if sum(step.key is ApiKey.JOIN_GROUP for step in found.before) < _FULL or "group_id" not in found.step.fields:
        return False
    return found.codes(ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION) or found.milena == SILENT


_FULL: Final = 4
"""Joins that are needed for it; ``group.max.size`` is 3."""

MENDING: Final[Sequence[Known]] = (
    Known("mending: texts", _texts, "", goes_on=True),
    Known("mending: unknown partitions in OffsetCommit", _unknown_partitions, "", goes_on=True),
    Known("mending: throttled replicas", _throttled, ""),
    Known("mending: cursors", _cursor, "", goes_on=True),
    Known("mending: authorized operations", _authorized, "", goes_on=True),
    Known("mending: groups' and metrics' configurations", _other_resources, ""),
    Known("mending: compressed rubbish", _rubbish, ""),
    Known("mending: OffsetDelete", _deleted_offsets, ""),
    Known("mending: left while joining", _left_while_joining, "", goes_on=True),
    Known("mending: full before protocols", _full_before_protocols, ""),
    Known("mending: removed when full", _removed_when_full, ""),
)
