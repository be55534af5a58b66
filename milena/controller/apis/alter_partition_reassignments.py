"""AlterPartitionReassignments (key 45), versions 0-1: start, change or cancel reassignments of replicas.

v1 allow_replication_factor_change. KIPs: 455, 860.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.reassignment import Reassigned, Target, alter_reassignments
from milena.node.api import Reply, RequestContext
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponseFields


def handle(
    node: Committing, ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Reply[AlterPartitionReassignmentsResponseFields]:
    allowed = messages.get(request, "allow_replication_factor_change", True)
    requested = [
        (topic.name, [Target(p.partition_index, p.replicas) for p in topic.partitions]) for topic in request.topics
    ]
    result = alter_reassignments(node.state, requested, allow_factor_change=allowed)
    return node.commit(result, lambda outcomes: _answer(outcomes, allowed=allowed))


def _answer(outcomes: Reassigned, *, allowed: bool) -> AlterPartitionReassignmentsResponseFields:
    return {
        "error_code": 0,
        "error_message": None,
        "allow_replication_factor_change": allowed,
        "responses": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": int(error.code) if error else 0,
                        "error_message": error.text if error else None,
                    }
                    for number, error in results
                ],
            }
            for topic, results in outcomes
        ],
    }
