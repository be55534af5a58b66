"""AllocateProducerIds (key 67), version 0: a block of 1,000 producer ids for a broker. KIP-730."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.producer_ids import allocate
from milena.node.api import Reply, RequestContext

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import AllocateProducerIdsRequest, AllocateProducerIdsResponseFields


def handle(
    node: Committing, ctx: RequestContext, request: AllocateProducerIdsRequest
) -> Reply[AllocateProducerIdsResponseFields]:
    return node.commit(allocate(node.state, request.broker_id, request.broker_epoch), _answer)


def _answer(block: range) -> AllocateProducerIdsResponseFields:
    return {"error_code": 0, "producer_id_start": block.start, "producer_id_len": len(block)}
