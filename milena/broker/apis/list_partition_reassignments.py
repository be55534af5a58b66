"""ListPartitionReassignments (key 46), version 0: forwarded to the controller."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from milena.broker.controller_link.forwarding import forward
from milena.node.api import RequestContext

if TYPE_CHECKING:
    from milena.broker.controller_link.forwarding import Forwarding
    from milena.protocol.apis import ListPartitionReassignmentsRequest


def handle(node: Forwarding, ctx: RequestContext, request: ListPartitionReassignmentsRequest) -> Awaitable[None]:
    return forward(node, ctx, request)
