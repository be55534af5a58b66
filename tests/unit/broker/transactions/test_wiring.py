"""The connections of a broker for transactions."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from milena.broker.transaction_wiring import OwnCoordinator, TransactionParts
from milena.node.metadata.image import BrokerImage
from milena.protocol.types import BrokerEpoch, NodeId


class HandLinks:
    """Connections to the brokers 1 to 3."""

    def __init__(self) -> None:
        self.kept = {1, 2, 3}

    def keep_only(self, is_kept: Callable[[NodeId], bool]) -> None:
        self.kept = {broker for broker in self.kept if is_kept(NodeId(broker))}


def registered(broker: int, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(NodeId(broker), BrokerEpoch(broker), UUID(int=broker), (), {}, fenced=fenced)


def test_requests_to_fenced_and_unregistered_brokers_are_given_up() -> None:
    markers, verifications, unused = HandLinks(), HandLinks(), Any
    links: Any = (markers, verifications)
    parts = TransactionParts(unused, unused, unused, unused, links)  # type: ignore[arg-type]
    parts.brokers_changed({NodeId(1): registered(1), NodeId(2): registered(2, fenced=True)})
    assert markers.kept == verifications.kept == {1}


def test_the_own_coordinator_is_asked_with_a_request_while_there_are_fault_rules() -> None:
    broker: Any = SimpleNamespace(node_id=NodeId(1), rules=SimpleNamespace(active=False))
    own = OwnCoordinator(broker, Any)  # type: ignore[arg-type]
    assert own.is_asked(NodeId(1)) and not own.is_asked(NodeId(2))
    broker.rules.active = True
    assert not own.is_asked(NodeId(1))
