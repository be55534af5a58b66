"""Milena's own client behind the protocols of the workload. It works in all places, also with a real Kafka."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milena.client import admin
from milena.client.admin import TOPIC_RESOURCE
from milena.client.cluster import Cluster
from milena.client.consumer import ConsumedRecord, Consumer
from milena.client.group_consumer import GroupConsumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.client.producer import BATCH_BYTES, OutcomeUnknown, Producer
from milena.client.transactional import TransactionalProducer, TransactionFailed
from milena.lab.chaos.clients import (
    IN_ORDER,
    ChaosAdmin,
    ChaosConsumer,
    ChaosMember,
    ChaosProducer,
    ChaosTransactions,
    ChaosTransformer,
    Got,
    Sent,
)
from milena.lab.histories.events import RequestOutcome
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import Codec
from milena.protocol.types import TopicPartition
from milena.runtime.context import Runtime
from milena.runtime.randomness import Randomness

REQUEST_TIMEOUT: Final = 3.0
CONNECT_TIMEOUT: Final = 2.0
DELIVERY: Final = 120.0
"""Seconds; longer than any fault lasts."""
MEMBER_SESSION_MS: Final = 6000
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)
MAX_BLOCK: Final = 10.0
"""Seconds for which a transactional producer retries a request to a coordinator."""
RETRY: Final = 0.2
"""Seconds before the next attempt after an error that a poll has raised."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How clients work. ``deliveries``: seconds after which a producer gives a record up, chosen for each producer; by
    default longer than any fault lasts. ``batch_bytes``: of producers."""

    request_timeout: float = REQUEST_TIMEOUT
    deliveries: Sequence[float] = (DELIVERY,)
    batch_bytes: int = BATCH_BYTES


HABITS: Final = Habits()


class OwnClients:
    """Implements ``clients.Clients``."""

    name = "milena"
    can = frozenset({"produce", "consume", "group", "admin", IN_ORDER})
    own_epochs = True
    fences_members = True

    def __init__(self, runtime: Runtime, bootstrap: Sequence[tuple[str, int]], habits: Habits = HABITS) -> None:
        self._runtime = runtime
        self._bootstrap = bootstrap
        self._habits = habits

    def cluster(self, name: str = "chaos") -> Cluster:
        """Channels of their own; the caller closes them."""
        seconds = self._habits.request_timeout
        return Cluster(self._runtime, self._bootstrap, name, request_timeout=seconds, connect_timeout=CONNECT_TIMEOUT)

    async def producer(self, *, acks: int, idempotent: bool) -> ChaosProducer:
        return _Producer(self.cluster(), acks, idempotent, self._habits)

    async def consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer:
        return _Consumer(self.cluster(), positions)

    async def member(self, group: str, topics: Sequence[str]) -> ChaosMember:
        return _Member(self.cluster(), group, topics)

    async def admin(self) -> ChaosAdmin:
        return _Admin(self.cluster())

    async def transactions(self, transactional_id: str, timeout: float) -> ChaosTransactions:
        newest = 2 if self.own_epochs else 1
        return _Transactions(self.cluster(), transactional_id, timeout, self._habits, newest)

    async def committed_consumer(self, positions: Mapping[TopicPartition, int]) -> ChaosConsumer:
        return _Consumer(self.cluster(), positions, committed=True)

    async def transformer(self, group: str, topics: Sequence[str]) -> ChaosTransformer:
        return _Member(self.cluster(), group, topics, committed=True)


class OldClients(OwnClients):
    """Only transactions, as clients of version 1 run them: they add partitions themselves, and end transactions with
    EndTxn v4."""

    name = "milena-old"
    can = frozenset()
    own_epochs = False


class _Producer:
    def __init__(self, cluster: Cluster, acks: int, idempotent: bool, habits: Habits) -> None:
        self._cluster = cluster
        self._producer = Producer(
            cluster,
            acks=acks,
            idempotent=idempotent,
            codec=cluster.runtime.random.choice(CODECS),
            request_timeout=habits.request_timeout,
            delivery_timeout=_one_of(habits.deliveries, cluster.runtime.random),
            batch_bytes=habits.batch_bytes,
        )

    async def send(self, partition: TopicPartition, key: str | None, value: str | None) -> Sent:
        data = None if value is None else value.encode()
        try:
            future = await self._producer.enqueue(
                partition[0], data, key=None if key is None else key.encode(), partition=partition[1]
            )
            produced = await future
        except OutcomeUnknown as error:
            return Sent(RequestOutcome.UNKNOWN, error=str(error), identity=_named(error.identity))
        except KafkaError as error:
            return Sent(RequestOutcome.FAILED, error=f"{error.code.name}: {error}")
        return Sent(RequestOutcome.OK, produced.offset, identity=_named(produced.identity))

    async def close(self) -> None:
        await self._producer.close()
        self._cluster.close()


def _one_of(seconds: Sequence[float], random: Randomness) -> float:
    return random.choice(seconds) if len(seconds) > 1 else seconds[0]


def _named(identity: object) -> str:
    return "" if identity is None else str(identity)


class _Consumer:
    def __init__(self, cluster: Cluster, positions: Mapping[TopicPartition, int], *, committed: bool = False) -> None:
        self._cluster = cluster
        self._consumer = Consumer(cluster, committed=committed)
        self._consumer.assign(positions)

    async def poll(self, seconds: float) -> Sequence[Got]:
        try:
            return _got(await self._consumer.poll(seconds))
        except KafkaError:
            await self._cluster.runtime.clock.sleep(RETRY)
            return ()

    async def end_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        try:
            start = await find_offset(self._cluster, *partition, EARLIEST)
            end = await find_offset(self._cluster, *partition, LATEST)
        except (KafkaError, ChannelError):
            return None
        return start.offset, end.offset

    async def close(self) -> None:
        await self._consumer.close()
        self._cluster.close()


class _Member:
    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str], *, committed: bool = False) -> None:
        self._cluster = cluster
        self._assignments = 0
        self._member = GroupConsumer(
            cluster,
            group,
            topics,
            session_timeout_ms=MEMBER_SESSION_MS,
            rebalance_timeout_ms=MEMBER_SESSION_MS,
            auto_commit=False,
            committed=committed,
            assigned=self._assigned,
        )
        self.polled_as = self._member.metadata
        """The membership at the last poll."""

    def _assigned(self, _: list[TopicPartition]) -> None:
        self._assignments += 1

    @property
    def session(self) -> str:
        return f"{self._member.member_id}, assignment {self._assignments}"

    async def poll(self, seconds: float) -> Sequence[Got]:
        try:
            found = await self._member.poll(seconds)
            self.polled_as = self._member.metadata
            return _got(found)
        except (KafkaError, ChannelError):
            await self._cluster.runtime.clock.sleep(RETRY)
            return ()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> RequestOutcome:
        """The client tries again if it can: an earlier attempt may take effect after an error, too."""
        try:
            await self._member.commit(offsets)
        except (KafkaError, ChannelError):
            return RequestOutcome.UNKNOWN
        return RequestOutcome.OK

    async def close(self) -> None:
        await self._member.close()
        self._cluster.close()


class _Transactions:
    def __init__(self, cluster: Cluster, transactional_id: str, timeout: float, habits: Habits, newest: int) -> None:
        self._cluster = cluster
        self._producer = TransactionalProducer(
            cluster,
            transactional_id,
            transaction_timeout_ms=int(timeout * 1000),
            codec=cluster.runtime.random.choice(CODECS),
            request_timeout=habits.request_timeout,
            delivery_timeout=_one_of(habits.deliveries, cluster.runtime.random),
            batch_bytes=habits.batch_bytes,
            max_block=MAX_BLOCK,
            newest=newest,
        )

    async def init(self) -> bool:
        try:
            await self._producer.init()
        except KafkaError:
            return False
        return True

    async def begin(self) -> bool:
        try:
            self._producer.begin()
        except (TransactionFailed, ValueError):
            return False
        return True

    @property
    def identity(self) -> str:
        identity = self._producer.identity
        return f"{identity.producer_id}, epoch {identity.epoch}"

    async def send(self, partition: TopicPartition, value: str) -> Sent:
        try:
            produced = await self._producer.send(partition[0], value.encode(), partition=partition[1])
        except (KafkaError, ValueError) as error:
            return Sent(RequestOutcome.UNKNOWN, error=str(error))
        return Sent(RequestOutcome.OK, produced.offset)

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], member: ChaosTransformer) -> bool:
        assert isinstance(member, _Member)
        try:
            await self._producer.send_offsets(offsets, member.polled_as)
        except (KafkaError, ValueError):
            return False
        return True

    async def commit(self) -> RequestOutcome:
        return await self._ended(self._producer.commit())

    async def abort(self) -> RequestOutcome:
        return await self._ended(self._producer.abort())

    async def _ended(self, end: Awaitable[None]) -> RequestOutcome:
        try:
            await end
        except TransactionFailed as error:
            return RequestOutcome.UNKNOWN if error.uncertain else RequestOutcome.FAILED
        except KafkaError:
            return RequestOutcome.UNKNOWN
        except ValueError:
            return RequestOutcome.FAILED  # the producer is in a state in which it sends no request
        return RequestOutcome.OK

    async def close(self) -> None:
        await self._producer.close()
        self._cluster.close()


class _Admin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topic(
        self, name: str, partitions: int, replicas: int, config: Mapping[str, str]
    ) -> RequestOutcome:
        topic = admin.NewTopic(name, partitions, replicas, configs=config)
        return await changed(name, admin.create_topics(self._cluster, [topic]))

    async def delete_topic(self, name: str) -> RequestOutcome:
        return await changed(name, admin.delete_topics(self._cluster, [name]))

    async def set_config(self, topic: str, config: Mapping[str, str]) -> RequestOutcome:
        try:
            await admin.alter_configs(self._cluster, TOPIC_RESOURCE, topic, config)
        except (KafkaError, ChannelError):
            return RequestOutcome.UNKNOWN
        return RequestOutcome.OK

    async def topics(self) -> Sequence[str] | None:
        try:
            return list((await self._cluster.metadata()).topics)
        except (KafkaError, ChannelError):
            return None

    async def close(self) -> None:
        self._cluster.close()


async def changed(name: str, change: Awaitable[admin.Results]) -> RequestOutcome:
    """Return the outcome of a change of a topic. A rejection may follow a success whose answer was lost: it proves
    nothing."""
    try:
        return RequestOutcome.OK if (await change)[name] is None else RequestOutcome.UNKNOWN
    except (KafkaError, ChannelError):
        return RequestOutcome.UNKNOWN


def _got(records: Sequence[ConsumedRecord]) -> list[Got]:
    return [
        Got(
            (record.topic, record.partition),
            record.offset,
            None if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
            record.leader_epoch,
        )
        for record in records
    ]
