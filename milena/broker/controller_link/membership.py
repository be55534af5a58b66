"""Which cluster a broker belongs to, before it writes anything."""

from __future__ import annotations

from milena.broker.controller_link.controller_link import ControllerLink
from milena.config.values import ConfigError
from milena.storage.manager.log_manager import LogManager


async def cluster_of(logs: LogManager, controller: ControllerLink, wanted: str | None) -> str:
    """The cluster that the log directories belong to; the controller's if they are new. ``wanted``: the only one that
    it may be, None for any.

    Raises ConfigError if that is another one, KafkaError, ChannelError if the controller cannot be asked.
    """
    known = logs.cluster_id
    cluster_id = known or await controller.cluster_id()
    if wanted and wanted != cluster_id:
        whose = f"the controller at {controller.address} leads" if known is None else "the log directories belong to"
        raise ConfigError(f"--cluster-id or CLUSTER_ID is {wanted}, but {whose} cluster {cluster_id}")
    return cluster_id
