"""Transactions of librdkafka by confluent-kafka.

A commit that fails has an unknown outcome: librdkafka sends EndTxn again by itself, and does not tell whether it has. A
commit that has timed out continues with the next call. Closing a producer aborts its transaction.
Transactions of a producer share an epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Place

from milena.lab.chaos.clients import ChaosTransformer, Got, Sent
from milena.lab.histories.events import ACKS_ALL, RequestOutcome
from milena.protocol.types import TopicPartition
from milena.testing.chaos_clients.bridge import Worker
from milena.testing.chaos_clients.confluent import (
    ConfluentClients,
    ConfluentConsumer,
    ConfluentMember,
    ConfluentProducer,
)
from milena.testing.chaos_clients.limits import Limits

CLOSE: Final = 2.0
"""Seconds for records that have no outcome: the transaction stays open in any case."""


class ConfluentTransactingClients(ConfluentClients):
    """Implements ``Clients`` and ``TransactingClients``."""

    own_epochs = False
    fences_members = True

    async def transactions(self, transactional_id: str, timeout: float) -> ConfluentTransactions:
        milliseconds = int(timeout * 1000)
        settings = self._common | {
            "acks": ACKS_ALL,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": milliseconds,
            "message.timeout.ms": milliseconds,  # this and socket.timeout.ms: at most that of a transaction
            "request.timeout.ms": self._limits.request_ms,
            "socket.timeout.ms": min(self._limits.request_ms, milliseconds),
            "linger.ms": 2,
            "logger": logging.getLogger("chaos.confluent-kafka"),  # else a fenced producer is reported on stderr
        }
        return ConfluentTransactions(settings, self._limits)

    async def committed_consumer(self, positions: Mapping[TopicPartition, int]) -> ConfluentConsumer:
        return ConfluentConsumer(self._committed("none"), positions, self._limits)

    async def transformer(self, group: str, topics: Sequence[str]) -> ConfluentTransformer:
        return ConfluentTransformer(self._member(self._committed(group)), topics, self._limits)

    def _committed(self, group: str) -> dict[str, Any]:
        return self._reading(group) | {"isolation.level": "read_committed"}


class ConfluentTransactions:
    """Implements ``ChaosTransactions``."""

    def __init__(self, settings: dict[str, Any], limits: Limits) -> None:
        self._records = ConfluentProducer(settings, replace(limits, close=CLOSE))
        self._producer = self._records.library
        self._worker = Worker("confluent-kafka transactions")
        self._limits = limits

    async def init(self) -> bool:
        return await self._call(self._producer.init_transactions, self._limits.request)

    async def begin(self) -> bool:
        return await self._call(self._producer.begin_transaction)

    async def send(self, partition: TopicPartition, value: str) -> Sent:
        return await self._records.send(partition, None, value)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: ChaosTransformer) -> bool:
        assert isinstance(member, ConfluentTransformer)
        places = [Place(*partition, offset) for partition, offset in offsets.items()]
        return await self._call(
            self._producer.send_offsets_to_transaction, places, member.polled_as, self._limits.request
        )

    async def commit(self) -> RequestOutcome:
        return _outcome(await self._call(self._producer.commit_transaction, self._limits.request))

    async def abort(self) -> RequestOutcome:
        return _outcome(await self._call(self._producer.abort_transaction, self._limits.request))

    async def _call(self, function: Callable[..., object], *arguments: object) -> bool:
        try:
            await self._worker.call(function, *arguments)
        except KafkaException:
            return False
        return True

    async def close(self) -> None:
        await self._worker.close(self._limits.request + 5)
        await self._records.close()


def _outcome(succeeded: bool) -> RequestOutcome:
    return RequestOutcome.OK if succeeded else RequestOutcome.UNKNOWN


class ConfluentTransformer(ConfluentMember):
    """Implements ``ChaosTransformer``."""

    polled_as: Any = None
    """The membership with which the last records were polled."""

    def __init__(self, settings: dict[str, Any], topics: Sequence[str], limits: Limits) -> None:
        self._metadata: dict[int, Any] = {}
        """By the number of the assignment."""
        super().__init__(settings, topics, limits)

    def _assigned(self) -> None:
        super()._assigned()
        self._metadata[self._assignments] = self._consumer.consumer_group_metadata()

    def _read(self, seconds: float) -> list[Got]:
        found = super()._read(seconds)
        if found:
            self.polled_as = self._metadata[self._session]
        return found
