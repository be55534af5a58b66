"""The metadata image: the state of the cluster at one offset of the metadata log.

The containers are mutable and have one owner, which alone replays records into them (``node.metadata.replay``). The
entries are frozen: a change replaces them. So a caller that keeps an entry has a consistent state of it. Equal tuples
of replicas and directories are shared to save memory with 10,000 partitions. Kafka: ``MetadataImage``,
``MetadataDelta``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

from milena.protocol.features import METADATA_VERSION
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch

NO_LEADER: Final = NodeId(-1)
NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = LeaderEpoch(0)
MAX_SHARED_TUPLES: Final = 1 << 16

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition's registration. ``leader`` is NO_LEADER if there is none.

    ``directories`` is parallel to ``replicas``. ``elr`` and ``last_known_elr`` are those of KIP-966; ``recovery_state``
    is 1 while an unclean leader recovers.
    """

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    directories: tuple[UUID, ...] = ()
    removing: tuple[NodeId, ...] = ()
    adding: tuple[NodeId, ...] = ()
    recovery_state: int = 0
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()

    def directory_of(self, replica: int) -> UUID | None:
        """Return the log directory assigned to a replica; None if none is assigned, or the node is not a replica."""
        if replica not in self.replicas or not self.directories:
            return None
        return self.directories[self.replicas.index(NodeId(replica))]

    @property
    def led_by_preferred(self) -> bool:
        """Whether the preferred replica (the first one) is the leader."""
        return self.leader == self.replicas[0]

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is ongoing (KIP-455)."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions by id. The image owns the dict."""

    name: str
    id: UUID
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ListenerImage:
    """One endpoint of a registered node. ``security_protocol`` is Kafka's number (0 is PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One broker's registration. ``epoch`` is the offset of its RegisterBroker record.

    ``log_dirs`` are the online ones; ``features`` maps a name to (lowest, highest supported level).
    """

    id: NodeId
    epoch: BrokerEpoch
    incarnation: UUID
    endpoints: tuple[ListenerImage, ...]
    features: dict[str, tuple[int, int]]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    cordoned: tuple[UUID, ...] | None = None
    migrating: bool = False

    @property
    def active(self) -> bool:
        """Whether the broker is neither fenced nor shutting down: it may lead partitions and be in ISRs."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener_name: str) -> ListenerImage | None:
        """Return the endpoint of a listener; None if the broker does not have it."""
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener_name), None)

    def address(self, listener_name: str) -> tuple[str, int] | None:
        """Return host and port of a listener; None if the broker does not have it."""
        endpoint = self.endpoint(listener_name)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def has_online_dir(self, directory: UUID) -> bool:
        """Whether replicas in ``directory`` are online. Reserved ids except LOST count as online (``Directory``,
        KIP-858)."""
        if directory.int < 100:
            return directory.int != 2
        return not self.log_dirs or directory in self.log_dirs


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A controller's registration (RegisterController records)."""

    id: NodeId
    incarnation: UUID
    endpoints: tuple[ListenerImage, ...]
    features: dict[str, tuple[int, int]]


@dataclass(slots=True)
class Delta:
    """The changes of one publication, by name; the image has the new state.

    ``topics`` maps each topic that was created or whose partitions changed to the changed partition ids;
    ``deleted_topics`` has the removed topics in their last state. A topic deleted and created again is in both.
    """

    topics: dict[str, set[int]] = field(default_factory=dict)
    deleted_topics: list[TopicImage] = field(default_factory=list)
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    configs: set[tuple[int, str]] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    producer_ids: bool = False
    opaque: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.topics
            or self.deleted_topics
            or self.brokers
            or self.controllers
            or self.configs
            or self.features
            or self.producer_ids
            or self.opaque
        )


@dataclass(slots=True)
class MetadataImage:
    """The whole state. ``offset`` and ``epoch`` are those of the last replayed record; ``offset`` is -1 if empty."""

    offset: Offset = NO_OFFSET
    epoch: LeaderEpoch = NO_EPOCH
    timestamp_ms: int = -1
    topics: dict[str, TopicImage] = field(default_factory=dict)
    topics_by_id: dict[UUID, TopicImage] = field(default_factory=dict)
    brokers: dict[int, BrokerImage] = field(default_factory=dict)
    controllers: dict[int, ControllerImage] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    producer_id_broker: tuple[int, int] = (-1, -1)
    """(broker id, broker epoch) of the last producer id block."""
    opaque: dict[tuple[object, ...], object] = field(default_factory=dict)
    """Access records, which are not interpreted (``opaque_records``), by kind and key."""
    _shared: dict[tuple[object, ...], tuple[object, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def metadata_version(self) -> int:
        """The finalized metadata.version; 0 if it is not known yet."""
        return self.features.get(METADATA_VERSION, 0)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(partition)

    def partition_by_id(self, topic_id: UUID, partition: int) -> PartitionImage | None:
        image = self.topics_by_id.get(topic_id)
        return None if image is None else image.partitions.get(partition)

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        """Return the configured values of one resource by key; empty if there are none. Read-only."""
        return self.configs.get((resource_type, name), {})

    def partitions_of(self, broker: int) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """Yield every partition that has a replica on ``broker``."""
        for topic in self.topics.values():
            for number, partition in topic.partitions.items():
                if broker in partition.replicas:
                    yield topic, number, partition

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def share(self, items: tuple[T, ...]) -> tuple[T, ...]:
        """Return an equal tuple that entries use already, or ``items`` itself if there is none."""
        if len(self._shared) > MAX_SHARED_TUPLES:
            self._shared.clear()
        return self._shared.setdefault(items, items)  # type: ignore[return-value]
