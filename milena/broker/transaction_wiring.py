"""Creates the parts of a broker that are for transactions, from its configuration: the coordinator, the sender of
markers, and the verification of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from milena.broker.transactions.additions import Added, add_or_verify, size_of
from milena.broker.transactions.batch_verification import BrokerVerification
from milena.broker.transactions.coordinator import Markers, TransactionCoordinator
from milena.broker.transactions.gauges import register_gauges
from milena.broker.transactions.late import LateTransactions
from milena.broker.transactions.markers import MarkerSender
from milena.broker.transactions.meters import VerificationMeters
from milena.broker.transactions.model import TransactionSettings
from milena.broker.transactions.verification import Links, TransactionVerification
from milena.node.links.broker_links import BrokerLinks
from milena.protocol.features import EPOCH_BUMP_VERSION, TRANSACTION_VERSION
from milena.protocol.records.hashing import hashing_units
from milena.protocol.types import TRANSACTION_TOPIC, NodeId, ProducerIdAndEpoch, TopicPartition
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.broker.controller_link.producer_ids import ProducerIds
    from milena.broker.replica.partitions import PartitionSet
    from milena.config.node_config import NodeConfig
    from milena.node.metadata.image import BrokerImage, MetadataImage
    from milena.node.metrics import Metrics
    from milena.node.rules.rules import Rules
    from milena.node.serving.scheduler import Scheduler
    from milena.runtime.context import Runtime
    from milena.runtime.limited_log import LimitedLog


class Hosting(Protocol):
    """What the parts use of their broker."""

    @property
    def client_log(self) -> LimitedLog: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def node_id(self) -> NodeId: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def producer_ids(self) -> ProducerIds: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def runtime(self) -> Runtime: ...
    @property
    def scheduler(self) -> Scheduler: ...


@dataclass(frozen=True, slots=True)
class TransactionParts:
    """The parts of a broker that are for transactions."""

    coordinator: TransactionCoordinator
    markers: MarkerSender
    verification: BrokerVerification
    late: LateTransactions
    links: tuple[BrokerLinks, ...]

    def start(self, tasks: Tasks) -> None:
        """Begin the checks of open transactions."""
        self.coordinator.start()
        self.late.start(tasks)

    def stop(self) -> None:
        """Answer the requests that wait for a record of ``__transaction_state``."""
        self.coordinator.close()

    def brokers_changed(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Give up requests to brokers that are fenced or unregistered: their partitions get other leaders. Such a
        broker may be paused, so that it would not answer until the timeout."""
        for one in self.links:
            one.keep_only(lambda broker: broker in brokers and not brokers[broker].fenced)

    def close(self) -> None:
        """Close the connections."""
        for one in self.links:
            one.close()


class OwnCoordinator:
    """The coordinator of a broker, for the batches that the broker appends. With fault rules it gets requests like
    those of other brokers, so that a rule can hold or refuse them."""

    def __init__(self, broker: Hosting, coordinator: TransactionCoordinator) -> None:
        self._broker = broker
        self._coordinator = coordinator

    def is_asked(self, node: NodeId) -> bool:
        return node == self._broker.node_id and not self._broker.rules.active

    def add_or_verify(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Mapping[TopicPartition, None],
        done: Added,
        *,
        verify_only: bool,
    ) -> int:
        add_or_verify(
            self._coordinator,
            self._broker.image,
            transactional_id,
            producer,
            partitions,
            done,
            verify_only=verify_only,
            client_version=EPOCH_BUMP_VERSION,
        )
        size = size_of(self._coordinator, transactional_id, verify_only=verify_only)
        return hashing_units(transactional_id) + len(partitions) + size


def transaction_parts(broker: Hosting, tasks: Tasks) -> TransactionParts:
    """Create the parts. They use the network once the broker has started."""
    marker_links = _links(broker, "transaction-markers")
    verification_links = _links(broker, "add-partitions-to-txn")
    markers = MarkerSender(broker.runtime, tasks, marker_links, lambda: broker.image, turn=broker.scheduler.turn)
    coordinator = _coordinator(broker, tasks, markers)
    register_gauges(broker.metrics, coordinator, markers)
    verification = _verification(broker, tasks, verification_links, coordinator)
    longest = broker.config.get_int("transaction.max.timeout.ms")
    late = LateTransactions(broker.partitions, broker.runtime.clock, longest, broker.client_log)
    return TransactionParts(coordinator, markers, verification, late, (marker_links, verification_links))


def _links(broker: Hosting, purpose: str) -> BrokerLinks:
    """Connections to the inter-broker listeners of all brokers, for one purpose."""
    listener = broker.config.inter_broker_listener

    def address(node_id: NodeId) -> tuple[str, int] | None:
        registered = broker.image.brokers.get(node_id)
        return None if registered is None else registered.address(listener)

    return BrokerLinks(
        broker.runtime,
        address,
        f"broker-{broker.node_id}-{purpose}",
        request_timeout=broker.config.get_int("request.timeout.ms") / 1000,
    )


def _coordinator(broker: Hosting, tasks: Tasks, markers: Markers) -> TransactionCoordinator:
    """Create the coordinator. Transactional ids are hashed over the partitions that ``__transaction_state`` has, or
    will be created with."""
    config = broker.config
    default_count = config.get_int("transaction.state.log.num.partitions")

    def partition_count() -> int:
        topic = broker.image.topics.get(TRANSACTION_TOPIC)
        return len(topic.partitions) if topic is not None else default_count

    return TransactionCoordinator(
        broker.runtime,
        tasks,
        turn=broker.scheduler.turn,
        partition_count=partition_count,
        version=lambda: broker.image.features.get(TRANSACTION_VERSION, 0),
        producer_ids=broker.producer_ids,
        markers=markers,
        settings=TransactionSettings(
            max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
            id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
            abort_interval_ms=config.get_int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_interval_ms=config.get_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            two_phase_commit=config.get_bool("transaction.two.phase.commit.enable"),
            commit_timeout_ms=config.get_int("request.timeout.ms"),
            load_bytes=config.get_int("transaction.state.log.load.buffer.size"),
        ),
    )


def _verification(
    broker: Hosting, tasks: Tasks, links: Links, coordinator: TransactionCoordinator
) -> BrokerVerification:
    """Create the verification of transactions before this broker appends to them."""

    def leader_of(transactional_id: str) -> NodeId | None:
        image = broker.image
        partition = image.partition(TRANSACTION_TOPIC, coordinator.partition_for(transactional_id))
        leader = None if partition is None else image.brokers.get(partition.leader)
        return None if leader is None or leader.fenced else leader.id

    own, meters = OwnCoordinator(broker, coordinator), VerificationMeters(broker.metrics)
    verification = TransactionVerification(broker.runtime, tasks, links, leader_of, own, meters)
    return BrokerVerification(broker.runtime.clock, verification, lambda: broker.config)
