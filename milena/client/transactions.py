"""Admin calls for transactions: list, describe, find hanging ones, abort (KIP-664, KIP-939, KIP-1152).

Each raises KafkaError, and ChannelError if no node answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from milena.client.admin import RETRIED, TIMEOUT_MS, ask_until_ready
from milena.client.cluster import BrokerView, Cluster
from milena.client.identities import identity_of
from milena.client.membership import TRANSACTION_KEY, by_topic, coordinator_of
from milena.node.links.outgoing import only
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch, TopicPartition

if TYPE_CHECKING:
    from milena.protocol.apis import (
        DescribeProducersResponse,
        DescribeTransactionsResponse,
        DescribeTransactionsTransactionState,
        InitProducerIdResponse,
        ListTransactionsResponse,
        WriteTxnMarkersResponse,
    )

T = TypeVar("T")

NO_LEADER: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
)
WITH_DURATION: Final = 1
WITH_PATTERN: Final = 2
"""The first versions of ListTransactions with these filters."""
MOST: Final = 500
"""Partitions or producers of one request, as in Kafka's TransactionsCommand."""
MOST_DESCRIBED: Final = 100
"""Transactional ids of one request: each may have many partitions."""


class TransactionListing(NamedTuple):
    """A transactional id as its coordinator lists it. ``state``: Kafka's name, such as ``Ongoing``."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator describes it. ``start_ms``: when its last transaction began, also if that
    has ended; None before the first one, and after InitProducerId."""

    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """A producer in the state of a partition. ``coordinator_epoch`` is -1 before the first marker, ``start_offset`` is
    None if it has no open transaction there. ``last_timestamp`` is ms."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp: int
    start_offset: int | None


class OpenTransaction(NamedTuple):
    """An open transaction of a producer in a partition."""

    partition: TopicPartition
    producer: ActiveProducer


async def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int = -1,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """Return the transactional ids of all brokers, in the order of their names. Each filter may be left out.
    ``longer_than_ms``: the last transaction began longer ago, also if it has ended, or there was none; ``pattern``: a
    regular expression (RE2) for the whole id.

    Raises KafkaError UNSUPPORTED_VERSION if a broker does not know a filter.
    """
    needed = WITH_PATTERN if pattern else WITH_DURATION if longer_than_ms >= 0 else 0

    async def ask(broker: BrokerView) -> ListTransactionsResponse:
        channel = cluster.to(broker.host, broker.port)
        await channel.connect()
        version = channel.choose(ApiKey.LIST_TRANSACTIONS)
        if version < needed:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"broker {broker.id} does not know this filter")
        response: ListTransactionsResponse = await channel.request(
            ApiKey.LIST_TRANSACTIONS,
            version,
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern or None,
        )
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"broker {broker.id}")
        return response

    found = []
    for broker in (await cluster.metadata([])).brokers.values():
        response = await ask_until_ready(
            cluster, partial(ask, broker), retried=(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)
        )
        found += [
            TransactionListing(one.transactional_id, broker.id, int(one.producer_id), one.transaction_state)
            for one in response.transaction_states
        ]
    return sorted(found)


async def describe_transactions(
    cluster: Cluster, coordinator: int, transactional_ids: Collection[str]
) -> list[TransactionDescription]:
    """Return transactional ids as the broker ``coordinator`` describes them, in no particular order. Those that it does
    not coordinate any more are left out."""
    response: DescribeTransactionsResponse = await cluster.to_broker(coordinator).request(
        ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=list(transactional_ids)
    )
    return [_description(coordinator, found) for found in response.transaction_states if not found.error_code]


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Return a transactional id as its coordinator describes it. Raises KafkaError TRANSACTIONAL_ID_NOT_FOUND."""

    async def ask() -> TransactionDescription:
        broker = await coordinator_of(cluster, transactional_id, TRANSACTION_KEY)
        response: DescribeTransactionsResponse = await cluster.to(broker.host, broker.port).request(
            ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[transactional_id]
        )
        found = only(response.transaction_states)
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code), f"transactional id {transactional_id!r}")
        return _description(broker.id, found)

    return await ask_until_ready(cluster, ask)


