"""Registrations of controllers (KIP-919; ``ClusterControlManager.unregisterController`` of Kafka 4.4)."""

from __future__ import annotations

from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import CONTROLLER_UNREGISTRATION, METADATA_VERSION
from milena.protocol.metadata_records import UnregisterControllerRecord


def unregister(state: ControllerState, controller_id: int) -> Result[None]:
    """Remove the registration of another controller. Raises KafkaError: INVALID_REQUEST for this controller, which is
    active, UNSUPPORTED_VERSION below metadata.version 33, CONTROLLER_ID_NOT_REGISTERED."""
    if controller_id == state.config.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if state.image.features.get(METADATA_VERSION, 0) < CONTROLLER_UNREGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if controller_id not in state.image.controllers:
        raise KafkaError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered."
        )
    return Result((UnregisterControllerRecord(controller_id=controller_id),), None)
