"""Changes the levels of a broker's loggers (KIP-412: IncrementalAlterConfigs of BROKER_LOGGER).

Levels are not stored: after a restart they are those of the command line. Brokers of one process share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NodeId
from milena.runtime.log_levels import NUMBERS, ROOT, current_levels, set_level
from milena.runtime.numbers import whole
from milena.runtime.tcp.hosts import shown

if TYPE_CHECKING:
    from milena.protocol.apis import IncrementalAlterConfigsAlterableConfig, IncrementalAlterConfigsAlterConfigsResource

SET: Final = 0
DELETE: Final = 1


def change_levels(
    node_id: NodeId, resource: IncrementalAlterConfigsAlterConfigsResource, *, validate_only: bool
) -> None:
    """Apply all changes of the resource, or none if one is invalid. Raises KafkaError INVALID_REQUEST,
    INVALID_CONFIG."""
    name = resource.resource_name
    if whole(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node {node_id} cannot change the loggers of node {shown(name)}.")
    known = current_levels()
    for change in resource.configs:
        _check(change, known)
    if not validate_only:
        for change in resource.configs:
            set_level(change.name, change.value if change.config_operation == SET else None)


def _check(change: IncrementalAlterConfigsAlterableConfig, known: dict[str, str]) -> None:
    if change.config_operation not in (SET, DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A logger's level can only be set or deleted.")
    if change.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"There is no logger {change.name}.")
    if change.config_operation == DELETE:
        if change.name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The level of root cannot be deleted.")
    elif change.value not in NUMBERS:
        levels = ", ".join(sorted(NUMBERS))
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"{change.value} is not a level; {change.name} takes one of {levels}."
        )
