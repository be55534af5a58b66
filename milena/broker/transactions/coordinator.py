"""The transaction coordinator of this broker, for the transactional ids of the ``__transaction_state`` partitions that
it leads (Kafka's ``TransactionCoordinator``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from milena.broker.replica.partition import Partition
from milena.broker.transactions.model import (
    Done,
    ProducerDone,
    ProducerIdAndEpoch,
    Transaction,
    TransactionSettings,
)
from milena.protocol.errors import ErrorCode
from milena.protocol.types import LeaderEpoch, TopicPartition


class Shard:
    """The transactional ids of one partition (moves to ``shard.py``)."""

    transactions: dict[str, Transaction]
    """By transactional id: the committed state."""


class TransactionCoordinator:
    """The shards of one broker. API modules get it as ``node.transactions``."""

    settings: TransactionSettings

    def start(self) -> None:
        raise NotImplementedError

    def elected(self, index: int, leader_epoch: LeaderEpoch, partition: Partition) -> None:
        """Load the transactional ids of partition ``index`` of ``__transaction_state``, which this broker leads."""
        raise NotImplementedError

    def resigned(self, index: int) -> None:
        """Close the shard of partition ``index``: this broker no longer leads it."""
        raise NotImplementedError

    def partition_for(self, transactional_id: str) -> int:
        raise NotImplementedError

    def shard(self, transactional_id: str) -> Shard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        raise NotImplementedError

    def shards(self) -> Iterator[Shard]:
        """All loaded shards. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS if one is still loading."""
        raise NotImplementedError

    def find(self, transactional_id: str) -> Transaction | None:
        """Raises KafkaError: INVALID_REQUEST (empty), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        raise NotImplementedError

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        done: ProducerDone,
        *,
        two_phase_commit: bool = False,
        keep_prepared: bool = False,
    ) -> None:
        raise NotImplementedError

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        done: Done,
    ) -> None:
        raise NotImplementedError

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The error of each partition: NONE if it is in the open transaction of this producer. Raises KafkaError with
        an error for all of them."""
        raise NotImplementedError

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        commit: bool,
        client_version: int,
        done: ProducerDone,
    ) -> None:
        """Commit or abort. ``done`` gets the producer id and epoch of the next transaction, NO_PRODUCER below
        transaction version 2; it is called when the outcome is committed to the log, before markers are written."""
        raise NotImplementedError
