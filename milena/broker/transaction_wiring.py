"""Creates the transaction coordinator, the verification of transactions, and their connections from the broker's
configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milena.broker.transactions.batch_verification import BrokerVerification
from milena.broker.transactions.coordinator import Markers, TransactionCoordinator
from milena.broker.transactions.meters import VerificationMeters
from milena.broker.transactions.model import TransactionSettings
from milena.broker.transactions.verification import Links, TransactionVerification
from milena.node.links.broker_links import BrokerLinks
from milena.protocol.features import TRANSACTION_VERSION
from milena.protocol.types import TRANSACTION_TOPIC, NodeId
from milena.runtime.tasks import Tasks

if TYPE_CHECKING:
    from milena.broker.server import Broker


def inter_broker_links(broker: Broker, purpose: str) -> BrokerLinks:
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


def transaction_coordinator(broker: Broker, tasks: Tasks, markers: Markers) -> TransactionCoordinator:
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
        ),
    )


def transaction_verification(broker: Broker, tasks: Tasks, links: Links) -> BrokerVerification:
    """Create the verification of transactions before this broker appends to them. Call it after
    ``transaction_coordinator``."""

    def coordinator(transactional_id: str) -> NodeId | None:
        image = broker.image
        partition = image.partition(TRANSACTION_TOPIC, broker.transactions.partition_for(transactional_id))
        leader = None if partition is None else image.brokers.get(partition.leader)
        return None if leader is None or leader.fenced else leader.id

    questions = TransactionVerification(broker.runtime, tasks, links, coordinator, VerificationMeters(broker.metrics))
    return BrokerVerification(broker.runtime.clock, questions, lambda: broker.config)
