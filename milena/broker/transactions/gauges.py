"""Gauges of transactions on a broker, with Kafka's metric names."""

from __future__ import annotations

from milena.broker.transactions.coordinator import TransactionCoordinator
from milena.broker.transactions.markers import MarkerSender
from milena.node.metrics import Metrics


def register_gauges(metrics: Metrics, coordinator: TransactionCoordinator, markers: MarkerSender) -> None:
    """Kafka's ``kafka.coordinator.transaction:type=TransactionMarkerChannelManager`` and
    ``kafka.server:type=transaction-coordinator-metrics``, and the numbers of what this broker coordinates."""
    gauge = metrics.gauge
    manager = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    gauge(
        f"{manager}_unknowndestinationqueuesize",
        lambda: markers.without_leader,
        "Markers that wait because their partitions have no leader.",
    )
    gauge(
        f"{manager}_logappendretryqueuesize",
        lambda: sum(shard.retries for shard in coordinator.led()),
        "Completed transactions whose record is to be written again.",
    )
    loads = "kafka_server_transaction_coordinator_metrics_partition_load_time"
    for name, read, text in (
        ("avg", coordinator.loads.average_ms, "The average"),
        ("max", coordinator.loads.longest_ms, "The longest"),
    ):
        gauge(
            f"{loads}_{name}", read, f"{text} load of a partition of transactional ids in the last 30 seconds, in ms."
        )
    gauge(
        "milena_transactional_ids",
        lambda: sum(shard.size for shard in coordinator.led()),
        "Transactional ids coordinated here.",
    )
    gauge(
        "milena_open_transactions",
        lambda: sum(shard.open_count for shard in coordinator.led()),
        "Of these, those with an open transaction.",
    )
