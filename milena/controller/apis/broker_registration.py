"""BrokerRegistration (key 62), versions 0-4: register a broker incarnation, or update its registration.

v1 ZooKeeper migration (refused), v2 log directories, v3 the epoch of a clean shutdown, v4 as v3.
KIPs: 631, 858, 866, 966.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from milena.controller.commands.brokers import Registration, register
from milena.controller.state.result import Committing
from milena.node.api import Reply, RequestContext
from milena.node.metadata.image import ListenerImage
from milena.protocol.errors import KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import ZERO_UUID, NodeId

if TYPE_CHECKING:
    from milena.controller.background import Background
    from milena.protocol.apis import (
        BrokerRegistrationListener,
        BrokerRegistrationRequest,
        BrokerRegistrationResponseFields,
    )

CLEAN_SHUTDOWN_SINCE: Final = 3


class Needs(Committing, Protocol):
    """What this handler uses of its controller."""

    @property
    def background(self) -> Background: ...
    def now(self) -> float: ...


def handle(
    node: Needs, ctx: RequestContext, request: BrokerRegistrationRequest
) -> Reply[BrokerRegistrationResponseFields]:
    registration = Registration(
        broker_id=NodeId(request.broker_id),
        cluster_id=request.cluster_id,
        incarnation=request.incarnation_id or ZERO_UUID,
        endpoints=_endpoints(request.listeners),
        features={f.name: (f.min_supported_version, f.max_supported_version) for f in request.features},
        rack=request.rack,
        log_dirs=tuple(directory or ZERO_UUID for directory in messages.get(request, "log_dirs", ())),
        migrating=messages.get(request, "is_migrating_zk_broker", False),
        previous_epoch=request.previous_broker_epoch if ctx.version >= CLEAN_SHUTDOWN_SINCE else None,
    )
    node.background.before_registration(registration, ctx.client_host)
    try:
        result = register(node.state, registration, node.now())
    except KafkaError as error:
        node.background.registration_rejected(registration, error)
        raise
    return node.commit(result, _answer)


def _answer(epoch: int) -> BrokerRegistrationResponseFields:
    return {"error_code": 0, "broker_epoch": epoch}


def _endpoints(listeners: Iterable[BrokerRegistrationListener]) -> tuple[ListenerImage, ...]:
    """The listeners by name; the last of two with one name counts, as in Kafka."""
    by_name = {e.name: ListenerImage(e.name, e.host, e.port, e.security_protocol) for e in listeners}
    return tuple(by_name.values())