def _description(coordinator: int, found: DescribeTransactionsTransactionState) -> TransactionDescription:
    start = int(found.transaction_start_time)
    partitions = sorted((topic.topic, int(number)) for topic in found.topics for number in topic.partitions)
    return TransactionDescription(
        coordinator,
        found.transactional_id,
        int(found.producer_id),
        int(found.producer_epoch),
        found.transaction_state,
        int(found.transaction_timeout),
        start if start >= 0 else None,
        tuple(partitions),
    )


async def describe_producers(
    cluster: Cluster, partition: TopicPartition, broker: int | None = None
) -> list[ActiveProducer]:
    """Return the producers in the state of a partition's leader, or of the replica on ``broker``. Raises KafkaError."""
    return (await producers_of(cluster, [partition], broker))[partition]


async def producer_at(cluster: Cluster, partition: TopicPartition, start: int) -> ActiveProducer | None:
    """Return the producer whose open transaction begins at an offset; None if there is none. Raises KafkaError."""
    producers = await describe_producers(cluster, partition)
    return next((one for one in producers if one.start_offset == start), None)


async def producers_of(
    cluster: Cluster, partitions: Sequence[TopicPartition], broker: int | None = None
) -> dict[TopicPartition, list[ActiveProducer]]:
    """Return the same as ``describe_producers`` for several partitions. Raises KafkaError if one cannot be asked."""

    async def ask() -> dict[TopicPartition, list[ActiveProducer]]:
        await cluster.metadata(sorted({topic for topic, _ in partitions}))
        by_broker: dict[int, list[TopicPartition]] = {}
        for topic, number in partitions:
            leader = broker if broker is not None else (await cluster.leader(topic, number))[1].leader
            by_broker.setdefault(leader, []).append((topic, number))
        found: dict[TopicPartition, list[ActiveProducer]] = {}
        for node, here in by_broker.items():
            response: DescribeProducersResponse = await cluster.to_broker(node).request(
                ApiKey.DESCRIBE_PRODUCERS,
                topics=[{"name": name, "partition_indexes": numbers} for name, numbers in by_topic(here).items()],
            )
            found.update(_producers_in(response))
        return found

    return await ask_until_ready(cluster, ask, retried=NO_LEADER)


def _producers_in(response: DescribeProducersResponse) -> Iterator[tuple[TopicPartition, list[ActiveProducer]]]:
    """Yield the producers of each partition of a response. Raises KafkaError."""
    for topic in response.topics:
        for partition in topic.partitions:
            number = int(partition.partition_index)
            if partition.error_code:
                message = partition.error_message or f"{topic.name}-{number}"
                raise KafkaError(ErrorCode(partition.error_code), message)
            producers = [
                ActiveProducer(
                    int(one.producer_id),
                    int(one.producer_epoch),
                    int(one.coordinator_epoch),
                    int(one.last_sequence),
                    int(one.last_timestamp),
                    int(one.current_txn_start_offset) if one.current_txn_start_offset >= 0 else None,
                )
                for one in partition.active_producers
            ]
            yield (topic.name, number), producers


async def find_hanging(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, open_for_ms: int, broker: int | None = None
) -> list[OpenTransaction]:
    """Return the transactions in ``partitions`` without a record for ``open_for_ms`` that no coordinator will end.
    ``broker`` as in ``describe_producers``."""
    opened = await open_transactions(cluster, partitions, open_for_ms=open_for_ms, broker=broker)
    return await hanging_among(cluster, opened)


async def hanging_among(cluster: Cluster, opened: Collection[OpenTransaction]) -> list[OpenTransaction]:
    """Return those of these transactions that no coordinator will end."""
    ended = await coordinated(cluster, opened)
    return [one for one in opened if one not in ended]


async def open_transactions(
    cluster: Cluster, partitions: Sequence[TopicPartition], *, open_for_ms: int, broker: int | None = None
) -> list[OpenTransaction]:
    """Return the transactions in ``partitions`` without a record for ``open_for_ms``. ``broker`` as in
    ``describe_producers``."""
    now = cluster.runtime.clock.time_ms()
    opened: list[OpenTransaction] = []
    for some in _parts(partitions):
        for partition, producers in (await producers_of(cluster, some, broker)).items():
            opened += [
                OpenTransaction(partition, one)
                for one in producers
                if one.start_offset is not None and now - one.last_timestamp > open_for_ms
            ]
    return opened


