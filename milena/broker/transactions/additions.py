"""Adds partitions to a transaction, or verifies that it has them: for AddPartitionsToTxn, and for the batches that the
coordinator's own broker appends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.node.metadata.image import MetadataImage

Added: TypeAlias = Callable[[Mapping[TopicPartition, ErrorCode]], None]
"""Receives the error of each partition."""


def add_or_verify(
    coordinator: TransactionCoordinator,
    image: MetadataImage,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Mapping[TopicPartition, None],
    done: Added,
    *,
    verify_only: bool,
    client_version: int,
) -> None:
    """``done`` is called when the record of the transaction is committed or refused, possibly within this call."""

    def all_with(error: ErrorCode) -> None:
        done(dict.fromkeys(partitions, error))

    topics = image.topics
    unknown = {
        (topic, index) for topic, index in partitions if topic not in topics or index not in topics[topic].partitions
    }
    if unknown:
        done(
            {
                one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if one in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
                for one in partitions
            }
        )
        return
    try:
        if verify_only:
            done(coordinator.verify_partitions(transactional_id, producer, partitions.keys()))
        else:
            coordinator.add_partitions(transactional_id, producer, partitions.keys(), client_version, all_with)
    except KafkaError as error:
        all_with(error.code)


def size_of(coordinator: TransactionCoordinator, transactional_id: str, *, verify_only: bool) -> int:
    """The number of partitions in the transaction: a record of all of them may have been written."""
    if verify_only:
        return 0
    try:
        present = coordinator.find(transactional_id)
    except KafkaError:
        return 0
    return 0 if present is None else len(present.partitions)
