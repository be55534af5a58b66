"""Registration of brokers (docs/kafka-semantics.md: Broker lifecycle, KIP-631, KIP-858, KIP-966).

A broker's epoch is the offset of the RegisterBroker record of its incarnation. While an incarnation has a session, no
other incarnation may register with its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from milena.config.listeners import SECURITY_PROTOCOLS
from milena.config.tiered_rules import COMPACTION_ENABLE
from milena.controller.rules.broker_changes import broker_restarted, broker_unregistered
from milena.controller.rules.tiered_hosts import hosted_without_ability
from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import BrokerImage, ListenerImage
from milena.node.metadata.image_records import broker_record
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import KRAFT_VERSION, METADATA_VERSION, REMOTE_COMPACTION
from milena.protocol.metadata_records import Endpoint, FeatureRange, RegisterBrokerRecord
from milena.protocol.types import RESERVED_DIRECTORIES, BrokerEpoch, NodeId
from milena.runtime.tcp.hosts import LAST_PORT, fault_of, shown

KRAFT_LEVEL = 0
"""With static voters kraft.version is 0, and there is no record for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A BrokerRegistration request. ``previous_epoch`` is None if the version has no field for a clean shutdown."""

    broker_id: NodeId
    cluster_id: str
    incarnation: UUID
    endpoints: tuple[ListenerImage, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    migrating: bool = False
    previous_epoch: int | None = None


def register(state: ControllerState, request: Registration, now: float) -> Result[BrokerEpoch]:
    """Register a new incarnation, or update its registration. Return its broker epoch.

    Raises KafkaError, in Kafka's order: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION,
    BROKER_ID_NOT_REGISTERED, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    if request.cluster_id != state.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"The cluster id is {state.cluster_id}, not {request.cluster_id}.",
        )
    existing = state.image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation == request.incarnation
    if existing is not None and not same and state.sessions.valid(existing.id, existing.epoch, now):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Broker {existing.id} has a live session; after an unclean stop it ends when the session times out.",
        )
    if request.migrating:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers that migrate from ZooKeeper cannot register.")
    if state.directories_supported:
        _check_directories(state, request)
    _check_address(request)
    _check_features(state.image.features, request.features)
    _check_tiered(state, request)
    # The same incarnation registers again, as after a lost response: it keeps its epoch and its partitions.
    if existing is not None and same:
        return Result((_record(state, request, existing.epoch, existing),), existing.epoch)
    # KIP-966: a broker knows its previous epoch only after a clean shutdown.
    clean = existing is not None and request.previous_epoch == existing.epoch
    records = broker_restarted(state, request.broker_id, clean=clean, log_dirs=request.log_dirs)
    # A broker epoch is the offset of the registration record, which comes after the partition changes.
    epoch = BrokerEpoch(state.next_offset + len(records))
    return Result((*records, _record(state, request, epoch, None)), epoch, atomic=False)


def unregister(state: ControllerState, broker_id: int) -> Result[None]:
    """Remove the registration of a broker. Raises KafkaError(BROKER_ID_NOT_REGISTERED)."""
    broker = state.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    return Result(broker_unregistered(state, broker), None, atomic=False)


def with_addresses(state: ControllerState, addresses: Mapping[int, tuple[str, int]]) -> list[RegisterBrokerRecord]:
    """Return the records that give brokers with one listener these addresses, by broker id, and change nothing else:
    the metadata is that of a snapshot, and the former addresses may be those of another cluster."""
    records: list[RegisterBrokerRecord] = []
    for broker in state.image.brokers.values():
        address = addresses.get(broker.id)
        if address is None or [(one.host, one.port) for one in broker.endpoints] == [address]:
            continue
        endpoints = (
            Endpoint(name=one.name, host=address[0], port=address[1], security_protocol=one.security_protocol)
            for one in broker.endpoints
        )
        records.append(replace(broker_record(broker), end_points=tuple(endpoints)))
    return records


def _check_directories(state: ControllerState, request: Registration) -> None:
    directories = request.log_dirs
    if not directories:
        raise _invalid("it names no log directory")
    if any(directory.int < RESERVED_DIRECTORIES for directory in directories):
        raise _invalid("it uses a reserved directory id")
    if len(set(directories)) != len(directories):
        raise _invalid("it names a directory twice")
    for other in state.image.brokers.values():
        if other.id != request.broker_id and not set(other.log_dirs).isdisjoint(directories):
            raise _invalid(f"one of its directories belongs to broker {other.id}")


def _check_address(request: Registration) -> None:
    """Reject what clients and other brokers could not use. Kafka stores a negative id and any host that is not empty.
    In
    Kafka an unknown protocol, port 0 or an empty host makes the controller resign, and a listener without a name ends
    it."""
    if request.broker_id < 0:
        raise _invalid(f"{request.broker_id} is not a broker id")
    for endpoint in request.endpoints:
        if not endpoint.name:
            raise _invalid("it has a listener without a name")
        if not 0 <= endpoint.security_protocol < len(SECURITY_PROTOCOLS):
            raise _invalid(f"security protocol {endpoint.security_protocol} is unknown")
        if not 0 < endpoint.port <= LAST_PORT:
            raise _invalid(f"{endpoint.port} is not a port")
        fault = fault_of(endpoint.host)
        if fault is not None:
            raise _invalid(f"{shown(endpoint.host)} is not a host name: {fault}")


def _check_features(finalized: Mapping[str, int], offered: Mapping[str, tuple[int, int]]) -> None:
    """Check that each finalized level is within the supported range; a feature without a range supports only level
    0."""
    levels = {**finalized, KRAFT_VERSION: KRAFT_LEVEL}
    for name, (lowest, highest) in offered.items():
        _check_feature(name, levels.get(name, 0), lowest, highest)
    if METADATA_VERSION not in offered:
        raise _invalid(f"it does not say which levels of {METADATA_VERSION} it supports")
    for name, level in levels.items():
        if name not in offered:
            _check_feature(name, level, 0, 0)


def _check_tiered(state: ControllerState, request: Registration) -> None:
    """Reject a broker without remote log compaction that hosts compacted topics with remote storage: it would lead them
    without knowing what was cleaned."""
    hosted = hosted_without_ability(state, request.broker_id, request.features)
    if hosted is not None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Broker {request.broker_id} hosts {hosted[0]}-{hosted[1]}, a compacted topic with remote "
            "storage, but does not "
            f"support {REMOTE_COMPACTION}: that needs Milena with {COMPACTION_ENABLE}=true.",
        )


def _check_feature(name: str, level: int, lowest: int, highest: int) -> None:
    if not lowest <= level <= highest:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{name} is finalized at {level}, but the broker supports {lowest} to {highest}.",
        )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, f"The registration is invalid: {why}.")


def _record(
    state: ControllerState, request: Registration, epoch: BrokerEpoch, amended: BrokerImage | None
) -> RegisterBrokerRecord:
    """A new incarnation starts fenced; an updated registration keeps its flags."""
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation,
        broker_epoch=epoch,
        end_points=tuple(
            Endpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.endpoints
        ),
        features=tuple(
            FeatureRange(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in request.features.items()
        ),
        rack=request.rack,
        fenced=amended is None or amended.fenced,
        in_controlled_shutdown=amended is not None and amended.in_controlled_shutdown,
        log_dirs=request.log_dirs if state.directories_supported else (),
    )
