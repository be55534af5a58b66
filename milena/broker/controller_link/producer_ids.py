"""Producer ids for this broker's clients, from blocks that the controller allocates (KIP-730; Kafka's
RPCProducerIdManager)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from milena.broker.controller_link.controller_link import ControllerLink
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import BrokerEpoch, NodeId, ProducerId

if TYPE_CHECKING:
    from milena.protocol.apis import AllocateProducerIdsResponse

LAST_ID: Final = 2**63 - 1
MAX_BLOCK: Final = 1_000_000
"""The maximum number of ids in a block that is accepted. Kafka's controllers allocate 1,000."""


class ProducerIds:
    """Returns ids that no other broker returns."""

    def __init__(self, controller: ControllerLink, node_id: NodeId, broker_epoch: Callable[[], BrokerEpoch]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._block = range(0)
        self._fetching = asyncio.Lock()

    async def next(self) -> ProducerId:
        """Return a new id. Raises as ``ready``."""
        while (producer_id := self.take()) is None:
            await self.ready()
        return producer_id

    def take(self) -> ProducerId | None:
        """Return a new id; None if a block has to be allocated first (``ready``)."""
        if not self._block:
            return None
        producer_id, self._block = self._block[0], self._block[1:]
        return ProducerId(producer_id)

    async def ready(self) -> None:
        """Wait until there are ids. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if the
        controller allocates none now."""
        async with self._fetching:
            if not self._block:
                self._block = await self._allocate()

    async def _allocate(self) -> range:
        try:
            response: AllocateProducerIdsResponse = await self._controller.request(
                ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=self._node_id, broker_epoch=self._broker_epoch()
            )
        except (KafkaError, ConnectionError) as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids from the controller") from error
        if response.error_code:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller refused a block of producer ids")
        first, count = int(response.producer_id_start), int(response.producer_id_len)
        if not (0 <= first <= LAST_ID - MAX_BLOCK and 0 < count <= MAX_BLOCK):
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller's block of producer ids is invalid"
            )
        return range(first, first + count)
