"""ListPartitionReassignments (key 46), version 0: ongoing reassignments of the given partitions, or of all (null).

Differs from Kafka: uncommitted changes are included. KIP-455.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.controller.commands.reassignment import ongoing
from milena.node.api import RequestContext

if TYPE_CHECKING:
    from milena.controller.state.state import ControllerState
    from milena.protocol.apis import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponseFields


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def state(self) -> ControllerState: ...


def handle(
    node: Needs, ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponseFields:
    topics = request.topics
    requested = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    return {
        "error_code": 0,
        "error_message": None,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": number,
                        "replicas": partition.replicas,
                        "adding_replicas": partition.adding,
                        "removing_replicas": partition.removing,
                    }
                    for number, partition in partitions
                ],
            }
            for name, partitions in ongoing(node.state, requested)
        ],
    }
