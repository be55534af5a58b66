"""EndTxn (key 26), versions 0-5: commit or abort a transaction.

KIPs: 98, 588 (v2: PRODUCER_FENCED), 890 (v5: the epoch of the next transaction in the response).
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from milena.broker.transactions.decisions import NoProducerIds
from milena.broker.transactions.model import fenced_code
from milena.node.api import RequestContext
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import EPOCH_BUMP_VERSION
from milena.protocol.types import NO_PRODUCER, ProducerEpoch, ProducerIdAndEpoch

if TYPE_CHECKING:
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.protocol.apis import EndTxnRequest, EndTxnResponseFields

_FENCED_SINCE: Final = 2
_BUMPS_SINCE: Final = 5


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def transactions(self) -> TransactionCoordinator: ...


def handle(node: Needs, ctx: RequestContext, request: EndTxnRequest) -> Awaitable[None] | None:
    """The response is sent when the outcome is decided: markers are written after it."""

    @ctx.answering
    def done(error: ErrorCode, producer: ProducerIdAndEpoch) -> None:
        ctx.respond_fields(**_response(ctx, error, producer))

    step = partial(
        node.transactions.end,
        request.transactional_id,
        ProducerIdAndEpoch(request.producer_id, ProducerEpoch(request.producer_epoch)),
        request.committed,
        EPOCH_BUMP_VERSION if ctx.version >= _BUMPS_SINCE else 0,
        done,
    )
    try:
        step()
    except NoProducerIds:
        return node.transactions.with_producer_ids(step)
    return None


def failed(ctx: RequestContext, request: EndTxnRequest, error: KafkaError) -> EndTxnResponseFields:
    return _response(ctx, error.code, NO_PRODUCER)


def _response(ctx: RequestContext, error: ErrorCode, producer: ProducerIdAndEpoch) -> EndTxnResponseFields:
    code = fenced_code(error, ctx.version, _FENCED_SINCE)
    return {"error_code": code, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}
