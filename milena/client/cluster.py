"""The client's view of the cluster, and its channels to the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from milena.node.links.outgoing import Channel, ChannelError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.runtime.context import Runtime

if TYPE_CHECKING:
    from milena.protocol.apis import MetadataResponse

FIRST_PAUSE: Final = 0.02
LAST_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class BrokerView:
    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as returned by Metadata. ``leader`` is -1 if there is none."""

    error: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic; ``error`` is a Kafka error code, and ``partitions`` is empty if it is not 0."""

    name: str
    id: UUID | None
    error: int
    internal: bool
    partitions: Mapping[int, PartitionInfo]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One Metadata answer. ``controller`` is -1 if the brokers name none."""

    cluster_id: str | None
    controller: int
    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, TopicView]


class Cluster:
    """Channels to the nodes of one cluster, discovered through ``bootstrap`` servers."""

    def __init__(
        self,
        runtime: Runtime,
        bootstrap: Sequence[tuple[str, int]],
        client_id: str = "milena",
        *,
        request_timeout: float = 30.0,
        connect_timeout: float = 5.0,
    ) -> None:
        if not bootstrap:
            raise ValueError("a client needs at least one bootstrap address")
        self.runtime = runtime
        self.client_id = client_id
        self._bootstrap = list(bootstrap)
        self.request_timeout = request_timeout
        self._connect_timeout = connect_timeout
        self._channels: dict[tuple[str, int], Channel] = {}
        self._brokers: dict[int, BrokerView] = {}
        self._topics: dict[str, TopicView] = {}
        self._newest: dict[str, TopicView] = {}
        """The newest leader epochs of each topic ever seen."""

    async def metadata(self, topics: Sequence[str] | None = None, *, allow_auto_create: bool = False) -> ClusterView:
        """Request metadata of the cluster and ``topics`` (None: all). Raises ChannelError if no node can
        be reached, KafkaError REQUEST_TIMED_OUT if one is silent.

        The answer is returned unchanged. What is remembered never goes back to an older leader epoch, which a broker
        that is cut off from the others may return (KIP-320); the next request then goes to another node.
        """
        wanted = None if topics is None else [{"name": name} for name in topics]
        channel = await self.any_channel()
        response: MetadataResponse = await channel.request(
            ApiKey.METADATA,
            topics=wanted,
            allow_auto_topic_creation=allow_auto_create,
            include_topic_authorized_operations=False,
        )
        view = view_of(response)
        self._brokers = dict(view.brokers) or self._brokers
        for name, topic in view.topics.items():
            self._topics[name] = newest = newest_of(self._newest.get(name), topic)
            if newest.error:
                continue
            self._newest[name] = newest
            if newest.partitions != topic.partitions:
                self._channels[channel.host, channel.port] = self._channels.pop((channel.host, channel.port))
        return view

    async def topic(self, name: str, *, fresh: bool = False, allow_auto_create: bool = False) -> TopicView:
        """A topic, from memory unless ``fresh``. Raises KafkaError with the topic's error."""
        known = self._topics.get(name)
        if fresh or known is None or known.error:
            await self.metadata([name], allow_auto_create=allow_auto_create)
            known = self._topics.get(name)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} is unknown")
        if known.error:
            raise KafkaError(ErrorCode(known.error), f"topic {name!r}")
        return known

    def remembered(self, name: str) -> TopicView | None:
        """A topic as it was last seen, unless it was forgotten since."""
        return self._topics.get(name)

    def forget_topic(self, name: str) -> None:
        """Make the next look-up of this topic ask the cluster."""
        self._topics.pop(name, None)

    async def leader(self, topic: str, partition: int) -> tuple[Channel, PartitionInfo, TopicView]:
        """The channel to a partition's leader. Raises KafkaError LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION."""
        view = await self.topic(topic)
        found = view.partitions.get(partition)
        if found is None:
            self.forget_topic(topic)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} does not exist")
        if found.leader not in self._brokers:
            self.forget_topic(topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return self.to_broker(found.leader), found, view

    def to_broker(self, broker: int) -> Channel:
        """Return the channel to a broker. Raises KafkaError BROKER_NOT_AVAILABLE for an id that the last metadata did
        not name."""
        known = self._brokers.get(broker)
        if known is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is unknown")
        return self.to(known.host, known.port)

    def to(self, host: str, port: int) -> Channel:
        channel = self._channels.get((host, port))
        if channel is None:
            channel = self._channels[host, port] = self.separate_channel(host, port)
        return channel

    def separate_channel(self, host: str, port: int) -> Channel:
        """A channel for one use; the caller closes it."""
        return Channel(
            self.runtime,
            host,
            port,
            self.client_id,
            connect_timeout=self._connect_timeout,
            request_timeout=self.request_timeout,
        )

    async def any_channel(self) -> Channel:
        """A connected channel to some node, in this order: one with a connection, a known broker, a bootstrap server.

        Raises ChannelError, naming the addresses, if none can be reached.
        """
        for channel in self._channels.values():
            if channel.connected:
                return channel
        brokers = [(broker.host, broker.port) for broker in self._brokers.values()]
        random = self.runtime.random
        addresses = random.shuffled(brokers) + [a for a in self._bootstrap if a not in brokers]
        last: ChannelError | None = None
        for host, port in addresses:
            channel = self.to(host, port)
            try:
                await channel.connect()
            except ChannelError as error:
                last = error
            else:
                return channel
        if len(addresses) == 1:
            raise ChannelError(str(last))
        raise ChannelError(f"no node answers at {', '.join(f'{h}:{p}' for h, p in addresses)}; last error: {last}")

    async def ask_any(self, key: ApiKey, /, *, timeout: float | None = None, **fields: object) -> Any:  # noqa: ANN401 - decoded response; callers annotate it
        """Send a request to any node, in its highest common version."""
        channel = await self.any_channel()
        return await channel.request(key, timeout=timeout, **fields)

    def finalized(self, feature: str) -> int:
        """Return the level of a finalized feature, 0 if there is none: the newest one that a connection has learned
        (KIP-584)."""
        newest = max(self._channels.values(), key=lambda channel: channel.features_epoch, default=None)
        return 0 if newest is None else newest.features.get(feature, 0)

    async def pause(self, attempt: int) -> None:
        """Wait before the next attempt: longer each time, with jitter."""
        random = self.runtime.random
        longest = min(FIRST_PAUSE * 2 ** min(attempt, 10), LAST_PAUSE)
        await self.runtime.clock.sleep(longest * random.uniform(0.5, 1.0))

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def newest_of(known: TopicView | None, received: TopicView) -> TopicView:
    """The given topic metadata, except for partitions for which a newer leader epoch is known."""
    if known is None or known.id != received.id or received.error:
        return received
    partitions = dict(received.partitions)
    for number, partition in known.partitions.items():
        if number not in partitions or 0 <= partitions[number].leader_epoch < partition.leader_epoch:
            partitions[number] = partition
    return replace(received, partitions=partitions)


def view_of(response: MetadataResponse) -> ClusterView:
    brokers = {
        int(broker.node_id): BrokerView(
            int(broker.node_id), broker.host, int(broker.port), messages.get(broker, "rack", None)
        )
        for broker in response.brokers
    }
    topics = {}
    for topic in response.topics:
        if topic.name is None:
            continue
        partitions = {
            int(partition.partition_index): PartitionInfo(
                int(partition.error_code),
                int(partition.leader_id),
                int(messages.get(partition, "leader_epoch", -1)),
                tuple(map(int, partition.replica_nodes)),
                tuple(map(int, partition.isr_nodes)),
                tuple(map(int, messages.get(partition, "offline_replicas", ()))),
            )
            for partition in topic.partitions
        }
        topics[str(topic.name)] = TopicView(
            str(topic.name),
            messages.get(topic, "topic_id", None),
            int(topic.error_code),
            bool(messages.get(topic, "is_internal", False)),
            partitions,
        )
    return ClusterView(
        messages.get(response, "cluster_id", None), int(messages.get(response, "controller_id", -1)), brokers, topics
    )
