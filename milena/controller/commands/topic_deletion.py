"""DeleteTopics: by name, by id, or both in one request (KIP-516)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from milena.controller.state.result import MAX_RECORDS_PER_BATCH, Result
from milena.controller.state.state import ControllerState
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import RemoveTopicRecord


@dataclass(frozen=True, slots=True)
class DoomedTopic:
    """One topic of a request, by name or by id, not both."""

    name: str | None
    id: UUID | None


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result for one topic; ``error`` is None if it is deleted."""

    name: str | None
    id: UUID | None
    error: KafkaError | None = None


def delete_topics(state: ControllerState, requested: Sequence[DoomedTopic]) -> Result[list[Deletion]]:
    """Delete the topics that exist and are in the request once. The caller checks whether deletion is allowed at
    all."""
    outcomes: list[Deletion] = []
    named: dict[str, int] = {}
    by_id: dict[UUID, int] = {}
    for topic in requested:
        if topic.name is not None and topic.id is not None:
            outcomes.append(_refused(topic, "A topic must be given by name or by id, not by both."))
        elif topic.name is not None:
            named[topic.name] = named.get(topic.name, 0) + 1
        elif topic.id is not None:
            by_id[topic.id] = by_id.get(topic.id, 0) + 1
        else:
            outcomes.append(_refused(topic, "Neither a name nor an id is given."))
    deletions: dict[UUID, Deletion] = {}
    for topic_id, times in by_id.items():
        found = state.image.topics_by_id.get(topic_id)
        if times > 1:
            outcomes.append(_refused(DoomedTopic(None, topic_id), "The topic id is in the request twice."))
        elif found is None:
            outcomes.append(Deletion(None, topic_id, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)))
        else:
            deletions[topic_id] = Deletion(found.name, topic_id)
    for name, times in named.items():
        found = state.image.topics.get(name)
        if times > 1:
            outcomes.append(_refused(DoomedTopic(name, None), "The topic is in the request twice."))
        elif found is None:
            outcomes.append(Deletion(name, None, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
        elif found.id in by_id:
            deletions.pop(found.id, None)
            outcomes.append(_refused(DoomedTopic(name, found.id), "The topic is also given by its id."))
        else:
            deletions[found.id] = Deletion(name, found.id)
    if len(deletions) > MAX_RECORDS_PER_BATCH:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{len(deletions)} topics are too many for one request.")
    return Result([RemoveTopicRecord(topic_id=topic_id) for topic_id in deletions], [*outcomes, *deletions.values()])


def _refused(topic: DoomedTopic, why: str) -> Deletion:
    return Deletion(topic.name, topic.id, KafkaError(ErrorCode.INVALID_REQUEST, why))
