"""Refuses some or all partitions of a request: builds the remaining request, and merges the errors into its answer.

Imported only if a rule refuses requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from milena.node.api import Answers, RequestContext
from milena.node.rules.answers_decorator import AnswersDecorator
from milena.node.rules.rule_topics import INDEXES, NAMES, Entity, topic_of
from milena.node.rules.tracing import body_of
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages


class PartitionFields(NamedTuple):
    """The names of the fields with topics and partitions in a request, and in its response."""

    topics: str
    partitions: str
    answered_topics: str
    answered_partitions: str


_PLAIN: Final = PartitionFields("topics", "partitions", "topics", "partitions")
ERRORS_OF_PARTITIONS: Final = {
    ApiKey.PRODUCE: PartitionFields("topic_data", "partition_data", "responses", "partition_responses"),
    ApiKey.LIST_OFFSETS: _PLAIN,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PLAIN,
    ApiKey.OFFSET_COMMIT: _PLAIN,
    ApiKey.DELETE_RECORDS: _PLAIN,
}
"""APIs whose responses have error codes only for partitions."""


def refusal(key: int, request: Entity, error: ErrorCode) -> dict[str, object] | None:
    """Return the response's fields with ``error`` for each partition; None if the API has no error codes of
    partitions."""
    if key not in ERRORS_OF_PARTITIONS:
        return None
    fields = ERRORS_OF_PARTITIONS[ApiKey(key)]
    answers = []
    for topic in getattr(request, fields.topics):
        identity = {name: getattr(topic, name) for name in (*NAMES, "topic_id") if hasattr(topic, name)}
        refused = [_same_index(entity) | {"error_code": int(error)} for entity in getattr(topic, fields.partitions)]
        answers.append(identity | {fields.answered_partitions: refused})
    return {fields.answered_topics: answers}


def split(
    key: int, request: Entity, topic: str, partition: int | None, name_of: Callable[[UUID], str | None]
) -> tuple[Entity, Entity] | None:
    """Return the request without the partition (None: the whole topic), and the request with only the partition.
    Returns None if no partition would remain, or if the API has no error codes of partitions."""
    if key not in ERRORS_OF_PARTITIONS:
        return None
    fields = ERRORS_OF_PARTITIONS[ApiKey(key)]

    def is_refused(one: Entity, entity: Entity) -> bool:
        return topic_of(one, name_of) == topic and partition in (None, _index(entity))

    def only(*, refused_part: bool) -> Entity:
        topics = [
            replace(one, **{fields.partitions: kept})
            for one in getattr(request, fields.topics)
            if (
                kept := tuple(part for part in getattr(one, fields.partitions) if is_refused(one, part) is refused_part)
            )
        ]
        return replace(request, **{fields.topics: tuple(topics)})

    remaining = only(refused_part=False)
    return (remaining, only(refused_part=True)) if getattr(remaining, fields.topics) else None


class PartlyRefusedAnswers(AnswersDecorator):
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
        assert fields is not None, "split returned partitions, so the API has error codes of partitions"
        errors = messages.build_response(key, version, **fields)
        ctx.respond([messages.encode(merged(key, messages.decode_response(key, version, body_of(parts)), errors))])


def merged(key: int, answer: Entity, errors: Entity) -> Entity:
    """Return ``answer`` with the partitions of ``errors`` in place of its own ones."""
    fields = ERRORS_OF_PARTITIONS[ApiKey(key)]
    refused = {(_identity(topic), _index(partition)) for topic, partition in _pairs(errors, fields)}
    topics: dict[tuple[object, ...], Entity] = {}
    for topic in getattr(answer, fields.answered_topics):
        kept = [
            one for one in getattr(topic, fields.answered_partitions) if (_identity(topic), _index(one)) not in refused
        ]
        before = topics.get(_identity(topic))  # a topic may have several entries
        earlier = () if before is None else getattr(before, fields.answered_partitions)
        topics[_identity(topic)] = replace(topic, **{fields.answered_partitions: (*earlier, *kept)})
    for topic in getattr(errors, fields.answered_topics):
        known = topics.get(_identity(topic))
        answered = () if known is None else getattr(known, fields.answered_partitions)
        added = (*answered, *getattr(topic, fields.answered_partitions))
        topics[_identity(topic)] = replace(topic, **{fields.answered_partitions: added})
    return replace(answer, **{fields.answered_topics: tuple(topics.values())})


def _pairs(response: Entity, fields: PartitionFields) -> Iterator[tuple[Entity, Entity]]:
    for topic in getattr(response, fields.answered_topics):
        for partition in getattr(topic, fields.answered_partitions):
            yield topic, partition


def _identity(topic: Entity) -> tuple[object, ...]:
    return tuple(getattr(topic, name, None) for name in (*NAMES, "topic_id"))


def _index(entity: Entity) -> int | None:
    return next((getattr(entity, name) for name in INDEXES if hasattr(entity, name)), None)


def _same_index(entity: Entity) -> dict[str, object]:
    return {name: getattr(entity, name) for name in INDEXES if hasattr(entity, name)}
