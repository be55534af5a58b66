"""Finds the topics and partitions, groups and transactional ids in a request of any API, by the names of its fields.

Imported only if a rule matches by one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias
from uuid import UUID

from milena.protocol.api_keys import ApiKey
from milena.protocol.requests import messages
from milena.protocol.schemas.primitives import Data
from milena.protocol.schemas.undecodable import DecodeError

NAMES: Final = ("topic", "topic_name", "name")
INDEXES: Final = ("partition_index", "partition", "index", "partition_id")
FORGOTTEN: Final = "forgotten_topics_data"
"""The field of a Fetch with partitions to remove from its session: these are not requested."""
ALL: Final = -1
"""The partition number that means all partitions of a topic."""

GROUPS: Final = ("group_id", "groups", "groups_names")
TRANSACTIONS: Final = ("transactional_id", "transactional_ids")
COORDINATORS: Final = {"group": 0, "transactional_id": 1}
"""Key types of FindCoordinator."""
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
"""A Fetch with one of these session epochs names all the partitions that it requests."""
SessionPartitions: TypeAlias = Callable[[int], Iterable[tuple[str | None, int]]]
"""The topic names and partitions in a fetch session, by its id."""
Entity: TypeAlias = Any
"""A message, or part of one."""


def request_names(
    key: int,
    version: int,
    body: Data,
    name_of: Callable[[UUID], str | None],
    *,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
    session: SessionPartitions | None = None,
) -> bool:
    """Whether the request in ``body`` names each of topic, partition, group and transactional id that is not None. A
    topic without partitions means all its partitions. If ``session`` is given, an incremental Fetch also names the
    partitions in its session."""
    try:
        request = messages.decode_request(key, version, body)
    except DecodeError:
        return False
    return (
        (
            topic is None
            or any(
                name == topic and (partition is None or number in (partition, ALL))
                for name, number in chain(named(request, name_of), _in_session(key, request, session))
            )
        )
        and (group is None or group in _texts(key, request, "group", GROUPS))
        and (transactional_id is None or transactional_id in _texts(key, request, "transactional_id", TRANSACTIONS))
    )


def _in_session(key: int, request: Entity, session: SessionPartitions | None) -> Iterable[tuple[str | None, int]]:
    if session is None or key != ApiKey.FETCH or messages.get(request, "session_epoch", FINAL_EPOCH) <= INITIAL_EPOCH:
        return ()
    return session(messages.get(request, "session_id", 0))


def _texts(key: int, request: Entity, kind: str, fields: Sequence[str]) -> Iterator[str]:
    """Yield the groups or transactional ids that a request names. ``kind`` is a key of COORDINATORS."""
    if key == ApiKey.FIND_COORDINATOR:
        if messages.get(request, "key_type", COORDINATORS["group"]) == COORDINATORS[kind]:
            yield from messages.get(request, "coordinator_keys", ())
            yield messages.get(request, "key", "")
        return
    for name in _fields(request):
        value = getattr(request, name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str) and name in fields:
                yield item
            elif hasattr(item, "__dataclass_fields__"):
                yield from _texts(key, item, kind, fields)


def named(entity: Entity, name_of: Callable[[UUID], str | None]) -> Iterator[tuple[str, int]]:
    """Yield the (topic, partition) pairs in a message or part of one, once for each occurrence."""
    for field in _fields(entity):
        value = getattr(entity, field)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, str) and field == "topics":
                yield item, ALL
            elif hasattr(item, "__dataclass_fields__"):
                topic = topic_of(item, name_of) if "topic" in field else None
                if topic is not None:
                    yield from ((topic, number) for number in _partitions(item))
                yield from named(item, name_of)


def _fields(entity: Entity) -> list[str]:
    return [field.name for field in dataclasses.fields(entity) if field.name != FORGOTTEN]


def topic_of(entity: Entity, name_of: Callable[[UUID], str | None]) -> str | None:
    """Return the topic name of a topic's part of a request, looked up by its id if it has no name; None if unknown."""
    for name in NAMES:
        value = getattr(entity, name, None)
        if isinstance(value, str) and value:
            return value
    value = getattr(entity, "topic_id", None)
    return name_of(value) if isinstance(value, UUID) else None


def _partitions(entity: Entity) -> Iterator[int]:
    """Yield the partitions in a topic's part of a request; ALL if it has no list of them."""
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
