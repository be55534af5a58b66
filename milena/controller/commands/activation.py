"""The records that a controller writes when it becomes active (Kafka's ActivationRecordsGenerator;
docs/kafka-semantics.md: Framing of the metadata log)."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from milena.config.values import render
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import BROKER_RESOURCE, ListenerImage
from milena.protocol.features import (
    CONTROLLER_REGISTRATION,
    ELR_VERSION,
    METADATA_TRANSACTIONS,
    METADATA_VERSION,
)
from milena.protocol.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    Endpoint,
    EndTransactionRecord,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    RegisterControllerRecord,
)

MIN_ISR = "min.insync.replicas"


def activation_records(state: ControllerState, bootstrap: Sequence[MetadataRecord]) -> list[MetadataRecord]:
    """Return ``bootstrap`` in a metadata transaction if the log has no metadata.version yet; else the record that
    aborts an open transaction."""
    records: list[MetadataRecord] = []
    if state.in_transaction:
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if state.image.metadata_version:
        return records
    levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
    content: list[MetadataRecord] = list(bootstrap)
    if levels.get(ELR_VERSION, 0):
        value = render(state.static_config.get(MIN_ISR))
        content.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=value))
    if levels.get(METADATA_VERSION, 0) < METADATA_TRANSACTIONS:
        return records + content
    return [*records, BeginTransactionRecord(name="Bootstrap records"), *content, EndTransactionRecord()]


def registration_records(
    state: ControllerState, incarnation: UUID, endpoints: Sequence[ListenerImage], features: dict[str, tuple[int, int]]
) -> list[MetadataRecord]:
    """Return this controller's registration record (KIP-919) if metadata.version supports it."""
    if state.image.metadata_version < CONTROLLER_REGISTRATION:
        return []
    return [
        RegisterControllerRecord(
            controller_id=state.config.node_id,
            incarnation_id=incarnation,
            end_points=tuple(
                Endpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in endpoints
            ),
            features=tuple(
                FeatureRange(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in sorted(features.items())
            ),
        )
    ]
