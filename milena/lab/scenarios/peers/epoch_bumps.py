"""A controller with the alternative that KIP-903 rejects: when a broker registers, the leader epochs of all partitions
with a replica on it are incremented. AlterPartition has no broker epochs (version 2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from milena.controller.server import Controller
from milena.controller.state.result import Result
from milena.node.api import Fields
from milena.node.metadata.image import MetadataImage
from milena.protocol.metadata_records import (
    NO_LEADER_CHANGE,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)

T = TypeVar("T")
F = TypeVar("F", bound=Fields)


class BumpsEpochs(Controller):
    """Adds the changes to the records of each registration of a new incarnation."""

    def commit(self, result: Result[T], answer: Callable[[T], F]) -> F | Awaitable[F]:
        image, records = self.state.image, result.records
        bumps: list[MetadataRecord] = []
        for record in records:
            if isinstance(record, RegisterBrokerRecord):
                known = image.brokers.get(record.broker_id)
                if known is None or known.incarnation != record.incarnation_id:
                    bumps += _bumps(image, record.broker_id, records)
        return super().commit(replace(result, records=(*records, *bumps)), answer)


def _bumps(image: MetadataImage, broker: int, records: Sequence[MetadataRecord]) -> Iterator[PartitionChangeRecord]:
    """Yield a change of each partition with a replica on ``broker`` that names the same leader, except for partitions
    that get another leader in ``records``."""
    elected = {
        (one.topic_id, one.partition_id)
        for one in records
        if isinstance(one, PartitionChangeRecord) and one.leader != NO_LEADER_CHANGE
    }
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            if broker in partition.replicas and (topic.id, number) not in elected:
                yield PartitionChangeRecord(partition_id=number, topic_id=topic.id, leader=partition.leader)
