"""Reports the log directories of replicas to the controller if the metadata has others (KIP-858), like Kafka's
AssignmentsManager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from milena.broker.controller_link.controller_link import ControllerLink
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import KafkaError, error_name
from milena.protocol.types import BrokerEpoch, NodeId
from milena.runtime.clock import Clock
from milena.runtime.logging import get_logger
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.protocol.apis import AssignReplicasToDirsResponse, RequestDirectoryDataFields

MAX_IN_REQUEST: Final = 2250
"""The maximum number of assignments in one request, as in Kafka."""
RETRY_SECONDS: Final = 0.1


class DirectoryAssigner:
    """Sends assignments, one request at a time, and for each replica only the latest assignment."""

    def __init__(
        self, controller: ControllerLink, clock: Clock, node_id: NodeId, broker_epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._pending: dict[tuple[UUID, int], UUID] = {}
        self._has_work = asyncio.Event()
        self._logged_reason: str | None = None
        self._log = get_logger("directories")

    def start(self, tasks: Tasks) -> None:
        tasks.keep(self._run, name="directory assigner")

    def assign(self, topic_id: UUID, index: int, directory: UUID) -> None:
        """Report that a replica is in ``directory``."""
        self._pending[topic_id, index] = directory
        self._has_work.set()

    async def _run(self) -> None:
        while True:
            await self._has_work.wait()
            batch = dict(list(self._pending.items())[:MAX_IN_REQUEST])
            for key in batch:
                del self._pending[key]
            if not self._pending:
                self._has_work.clear()
            if not await self._send(batch):
                for key, directory in batch.items():
                    self._pending.setdefault(key, directory)
                self._has_work.set()
                await self._clock.sleep(RETRY_SECONDS)

    async def _send(self, batch: Mapping[tuple[UUID, int], UUID]) -> bool:
        """Send one request. Returns False if it must be sent again. Errors of single replicas are ignored: the
        controller has changed or removed the replica."""
        try:
            response: AssignReplicasToDirsResponse = await self._controller.request(
                ApiKey.ASSIGN_REPLICAS_TO_DIRS,
                broker_id=self._node_id,
                broker_epoch=self._broker_epoch(),
                directories=_by_directory(batch),
            )
        except (KafkaError, ConnectionError) as error:
            return self._failed(str(error))
        if response.error_code:
            return self._failed(error_name(int(response.error_code)))
        self._logged_reason = None
        return True

    def _failed(self, reason: str) -> bool:
        """Log a failure, unless the last one had the same reason: retries do not end."""
        if reason != self._logged_reason:
            self._logged_reason = reason
            self._log.warning("directories not assigned", error=reason)
        return False


def _by_directory(batch: Mapping[tuple[UUID, int], UUID]) -> list[RequestDirectoryDataFields]:
    """The request's list of directories with their topics and partitions."""
    directories: dict[UUID, dict[UUID, list[int]]] = {}
    for (topic_id, index), directory in batch.items():
        directories.setdefault(directory, {}).setdefault(topic_id, []).append(index)
    return [
        {
            "id": directory,
            "topics": [
                {"topic_id": topic_id, "partitions": [{"partition_index": index} for index in indexes]}
                for topic_id, indexes in topics.items()
            ],
        }
        for directory, topics in directories.items()
    ]
