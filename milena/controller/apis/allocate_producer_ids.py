"""AllocateProducerIds (key 67), version 0: a block of 1,000 producer ids for a broker. KIP-730."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any

from milena.controller.commands.producer_ids import allocate
from milena.node.api import RequestContext

if TYPE_CHECKING:
    from milena.controller.state.committing import Committing


def handle(node: Committing, ctx: RequestContext, request: Any) -> Mapping[str, Any] | Awaitable[Mapping[str, Any]]:
    return node.commit(allocate(node.state, request.broker_id, request.broker_epoch), _answer)


def _answer(block: range) -> dict[str, Any]:
    return {"error_code": 0, "producer_id_start": block.start, "producer_id_len": len(block)}
