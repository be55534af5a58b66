"""Leader elections on request (KIP-460) and those that the controller holds by itself (docs/kafka-semantics.md:
Partition changes).

Each function returns partition changes; a partition that needs no election, or has no candidate, is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from milena.controller.rules.broker_changes import change_of
from milena.controller.rules.leader_choice import Election, acceptance
from milena.controller.rules.partition_change import Targets
from milena.controller.state.partition_index import PartitionKey
from milena.controller.state.result import MAX_RECORDS_PER_BATCH, Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import NO_LEADER, PartitionImage, TopicImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import PartitionChangeRecord

MAX_ELECTIONS: Final = 1_000
"""Elections in one batch of the controller's own; the next batch follows at once."""


class ElectionType(IntEnum):
    """The election types of ElectLeaders requests."""

    PREFERRED = 0
    UNCLEAN = 1


_KINDS: Final = {ElectionType.PREFERRED: Election.PREFERRED, ElectionType.UNCLEAN: Election.UNCLEAN}

Elections: TypeAlias = list[tuple[str, list[tuple[int, KafkaError | None]]]]
"""By topic: each partition with its error, or None if its leader was elected."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a round of the controller's own elections. ``more``: the limit was reached before all were done."""

    elected: int
    more: bool


def elect_leaders(
    state: ControllerState, kind: int, partitions: Sequence[tuple[str, Sequence[int]]] | None
) -> Result[Elections]:
    """Elect leaders of these partitions. None means all; those that need no election are then not in the result.

    Raises KafkaError: INVALID_REQUEST for an unknown kind, POLICY_VIOLATION if too many would change.
    """
    try:
        election_type = ElectionType(kind)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The election type {kind} is unknown.") from None
    everything = partitions is None
    if partitions is None:
        partitions = [(topic.name, list(topic.partitions)) for topic in state.image.topics.values()]
    records: dict[PartitionKey, PartitionChangeRecord] = {}
    outcomes: Elections = []
    for name, numbers in partitions:
        results: list[tuple[int, KafkaError | None]] = []
        for number in numbers:
            error = _elect(state, name, number, election_type, records)
            # A request for all partitions is not answered with every partition that needs nothing.
            if not (everything and error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED):
                results.append((number, error))
        outcomes.append((name, results))
    if len(records) > MAX_RECORDS_PER_BATCH:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"The request needs more than {MAX_RECORDS_PER_BATCH} records.")
    return Result(list(records.values()), outcomes, atomic=False)


def _elect(
    state: ControllerState,
    name: str,
    number: int,
    kind: ElectionType,
    records: dict[PartitionKey, PartitionChangeRecord],
) -> KafkaError | None:
    topic = state.image.topics.get(name)
    partition = topic.partitions.get(number) if topic is not None else None
    if topic is None or partition is None:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{number}.")
    if kind is ElectionType.PREFERRED:
        needed, impossible = not partition.led_by_preferred, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        reason = f"The preferred replica of {name}-{number}, {partition.replicas[0]}, is not in sync or not active."
    else:
        needed, impossible = partition.leader == NO_LEADER, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        reason = f"No replica of {name}-{number} is active."
    if not needed:
        return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"Broker {partition.leader} leads {name}-{number} already.")
    change = election_change(state, topic, number, partition, _KINDS[kind])
    if change is None:
        return KafkaError(impossible, reason)
    records[topic.id, number] = change
    return None


def balance(state: ControllerState) -> Result[Swept]:
    """Elect the preferred replica of each partition that it does not lead and could lead."""
    return _sweep(state, state.index.imbalanced(), Election.PREFERRED)


def elect_unclean(state: ControllerState) -> Result[Swept]:
    """Elect any active replica for partitions without a leader whose configuration allows unclean elections."""
    allowed: dict[str, bool] = {}
    keys = []
    for key in state.index.leaderless():
        name = state.image.topics_by_id[key[0]].name
        if name not in allowed:
            allowed[name] = state.unclean_elections(name)
        if allowed[name]:
            keys.append(key)
    return _sweep(state, keys, Election.UNCLEAN)


def _sweep(state: ControllerState, keys: Iterable[PartitionKey], election: Election) -> Result[Swept]:
    records: list[PartitionChangeRecord] = []
    for topic_id, number in keys:
        if len(records) >= MAX_ELECTIONS:
            break
        topic = state.image.topics_by_id[topic_id]
        change = election_change(state, topic, number, topic.partitions[number], election)
        if change is not None:
            records.append(change)
    return Result(records, Swept(len(records), len(records) >= MAX_ELECTIONS), atomic=False)


def election_change(
    state: ControllerState, topic: TopicImage, number: int, partition: PartitionImage, election: Election
) -> PartitionChangeRecord | None:
    """Return the record of an election, or None if it changes nothing."""
    acceptable = acceptance(state.image.brokers, partition)
    change = change_of(state, topic, partition, acceptable, Targets(election=election))
    return None if change is None else change.record(topic.id, number)
