"""InitProducerId (key 22), versions 0-5: a new producer id for an idempotent producer.

Transactions are not supported yet. A producer with a transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the
one error code that every client treats as fatal; others are retried until the client's timeout. The broker logs the
reason. KIPs: 98, 360.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.broker.controller_link.transactions import HasClientLog, log_refusal
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.broker.controller_link.producer_ids import ProducerIds
    from milena.protocol.apis import InitProducerIdRequest, InitProducerIdResponseFields


class Needs(HasClientLog, Protocol):
    """What this handler uses of its broker."""

    @property
    def producer_ids(self) -> ProducerIds: ...


async def handle(node: Needs, ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponseFields:
    if (messages.get(request, "producer_id", -1) == -1) != (messages.get(request, "producer_epoch", -1) == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a request must have both a producer id and an epoch, or neither")
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        log_refusal(node, ctx, request.transactional_id)
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return {"error_code": 0, "producer_id": await node.producer_ids.next(), "producer_epoch": 0}


def failed(ctx: RequestContext, request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponseFields:
    return {"error_code": int(error.code), "producer_id": -1, "producer_epoch": -1}
