"""Registrations of other controllers are removed (``ClusterControlManager.unregisterController``)."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.controller.commands.controllers import unregister
from milena.controller.rules.record_checks import check_records
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.metadata_records import RegisterControllerRecord, UnregisterControllerRecord
from milena.protocol.types import Offset
from tests.unit.controller.cluster import Cluster

OTHER = 3007


def test_another_controller_is_unregistered() -> None:
    cluster = Cluster()
    cluster.write([RegisterControllerRecord(controller_id=OTHER, incarnation_id=UUID(int=1))])
    cluster.commit(unregister(cluster.state, OTHER))
    assert OTHER not in cluster.state.image.controllers


@pytest.mark.parametrize(
    ("controller", "level", "code"),
    [
        (OTHER, 33, ErrorCode.CONTROLLER_ID_NOT_REGISTERED),
        (OTHER, 32, ErrorCode.UNSUPPORTED_VERSION),
        (None, 33, ErrorCode.INVALID_REQUEST),
        (None, 32, ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_active_controller_and_unknown_ones_are_refused(
    controller: int | None, level: int, code: ErrorCode
) -> None:
    cluster = Cluster(features={"metadata.version": level})
    with pytest.raises(KafkaError) as error:
        unregister(cluster.state, cluster.state.config.node_id if controller is None else controller)
    assert error.value.code is code


def test_a_record_of_an_unknown_controller_breaks_an_invariant() -> None:
    cluster = Cluster()
    with pytest.raises(BrokenInvariant, match="controller 3007 is unregistered but unknown"):
        check_records(cluster.state.image, [UnregisterControllerRecord(controller_id=OTHER)], Offset(9))
