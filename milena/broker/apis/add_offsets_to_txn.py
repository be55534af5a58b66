"""AddOffsetsToTxn (key 25), versions 0-4: add the group's partition of ``__consumer_offsets`` to a transaction.

Clients of transaction version 2 do not send it. KIPs: 98, 588 (v2: PRODUCER_FENCED), 890 (v4: TRANSACTION_ABORTABLE).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.transactions.model import fenced_code
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import OFFSETS_TOPIC, ProducerEpoch, ProducerIdAndEpoch

if TYPE_CHECKING:
    from milena.broker.controller_link.auto_create import AutoCreation
    from milena.broker.groups.coordinator import GroupCoordinator
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.node.metadata.image import MetadataImage
    from milena.protocol.apis import AddOffsetsToTxnRequest, AddOffsetsToTxnResponseFields

_FENCED_SINCE: Final = 2


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def auto_create(self) -> AutoCreation: ...
    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...


def handle(node: Needs, ctx: RequestContext, request: AddOffsetsToTxnRequest) -> None:
    """Raises KafkaError, in particular COORDINATOR_LOAD_IN_PROGRESS if this broker does not know
    ``__consumer_offsets``, which it creates. Kafka adds the partition nevertheless. But if the metadata of this broker
    are still older when the transaction ends, the partition counts as deleted: it gets no marker, and the committed
    offsets are lost."""

    @ctx.answering
    def done(error: ErrorCode) -> None:
        ctx.respond_fields(error_code=fenced_code(error, ctx.version, _FENCED_SINCE))

    producer = ProducerIdAndEpoch(request.producer_id, ProducerEpoch(request.producer_epoch))
    if OFFSETS_TOPIC not in node.image.topics:
        node.transactions.verify_partitions(request.transactional_id, producer, ())
        node.auto_create.create_internal([OFFSETS_TOPIC])
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topic of the offsets is being created")
    partition = OFFSETS_TOPIC, node.groups.partition_for(request.group_id)
    node.transactions.add_partitions(request.transactional_id, producer, [partition], 0, done)


def failed(ctx: RequestContext, request: AddOffsetsToTxnRequest, error: KafkaError) -> AddOffsetsToTxnResponseFields:
    return {"error_code": fenced_code(error.code, ctx.version, _FENCED_SINCE)}