async def coordinated(
    cluster: Cluster, opened: Collection[OpenTransaction]
) -> dict[OpenTransaction, TransactionDescription]:
    """Return those of these transactions that a coordinator will end, with their transactional ids: one has the
    producer id, and the partition in its transaction."""
    known: dict[int, TransactionDescription] = {}
    for ids in _parts(sorted({one.producer.producer_id for one in opened})):
        listed = await list_transactions(cluster, producer_ids=ids)
        descriptions = {one.transactional_id: one for one in await describe_listed(cluster, listed)}
        for one in listed:
            name = one.transactional_id
            description = descriptions.get(name) or await _known_elsewhere(cluster, name)
            if description is not None:
                known[one.producer_id] = description
    owners = ((one, known.get(one.producer.producer_id)) for one in opened)
    return {one: owner for one, owner in owners if owner is not None and one.partition in owner.partitions}


async def owner_of(
    cluster: Cluster, partition: TopicPartition, producer: ActiveProducer
) -> TransactionDescription | None:
    """Return the transactional id whose coordinator will end a producer's open transaction in a partition; None if the
    transaction hangs. Raises KafkaError."""
    opened = OpenTransaction(partition, producer)
    return (await coordinated(cluster, [opened])).get(opened)


async def describe_listed(cluster: Cluster, listed: Sequence[TransactionListing]) -> list[TransactionDescription]:
    """Describe ids, up to ``MOST_DESCRIBED`` in one request. An id whose coordinator has changed since is left out."""
    by_coordinator: dict[int, list[str]] = {}
    for one in listed:
        by_coordinator.setdefault(one.coordinator, []).append(one.transactional_id)
    found: list[TransactionDescription] = []
    for coordinator, names in by_coordinator.items():
        for some in _parts(names, MOST_DESCRIBED):
            found += await describe_transactions(cluster, coordinator, some)
    return found


async def _known_elsewhere(cluster: Cluster, transactional_id: str) -> TransactionDescription | None:
    """Return an id as its present coordinator describes it; None if it does not exist any more."""
    try:
        return await describe_transaction(cluster, transactional_id)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
    return None


def _parts(items: Sequence[T], most: int = MOST) -> Iterable[Sequence[T]]:
    return (items[start : start + most] for start in range(0, len(items), most))


async def abort_transaction(cluster: Cluster, partition: TopicPartition, producer: ActiveProducer) -> None:
    """Write an abort marker to one partition. Only a hanging transaction may be aborted in this way (``owner_of``).
    Before the first marker the coordinator's epoch is unknown; 0 is not above any. Raises KafkaError."""
    topic, number = partition

    async def ask() -> None:
        cluster.forget_topic(topic)
        channel, _, _ = await cluster.leader(topic, number)
        response: WriteTxnMarkersResponse = await channel.request(
            ApiKey.WRITE_TXN_MARKERS,
            markers=[
                {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "transaction_result": False,
                    "topics": [{"name": topic, "partition_indexes": [number]}],
                    "coordinator_epoch": max(producer.coordinator_epoch, 0),
                }
            ],
        )
        result = only(only(only(response.markers).topics).partitions)
        if result.error_code:
            raise KafkaError(ErrorCode(result.error_code), f"{topic}-{number}")

    await ask_until_ready(cluster, ask, retried=NO_LEADER)


async def fence_producer(cluster: Cluster, transactional_id: str) -> ProducerIdAndEpoch:
    """Abort the open transaction of a transactional id and fence its producer: the admin client initializes the id
    itself, as Kafka's does. Returns the new producer id and epoch."""

    async def ask() -> ProducerIdAndEpoch:
        broker = await coordinator_of(cluster, transactional_id, TRANSACTION_KEY)
        response: InitProducerIdResponse = await cluster.to(broker.host, broker.port).request(
            ApiKey.INIT_PRODUCER_ID,
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
        return identity_of(response)

    return await ask_until_ready(cluster, ask, retried=(*RETRIED, ErrorCode.CONCURRENT_TRANSACTIONS))
