"""BrokerHeartbeat (key 63), versions 0-2: keeps a broker's session; asks to be fenced, unfenced or shut down.

v1 offline log directories, v2 cordoned ones. A heartbeat that changes nothing is answered without waiting for the disk.
KIPs: 631, 858, 1066.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from milena.controller.commands.heartbeats import Heartbeat, HeartbeatReply, heartbeat
from milena.controller.state.result import Committing
from milena.node.api import Reply, RequestContext
from milena.protocol.requests import messages
from milena.protocol.types import ZERO_UUID, NodeId

if TYPE_CHECKING:
    from milena.controller.background import Background
    from milena.protocol.apis import BrokerHeartbeatRequest, BrokerHeartbeatResponseFields


class Needs(Committing, Protocol):
    """What this handler uses of its controller."""

    @property
    def background(self) -> Background: ...
    def now(self) -> float: ...


def handle(node: Needs, ctx: RequestContext, request: BrokerHeartbeatRequest) -> Reply[BrokerHeartbeatResponseFields]:
    cordoned = messages.get(request, "cordoned_log_dirs", None)
    beat = Heartbeat(
        broker_id=NodeId(request.broker_id),
        broker_epoch=request.broker_epoch,
        metadata_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shutdown=request.want_shut_down,
        offline_dirs=tuple(directory or ZERO_UUID for directory in messages.get(request, "offline_log_dirs", ())),
        cordoned_dirs=None if cordoned is None else tuple(directory or ZERO_UUID for directory in cordoned),
    )
    result = heartbeat(node.state, beat, node.now())
    answer = node.commit(result, _answer)
    node.background.heartbeat_received(beat.broker_id, beat.broker_epoch, ctx.caller)
    return answer


def _answer(reply: HeartbeatReply) -> BrokerHeartbeatResponseFields:
    return {
        "error_code": 0,
        "is_caught_up": reply.caught_up,
        "is_fenced": reply.fenced,
        "should_shut_down": reply.should_shut_down,
    }
