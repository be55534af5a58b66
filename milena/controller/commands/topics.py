"""Creating topics and partitions: checks, placement, records (KIP-4, KIP-195, KIP-516).

Each topic of a request is accepted or rejected by itself; the records of all accepted ones form one batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from milena.controller.commands import configs
from milena.controller.rules.leader_choice import initial_isr
from milena.controller.rules.placement import UsableBroker, bad_assignment, check_assignment, place
from milena.controller.rules.tiered_hosts import check_hosts, check_too_few, is_able, needs_ability
from milena.controller.state.result import MAX_RECORDS_PER_BATCH, Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import TOPIC_RESOURCE, BrokerImage, TopicImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import MetadataRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from milena.protocol.requests.repeated import repeated_in
from milena.protocol.topic_names import collision_key, topic_name_problem
from milena.protocol.types import METADATA_TOPIC, NodeId
from milena.runtime.randomness import Randomness

DEFAULT: Final = -1
"""Partitions and replication factor of a request that leaves them to the broker's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic of a CreateTopics request. ``assignments``: (partition, replicas). A config value of None is an error."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[NodeId]]] = ()
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    id: UUID
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic of a CreatePartitions request: the new partition count, and the replicas of the added partitions."""

    topic: str
    count: int
    assignments: Sequence[Sequence[NodeId]] | None = None


def create_topics(
    state: ControllerState, requested: Sequence[NewTopic], random: Randomness, *, validate_only: bool = False
) -> Result[list[tuple[str, CreatedTopic | KafkaError]]]:
    """Create each topic. Outcomes are in the order of the request, followed by names that were in it twice.

    Raises KafkaError(POLICY_VIOLATION) if the request as a whole asks for too many partitions.
    """
    names = [topic.name for topic in requested]
    twice = repeated_in(names)
    single = [topic for topic in requested if topic.name not in twice]
    _check_total(state, single)
    # Names that differ only in "." and "_" would share names of metrics. The map of all topics is built only if needed.
    may_collide = any("." in name or "_" in name for name in names)
    colliding = {collision_key(name): name for name in state.image.topics} if may_collide else {}
    records: list[MetadataRecord] = []
    outcomes: list[tuple[str, CreatedTopic | KafkaError]] = []
    for topic in single:
        try:
            _check_new_name(state, topic.name, colliding)
            made, created = _create(state, topic, random)
        except KafkaError as error:
            outcomes.append((topic.name, error.without_traceback()))
        else:
            records += made
            outcomes.append((topic.name, created))
    for name in sorted(twice):
        outcomes.append((name, KafkaError(ErrorCode.INVALID_REQUEST, f"Topic {name!r} is in the request twice.")))
    if len(records) > MAX_RECORDS_PER_BATCH:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"The request needs more than {MAX_RECORDS_PER_BATCH} records.")
    return Result(() if validate_only else records, outcomes)


def create_partitions(
    state: ControllerState, requested: Sequence[NewPartitions], random: Randomness, *, validate_only: bool = False
) -> Result[list[tuple[str, KafkaError | None]]]:
    """Increase the partition counts of topics; outcomes as in ``create_topics``."""
    twice = repeated_in(topic.topic for topic in requested)
    records: list[MetadataRecord] = []
    outcomes: list[tuple[str, KafkaError | None]] = [
        (name, KafkaError(ErrorCode.INVALID_REQUEST, f"Topic {name!r} is in the request twice."))
        for name in sorted(twice)
    ]
    for topic in requested:
        if topic.topic in twice:
            continue
        try:
            records += _grow(state, topic, random)
        except KafkaError as error:
            outcomes.append((topic.topic, error.without_traceback()))
        else:
            outcomes.append((topic.topic, None))
        if len(records) > MAX_RECORDS_PER_BATCH:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"The request needs more than {MAX_RECORDS_PER_BATCH} records."
            )
    return Result(() if validate_only else records, outcomes)


def _check_total(state: ControllerState, requested: Sequence[NewTopic]) -> None:
    total = 0
    for topic in requested:
        default = state.config.get_int("num.partitions") if topic.partitions == DEFAULT else max(topic.partitions, 0)
        total += len(topic.assignments) or default
    if total > MAX_RECORDS_PER_BATCH:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{total} partitions in one request are more than {MAX_RECORDS_PER_BATCH}."
        )


def _check_new_name(state: ControllerState, name: str, colliding: Mapping[str, str]) -> None:
    if name == METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The internal topic {name} cannot be created.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{problem[0].upper()}{problem[1:]}.")
    if name in state.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists.")
    other = colliding.get(collision_key(name))
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic {name!r} collides with the existing topic {other!r}."
        )


def _create(state: ControllerState, topic: NewTopic, random: Randomness) -> tuple[list[MetadataRecord], CreatedTopic]:
    missing = [key for key, value in topic.configs.items() if value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"These configs have no value: {', '.join(missing)}.")
    values = {key: value for key, value in topic.configs.items() if value is not None}
    config_records = configs.creation_records(state, topic.name, values) if values else []
    replicas = _assigned(state, topic, values) if topic.assignments else _placed(state, topic, values, random)
    topic_id = random.uuid()
    records = [TopicRecord(name=topic.name, topic_id=topic_id), *config_records]
    for number, chosen in enumerate(replicas):
        records.append(_partition_record(state, topic_id, number, chosen, assigned=bool(topic.assignments)))
    return records, CreatedTopic(topic_id, len(replicas), len(replicas[0]))


def _placed(
    state: ControllerState, topic: NewTopic, values: Mapping[str, str], random: Randomness
) -> list[list[NodeId]]:
    replicas = topic.replication_factor
    if replicas < DEFAULT or replicas == 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor must be positive.")
    if topic.partitions < DEFAULT or topic.partitions == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "The number of partitions must be positive.")
    return _place(
        state,
        topic.name,
        values,
        state.config.get_int("num.partitions") if topic.partitions == DEFAULT else topic.partitions,
        state.config.get_int("default.replication.factor") if replicas == DEFAULT else replicas,
        random,
    )


def _place(
    state: ControllerState,
    topic: str,
    values: Mapping[str, str],
    partitions: int,
    replicas: int,
    random: Randomness,
) -> list[list[NodeId]]:
    """Place replicas by the topic's own configuration ``values`` and the cluster's brokers."""
    check_too_few(state, topic, values, replicas)
    for_any = not needs_ability(topic, values)
    usable = (
        UsableBroker(broker.id, broker.rack, broker.fenced)
        for broker in state.image.brokers.values()
        if state.sessions.progress(broker.id).shutdown_offset is None
        and _takes_replicas(broker)
        and (for_any or is_able(broker))
    )
    placed = place(usable, partitions=partitions, replicas=replicas, random=random)
    return [[NodeId(broker) for broker in chosen] for chosen in placed]


def _takes_replicas(broker: BrokerImage) -> bool:
    return broker.cordoned is None or not broker.log_dirs or not set(broker.log_dirs) <= set(broker.cordoned)


def _assigned(state: ControllerState, topic: NewTopic, values: Mapping[str, str]) -> list[Sequence[NodeId]]:
    """Return the replicas that the request names, by partition, after all checks."""
    if topic.replication_factor != DEFAULT or topic.partitions != DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "With assignments, partitions and replication factor must be -1.")
    by_number: dict[int, Sequence[NodeId]] = {}
    for number, replicas in topic.assignments:
        if number in by_number:
            raise bad_assignment(f"partition {number} is assigned twice")
        first = next(iter(by_number.values()), replicas)
        check_assignment(state.image.brokers, replicas, len(first))
        check_hosts(state, topic.name, values, replicas)
        by_number[number] = replicas
    if sorted(by_number) != list(range(len(by_number))):
        raise bad_assignment("the partitions are not numbered from 0 without a gap")
    return [by_number[number] for number in range(len(by_number))]


def _grow(state: ControllerState, requested: NewPartitions, random: Randomness) -> list[PartitionRecord]:
    topic = state.image.topics.get(requested.topic)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if requested.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {topic.name!r} has {present} partition(s) already; {requested.count} is not an increase.",
        )
    additional = requested.count - present
    if additional > MAX_RECORDS_PER_BATCH:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{additional} partitions are too many for one request.")
    assignments, values = requested.assignments, state.image.config(TOPIC_RESOURCE, topic.name)
    if assignments is None:
        factor = _replication_factor(topic)
        chosen: Sequence[Sequence[NodeId]] = _place(state, topic.name, values, additional, factor, random)
    else:
        if len(assignments) != additional:
            raise bad_assignment(f"{additional} partition(s) are added, but {len(assignments)} assigned")
        for replicas in assignments:
            check_assignment(state.image.brokers, replicas, _replication_factor(topic))
            check_hosts(state, topic.name, values, replicas)
        chosen = assignments
    return [
        _partition_record(state, topic.id, present + index, replicas, assigned=assignments is not None)
        for index, replicas in enumerate(chosen)
    ]


def _replication_factor(topic: TopicImage) -> int:
    return len(next(iter(topic.partitions.values())).replicas)


def _partition_record(
    state: ControllerState, topic_id: UUID, number: int, replicas: Sequence[NodeId], *, assigned: bool
) -> PartitionRecord:
    brokers = state.image.brokers
    isr = initial_isr([broker for broker in replicas if brokers[broker].active])
    if not isr:
        if assigned:
            raise bad_assignment(f"no broker of partition {number} is active")
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Every broker is fenced or shutting down.")
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=tuple(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=_directories(state, replicas),
    )


def _directories(state: ControllerState, replicas: Sequence[NodeId]) -> tuple[UUID, ...]:
    if not state.directories_supported:
        return ()
    return tuple(state.default_directory(broker) for broker in replicas)


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
        elif found.id in by_id:  # one topic, named in both ways: neither entry counts
            deletions.pop(found.id, None)
            outcomes.append(_refused(DoomedTopic(name, found.id), "The topic is also given by its id."))
        else:
            deletions[found.id] = Deletion(name, found.id)
    if len(deletions) > MAX_RECORDS_PER_BATCH:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{len(deletions)} topics are too many for one request.")
    return Result([RemoveTopicRecord(topic_id=topic_id) for topic_id in deletions], [*outcomes, *deletions.values()])


def _refused(topic: DoomedTopic, why: str) -> Deletion:
    return Deletion(topic.name, topic.id, KafkaError(ErrorCode.INVALID_REQUEST, why))
