"""Where a producer's batches get their producer ids and epochs from, without transactions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from milena.client.cluster import Cluster
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, ProducerIdAndEpoch

if TYPE_CHECKING:
    from milena.protocol.apis import InitProducerIdResponse

REFUSED_SEQUENCE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Identities(Protocol):
    """Assigns producer ids and epochs. ``transactional_id`` is None without transactions."""

    @property
    def transactional_id(self) -> str | None: ...

    @property
    def newest_produce(self) -> int | None:
        """The highest version of Produce that may be used, None for no limit."""
        ...

    async def for_batch(self, topic: str, partition: int) -> ProducerIdAndEpoch:
        """Return what the partition's next batch is sent with. Raises KafkaError if it must not be sent."""
        ...

    def failed(self, identity: ProducerIdAndEpoch | None, error: KafkaError, *, uncertain: bool) -> bool:
        """Note that a batch failed for good. ``uncertain``: it may be in the log. Returns whether the sequence numbers
        of its partition begin again, under another identity."""
        ...


class IdempotentIdentities:
    """One producer id, which is replaced when a broker may expect other sequence numbers than ours."""

    transactional_id = None
    newest_produce = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._current: ProducerIdAndEpoch | None = None
        self._requesting = asyncio.Lock()

    async def for_batch(self, topic: str, partition: int) -> ProducerIdAndEpoch:
        """As ``Identities.for_batch``. Raises ChannelError, KafkaError."""
        async with self._requesting:
            if self._current is None:
                response: InitProducerIdResponse = await self._cluster.ask_any(
                    ApiKey.INIT_PRODUCER_ID,
                    transactional_id=None,
                    transaction_timeout_ms=0,
                    producer_id=NO_PRODUCER_ID,
                    producer_epoch=NO_PRODUCER_EPOCH,
                )
                self._current = identity_of(response)
            return self._current

    def failed(self, identity: ProducerIdAndEpoch | None, error: KafkaError, *, uncertain: bool) -> bool:
        if not uncertain and error.code not in REFUSED_SEQUENCE:
            return False
        if identity == self._current:
            self._current = None
        return True


class IdentityResponse(Protocol):
    """A response with a producer id and epoch: to InitProducerId, to EndTxn from version 5 on."""

    @property
    def error_code(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...


def identity_of(response: IdentityResponse) -> ProducerIdAndEpoch:
    """Return the producer id and epoch of a response. Raises its KafkaError."""
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code))
    return ProducerIdAndEpoch(ProducerId(int(response.producer_id)), ProducerEpoch(int(response.producer_epoch)))
