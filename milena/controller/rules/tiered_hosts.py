"""Which brokers may host partitions of compacted topics with remote storage: those that register the feature.

Kafka's brokers, older versions of Milena and brokers with ``remote.log.compaction.enable=false`` do not register it:
they would lead such a partition without knowing which remote segments were cleaned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milena.config.tiered_rules import COMPACTION_ENABLE, ENABLE, is_tiered_and_compacted
from milena.controller.rules.placement import bad_assignment
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import TOPIC_RESOURCE, BrokerImage, TopicImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import REMOTE_COMPACTION
from milena.storage.log.context import NEVER_TIERED

_NAMED = 5


def needs_ability(topic: str, configs: Mapping[str, str]) -> bool:
    """Return whether a topic with these configs may be hosted only by brokers with remote log compaction."""
    return is_tiered_and_compacted(configs) and topic not in NEVER_TIERED


def is_able(broker: BrokerImage) -> bool:
    return offers_ability(broker.features)


def offers_ability(features: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether the ``features`` of a registration include remote log compaction."""
    return features.get(REMOTE_COMPACTION, (0, 0))[1] >= 1


def check_hosts(state: ControllerState, topic: str, configs: Mapping[str, str], brokers: Iterable[int]) -> None:
    """Check the replicas named by a user. Raises KafkaError(INVALID_REPLICA_ASSIGNMENT)."""
    lacking = _lacking(state, topic, configs, brokers)
    if lacking:
        raise bad_assignment(f"{_named(lacking)} cannot host a compacted topic with remote storage ({_remedy()})")


def check_too_few(state: ControllerState, topic: str, configs: Mapping[str, str], replicas: int) -> None:
    """Raise KafkaError(INVALID_REPLICATION_FACTOR) if too few brokers can host the topic; the message names them."""
    lacking = _lacking(state, topic, configs, state.image.brokers)
    able = len(state.image.brokers) - len(lacking)
    if lacking and replicas > able:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Cannot place {replicas} replica(s) of a compacted topic with remote storage: {able} "
            "broker(s) can host one, "
            f"{_named(lacking)} cannot ({_remedy()}).",
        )


def check_change(
    state: ControllerState, topic: TopicImage, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Check a change of a topic's configs. Raises KafkaError(INVALID_CONFIG) if a broker that hosts it no longer
    could."""
    if not needs_ability(topic.name, after) or needs_ability(topic.name, before):
        return
    hosts = {broker for partition in topic.partitions.values() for broker in partition.replicas}
    lacking = _lacking(state, topic.name, after, hosts)
    if lacking:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{_named(lacking)} of topic {topic.name} cannot host a compacted topic with remote storage ({_remedy()}).",
        )


def hosted_without_ability(
    state: ControllerState, broker: int, features: Mapping[str, tuple[int, int]]
) -> tuple[str, int] | None:
    """Return a partition that a broker with these ``features`` hosts and must not; None if there is none."""
    if offers_ability(features):
        return None
    for (kind, name), configs in state.image.configs.items():
        topic = state.image.topics.get(name) if kind == TOPIC_RESOURCE and ENABLE in configs else None
        if topic is None or not needs_ability(name, configs):
            continue
        for number, partition in topic.partitions.items():
            if broker in partition.replicas:
                return name, number
    return None


def _lacking(state: ControllerState, topic: str, configs: Mapping[str, str], brokers: Iterable[int]) -> Sequence[int]:
    if not needs_ability(topic, configs):
        return ()
    known = state.image.brokers
    return sorted(broker for broker in brokers if broker in known and not is_able(known[broker]))


def _named(brokers: Sequence[int]) -> str:
    names = ", ".join(map(str, brokers[:_NAMED]))
    return f"broker(s) {names}" + (f" and {len(brokers) - _NAMED} more" if len(brokers) > _NAMED else "")


def _remedy() -> str:
    return f"that needs Milena with {COMPACTION_ENABLE}=true"
