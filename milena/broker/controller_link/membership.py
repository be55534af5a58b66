"""Determines the cluster of a broker before the broker writes anything."""

from __future__ import annotations

from milena.broker.controller_link.controller_link import ControllerLink
from milena.config.values import ConfigError
from milena.storage.manager.log_manager import LogManager


async def cluster_of(logs: LogManager, controller: ControllerLink, required: str | None) -> str:
    """Return the cluster id of the log directories; that of the controller if they are not formatted. ``required``: the
    expected id; None for any.

    Raises ConfigError if the id is not the expected one, KafkaError or ChannelError if the controller does not answer.
    """
    formatted_for = logs.cluster_id
    cluster_id = formatted_for or await controller.cluster_id()
    if required and required != cluster_id:
        source = (
            f"the controller at {controller.address} leads"
            if formatted_for is None
            else "the log directories belong to"
        )
        raise ConfigError(f"--cluster-id or CLUSTER_ID is {required}, but {source} cluster {cluster_id}")
    return cluster_id
