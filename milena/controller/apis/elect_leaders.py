"""ElectLeaders (key 43), versions 0-2: preferred or unclean elections for the given partitions, or for all (null).

v1 unclean elections and a top-level error. An empty list elects nothing. KIPs: 183, 460.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.controller.commands.leader_elections import Elections, ElectionType, elect_leaders
from milena.node.api import Reply, RequestContext
from milena.protocol.errors import KafkaError
from milena.protocol.requests import messages

if TYPE_CHECKING:
    from milena.controller.state.result import Committing
    from milena.protocol.apis import ElectLeadersRequest, ElectLeadersResponseFields


def handle(node: Committing, ctx: RequestContext, request: ElectLeadersRequest) -> Reply[ElectLeadersResponseFields]:
    if request.topic_partitions is not None and not request.topic_partitions:
        return _answer([])
    kind = messages.get(request, "election_type", ElectionType.PREFERRED)
    partitions = request.topic_partitions
    requested = None if partitions is None else [(topic.topic, topic.partitions) for topic in partitions]
    return node.commit(elect_leaders(node.state, kind, requested), _answer)


def failed(ctx: RequestContext, request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponseFields:
    outcomes: Elections = [
        (topic.topic, [(number, error) for number in topic.partitions]) for topic in request.topic_partitions or ()
    ]
    return {**_answer(outcomes), "error_code": int(error.code)}


def _answer(outcomes: Elections) -> ElectLeadersResponseFields:
    return {
        "error_code": 0,
        "replica_election_results": [
            {
                "topic": topic,
                "partition_result": [
                    {
                        "partition_id": number,
                        "error_code": int(error.code) if error else 0,
                        "error_message": error.text if error else None,
                    }
                    for number, error in results
                ],
            }
            for topic, results in outcomes
        ],
    }
