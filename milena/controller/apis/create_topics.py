"""CreateTopics (key 19), versions 2-7.

v4 defaults (-1) for partitions and replication factor, v5 the effective configuration in the response, v7 topic ids.
KIPs: 4, 195, 464, 525, 516.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from milena.controller.commands.topics import NewTopic, create_topics
from milena.controller.state.result import RECORDS_PER_STEP, Committing, Result
from milena.node.api import Reply, RequestContext
from milena.node.metadata.config_views import ConfigView
from milena.protocol.errors import KafkaError

if TYPE_CHECKING:
    from milena.controller.commands.topics import CreatedTopic
    from milena.protocol.apis import (
        CreatableTopicConfig,
        CreatableTopicConfigsFields,
        CreatableTopicResultFields,
        CreateTopicsRequest,
        CreateTopicsResponseFields,
    )
    from milena.runtime.context import Runtime

CONFIGS_SINCE: Final = 5
Outcomes: TypeAlias = "list[tuple[str, CreatedTopic | KafkaError]]"


class Needs(Committing, Protocol):
    """What this handler uses of its controller."""

    @property
    def runtime(self) -> Runtime: ...


def handle(node: Needs, ctx: RequestContext, request: CreateTopicsRequest) -> Reply[CreateTopicsResponseFields]:
    topics = [
        NewTopic(
            name=topic.name,
            partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=[(a.partition_index, a.broker_ids) for a in topic.assignments],
            configs=_values(topic.configs),
        )
        for topic in request.topics
    ]
    configs = {topic.name: topic.configs for topic in topics}

    def decide() -> Result[Outcomes]:
        return create_topics(node.state, topics, node.runtime.random, validate_only=request.validate_only)

    def answer(outcomes: Outcomes) -> CreateTopicsResponseFields:
        return {"topics": _topics(node, ctx.version, configs, outcomes)}

    if sum(1 + max(topic.partitions, len(topic.assignments), 1) for topic in topics) > RECORDS_PER_STEP:
        return node.commit_in_steps(decide, answer)
    return node.commit(decide(), answer)


def _values(configs: Sequence[CreatableTopicConfig]) -> dict[str, str | None]:
    """Return the values by key. Of a key that is listed twice the last value counts, but a null anywhere is an error,
    as in Kafka."""
    values: dict[str, str | None] = {}
    for config in configs:
        if values.get(config.name, "") is not None:
            values[config.name] = config.value
    return values


def failed(ctx: RequestContext, request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponseFields:
    return {"topics": [_refused(topic.name, error) for topic in request.topics]}


def _topics(
    node: Needs,
    version: int,
    configs: Mapping[str, Mapping[str, str | None]],
    outcomes: Outcomes,
) -> list[CreatableTopicResultFields]:
    view = ConfigView(node.state.config, node.state.image, None, synonyms=False, documentation=False)

    @cache
    def entries(overrides: tuple[tuple[str, str], ...]) -> list[CreatableTopicConfigsFields]:
        if version < CONFIGS_SINCE:
            return []
        explicit = dict(overrides)
        return [
            {
                "name": entry["name"],
                "value": explicit.get(entry["name"], entry["value"]),
                "read_only": entry["read_only"],
                "config_source": entry["config_source"],
                "is_sensitive": entry["is_sensitive"],
            }
            for entry in view.topic_entries(explicit)
        ]

    answers: list[CreatableTopicResultFields] = []
    for name, outcome in outcomes:
        if isinstance(outcome, KafkaError):
            answers.append(_refused(name, outcome))
            continue
        overrides = tuple((key, value) for key, value in configs[name].items() if value is not None)
        answers.append(
            {
                "name": name,
                "topic_id": outcome.id,
                "error_code": 0,
                "error_message": None,
                "num_partitions": outcome.partitions,
                "replication_factor": outcome.replication_factor,
                "configs": entries(overrides),
            }
        )
    return answers


def _refused(name: str, error: KafkaError) -> CreatableTopicResultFields:
    return {"name": name, "error_code": int(error.code), "error_message": error.text, "configs": []}
