"""A controller with the second idea of KIP-279 for clean elections alone: a preferred election pushes the former leader
out of the ISR, so that it cannot lead again before it has caught up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from milena.controller.server import Controller
from milena.controller.state.result import Result
from milena.node.api import Fields
from milena.node.metadata.image import NO_LEADER, MetadataImage
from milena.protocol.metadata_records import NO_LEADER_CHANGE, MetadataRecord, PartitionChangeRecord

T = TypeVar("T")
F = TypeVar("F", bound=Fields)


class PushesLeadersOut(Controller):
    """Removes the former leader from the ISR in the record that names another leader."""

    def commit(self, result: Result[T], answer: Callable[[T], F]) -> F | Awaitable[F]:
        image = self.state.image
        records = [_without_former_leader(image, record) for record in result.records]
        return super().commit(replace(result, records=records), answer)


def _without_former_leader(image: MetadataImage, record: MetadataRecord) -> MetadataRecord:
    if not isinstance(record, PartitionChangeRecord) or record.leader in (NO_LEADER_CHANGE, NO_LEADER):
        return record
    topic = image.topics_by_id.get(record.topic_id)
    before = None if topic is None else topic.partitions.get(record.partition_id)
    if before is None or before.leader in (NO_LEADER, record.leader):
        return record
    isr = before.isr if record.isr is None else record.isr
    return replace(record, isr=tuple(member for member in isr if member != before.leader))
