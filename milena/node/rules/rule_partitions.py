"""Refuses some or all partitions of a request: what remains of the request, and how its answer changes.

Imported only if a rule refuses requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from milena.node.api import Answers, RequestContext
from milena.node.rules.on_the_way import OnTheWay
from milena.node.rules.rule_topics import INDEXES, NAMES, Entity, topic_of
from milena.node.rules.tracing import body_of
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages


class Places(NamedTuple):
    """The fields of topics and partitions in a request, and in its response."""

    topics: str
    partitions: str
    answered_topics: str
    answered_partitions: str


_PLAIN: Final = Places("topics", "partitions", "topics", "partitions")
ERRORS_OF_PARTITIONS: Final = {
    ApiKey.PRODUCE: Places("topic_data", "partition_data", "responses", "partition_responses"),
    ApiKey.LIST_OFFSETS: _PLAIN,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PLAIN,
    ApiKey.OFFSET_COMMIT: _PLAIN,
    ApiKey.DELETE_RECORDS: _PLAIN,
}
"""APIs whose responses have no error of their own, but one for each partition."""


def refusal(key: int, request: Entity, error: ErrorCode) -> dict[str, object] | None:
    """The response's fields with ``error`` for each partition; None if the API reports errors elsewhere."""
    if key not in ERRORS_OF_PARTITIONS:
        return None
    places = ERRORS_OF_PARTITIONS[ApiKey(key)]
    answers = []
    for topic in getattr(request, places.topics):
        named_as = {name: getattr(topic, name) for name in (*NAMES, "topic_id") if hasattr(topic, name)}
        refused = [_same_index(entity) | {"error_code": int(error)} for entity in getattr(topic, places.partitions)]
        answers.append(named_as | {places.answered_partitions: refused})
    return {places.answered_topics: answers}


def split(
    key: int, request: Entity, topic: str, partition: int | None, name_of: Callable[[UUID], str | None]
) -> tuple[Entity, Entity] | None:
    """The request without the partition (None: the whole topic), and the request with only it. None if nothing would be
    left, or if the API has no error for each partition."""
    if key not in ERRORS_OF_PARTITIONS:
        return None
    places = ERRORS_OF_PARTITIONS[ApiKey(key)]

    def is_meant(one: Entity, entity: Entity) -> bool:
        return topic_of(one, name_of) == topic and partition in (None, _index(entity))

    def only(*, meant: bool) -> Entity:
        topics = [
            replace(one, **{places.partitions: kept})
            for one in getattr(request, places.topics)
            if (kept := tuple(part for part in getattr(one, places.partitions) if is_meant(one, part) is meant))
        ]
        return replace(request, **{places.topics: tuple(topics)})

    left = only(meant=False)
    return (left, only(meant=True)) if getattr(left, places.topics) else None


class PartlyRefused(OnTheWay):
    """Wraps the answers of a request, and adds the refused partitions to the answer."""

    __slots__ = ("_error", "_refused")

    def __init__(self, answers: Answers, refused: Entity, error: ErrorCode) -> None:
        """``refused``: the request with only the refused partitions."""
        super().__init__(answers)
        self._refused = refused
        self._error = error

    def answered(self, ctx: RequestContext) -> None:
        parts, ctx.parts = ctx.parts, None
        ctx.answers = self._answers
        if not parts:  # acks=0
            ctx.no_response()
            return
        key, version = ctx.header.api_key, ctx.version
        fields = refusal(key, self._refused, self._error)
        assert fields is not None, "split found an error for each partition"
        errors = messages.build_response(key, version, **fields)
        ctx.respond([messages.encode(merged(key, messages.decode_response(key, version, body_of(parts)), errors))])


def merged(key: int, answer: Entity, errors: Entity) -> Entity:
    """``answer`` with the partitions of ``errors`` in place of its own."""
    places = ERRORS_OF_PARTITIONS[ApiKey(key)]
    refused = {(_identity(topic), _index(partition)) for topic, partition in _pairs(errors, places)}
    topics: dict[tuple[object, ...], Entity] = {}
    for topic in getattr(answer, places.answered_topics):
        kept = [
            one for one in getattr(topic, places.answered_partitions) if (_identity(topic), _index(one)) not in refused
        ]
        before = topics.get(_identity(topic))  # a topic may have several entries
        earlier = () if before is None else getattr(before, places.answered_partitions)
        topics[_identity(topic)] = replace(topic, **{places.answered_partitions: (*earlier, *kept)})
    for topic in getattr(errors, places.answered_topics):
        known = topics.get(_identity(topic))
        answered = () if known is None else getattr(known, places.answered_partitions)
        added = (*answered, *getattr(topic, places.answered_partitions))
        topics[_identity(topic)] = replace(topic, **{places.answered_partitions: added})
    return replace(answer, **{places.answered_topics: tuple(topics.values())})


def _pairs(response: Entity, places: Places) -> Iterator[tuple[Entity, Entity]]:
    for topic in getattr(response, places.answered_topics):
        for partition in getattr(topic, places.answered_partitions):
            yield topic, partition


def _identity(topic: Entity) -> tuple[object, ...]:
    return tuple(getattr(topic, name, None) for name in (*NAMES, "topic_id"))


def _index(entity: Entity) -> int | None:
    return next((getattr(entity, name) for name in INDEXES if hasattr(entity, name)), None)


def _same_index(entity: Entity) -> dict[str, object]:
    return {name: getattr(entity, name) for name in INDEXES if hasattr(entity, name)}
