"""Which topics and partitions a request names, for any API, by the names of its fields; and refusing each of them.

Imported only where a rule asks for a topic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.schemas.primitives import Data, DecodeError

NAMES: Final = ("topic", "topic_name", "name")
INDEXES: Final = ("partition_index", "partition", "index", "partition_id")
FORGOTTEN: Final = "forgotten_topics_data"
"""What a fetch session is to drop is not asked for."""
ALL: Final = -1
"""Stands for all partitions of a topic that is named as a whole."""

ERRORS_OF_PARTITIONS: Final = {
    ApiKey.PRODUCE: ("topic_data", "partition_data", "responses", "partition_responses"),
    ApiKey.LIST_OFFSETS: ("topics", "partitions", "topics", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics", "partitions", "topics", "partitions"),
    ApiKey.OFFSET_COMMIT: ("topics", "partitions", "topics", "partitions"),
    ApiKey.DELETE_RECORDS: ("topics", "partitions", "topics", "partitions"),
}
"""APIs whose responses have no error of their own: the fields of topics and partitions in request and response."""


def refusal(key: int, request: Any, error: ErrorCode) -> dict[str, Any] | None:
    """The response's fields with ``error`` for each partition, None for an API that says errors elsewhere."""
    if key not in ERRORS_OF_PARTITIONS:
        return None
    topics, partitions, answered_topics, answered_partitions = ERRORS_OF_PARTITIONS[ApiKey(key)]
    answers = []
    for topic in getattr(request, topics):
        named_as = {name: getattr(topic, name) for name in (*NAMES, "topic_id") if hasattr(topic, name)}
        refused = [_same_index(entity) | {"error_code": int(error)} for entity in getattr(topic, partitions)]
        answers.append(named_as | {answered_partitions: refused})
    return {answered_topics: answers}


def _same_index(entity: Any) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in INDEXES if hasattr(entity, name)}


def names(
    key: int, version: int, body: Data, topic: str, partition: int | None, name_of: Callable[[UUID], str | None]
) -> bool:
    """Whether the request in ``body`` names the topic, and with ``partition`` that one (or the topic as a whole)."""
    try:
        request = messages.decode_request(key, version, body)
    except DecodeError:
        return False
    return any(
        found == topic and (partition is None or number in (partition, ALL))
        for found, number in named(request, name_of)
    )


def named(entity: Any, name_of: Callable[[UUID], str | None]) -> Iterator[tuple[str, int]]:
    """(topic, partition) pairs below an entity of a message. Each comes once for each place it is named at."""
    for field in _fields(entity):
        value = getattr(entity, field)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str) and field == "topics":
                yield item, ALL
            elif hasattr(item, "__dataclass_fields__"):
                topic = _topic(item, name_of) if "topic" in field else None
                if topic is not None:
                    yield from ((topic, number) for number in _partitions(item))
                yield from named(item, name_of)


def _fields(entity: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(entity) if field.name != FORGOTTEN]


def _topic(entity: Any, name_of: Callable[[UUID], str | None]) -> str | None:
    for name in NAMES:
        value = getattr(entity, name, None)
        if isinstance(value, str) and value:
            return value
    value = getattr(entity, "topic_id", None)
    return name_of(value) if isinstance(value, UUID) else None


def _partitions(entity: Any) -> Iterator[int]:
    """The partitions of a topic's part of a request; ALL where it has no list of them."""
    lists = [
        getattr(entity, field)
        for field in _fields(entity)
        if field.startswith("partition") and isinstance(getattr(entity, field), tuple)
    ]
    if not lists:
        yield ALL
    for item in lists[0] if lists else ():
        if isinstance(item, int):
            yield item
            continue
        yield from (value for name in INDEXES if isinstance(value := getattr(item, name, None), int))
