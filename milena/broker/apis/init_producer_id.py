"""InitProducerId (key 22), versions 0-6: a producer id and epoch for an idempotent or transactional producer.

KIPs: 98, 360 (v3: a producer that continues), 588 (v4: PRODUCER_FENCED), 939 (v6: two-phase commit).
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.transactions.decisions import NoProducerIds
from milena.broker.transactions.model import fenced_code
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get
from milena.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, ProducerIdAndEpoch

if TYPE_CHECKING:
    from milena.broker.controller_link.producer_ids import ProducerIds
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.protocol.apis import InitProducerIdRequest, InitProducerIdResponseFields

_FENCED_SINCE: Final = 4


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def producer_ids(self) -> ProducerIds: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...


def handle(
    node: Needs, ctx: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponseFields | Awaitable[InitProducerIdResponseFields | None] | None:
    producer_id = ProducerId(get(request, "producer_id", NO_PRODUCER_ID))
    epoch = ProducerEpoch(get(request, "producer_epoch", NO_PRODUCER_EPOCH))
    if (producer_id == NO_PRODUCER_ID) != (epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a request must have both a producer id and an epoch, or neither")
    transactional_id = request.transactional_id
    if transactional_id is None:
        return _idempotent(node)
    expected = None if producer_id == NO_PRODUCER_ID else ProducerIdAndEpoch(producer_id, epoch)

    @ctx.answering
    def done(error: ErrorCode, producer: ProducerIdAndEpoch) -> None:
        code = fenced_code(error, ctx.version, _FENCED_SINCE)
        ctx.respond_fields(error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)

    step = partial(
        node.transactions.init_producer_id,
        transactional_id,
        request.transaction_timeout,
        expected,
        done,
        two_phase_commit=get(request, "enable2_pc", False),
        keep_prepared=get(request, "keep_prepared_txn", False),
    )
    try:
        step()
    except NoProducerIds:
        return node.transactions.with_producer_ids(step)
    return None


async def _idempotent(node: Needs) -> InitProducerIdResponseFields:
    return {"error_code": 0, "producer_id": await node.producer_ids.next(), "producer_epoch": 0}


def failed(ctx: RequestContext, request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponseFields:
    code = fenced_code(error.code, ctx.version, _FENCED_SINCE)
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
