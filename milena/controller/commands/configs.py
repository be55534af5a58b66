"""Dynamic configuration of topics, brokers, the whole cluster, groups and client metrics: checks and ConfigRecords
(KIP-339, KIP-226, KIP-714, KIP-848).

A resource is changed as a whole or not at all. An unchanged value of a broker is written too, because brokers then
reload the file that it names (KAFKA-14136).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from milena.config.group_config import validate_group_config
from milena.config.keys import REMOVED_FROM_MILENA, Keys
from milena.config.metrics_config import BadSubscription, validate_metrics_config
from milena.config.node_config import check_dynamic
from milena.config.topic_config import broker_values, validate_topic_config
from milena.config.values import ConfigError, Type, Value, render
from milena.controller.rules.tiered_hosts import check_change
from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.features import CORDONED_DIRECTORIES
from milena.protocol.metadata_records import ClearElrRecord, ConfigRecord, MetadataRecord
from milena.protocol.topic_names import topic_name_problem
from milena.runtime.numbers import whole
from milena.runtime.tcp.hosts import shown

Resource: TypeAlias = tuple[int, str]
"""Resource type and name; the name "" is the cluster-wide default of all brokers."""
Outcome: TypeAlias = KafkaError | None

MIN_ISR: Final = "min.insync.replicas"
CORDONED: Final = "cordoned.log.dirs"
MAX_VALUE_LENGTH: Final = 32_767


class Op(IntEnum):
    """What IncrementalAlterConfigs does with a key."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one key. ``value`` is None for DELETE."""

    op: Op
    value: str | None


def alter_incrementally(
    state: ControllerState, changes: Mapping[Resource, Mapping[str, Change]]
) -> Result[dict[Resource, Outcome]]:
    """IncrementalAlterConfigs: return each resource's error, or None if it is changed."""
    return _alter(state, {resource: _new_values(state, resource, keys) for resource, keys in changes.items()})


def replace(
    state: ControllerState, configs: Mapping[Resource, Mapping[str, str | None]]
) -> Result[dict[Resource, Outcome]]:
    """AlterConfigs: the items keys replace all keys of the resource."""
    new_values: dict[Resource, dict[str, str | None] | KafkaError] = {}
    for resource, values in configs.items():
        dropped: dict[str, str | None] = {key: None for key in state.image.config(*resource) if key not in values}
        new_values[resource] = {**values, **dropped}
    return _alter(state, new_values)


def creation_records(state: ControllerState, topic: str, values: Mapping[str, str]) -> list[MetadataRecord]:
    """Return the records for a topic that is being created with ``values``. Raises KafkaError(INVALID_CONFIG)."""
    resource = (TOPIC_RESOURCE, topic)
    _check_values(state, resource, dict(values))
    try:
        validate_topic_config(state.config, dict(values))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return _records(state, resource, values)


def _alter(
    state: ControllerState, new_values: Mapping[Resource, dict[str, str | None] | KafkaError]
) -> Result[dict[Resource, Outcome]]:
    records: list[MetadataRecord] = []
    outcomes: dict[Resource, Outcome] = {}
    defaults = broker_values(state.config)
    for resource, values in new_values.items():
        outcomes[resource] = None
        try:
            if isinstance(values, KafkaError):
                raise values
            _check(state, resource, values, defaults)
        except KafkaError as error:
            outcomes[resource] = error.without_traceback()
        else:
            records += _records(state, resource, values)
    return Result(records, outcomes)


def _new_values(
    state: ControllerState, resource: Resource, changes: Mapping[str, Change]
) -> dict[str, str | None] | KafkaError:
    """Return the new values by key (None deletes), or an error for the resource."""
    present = state.image.config(*resource)
    values: dict[str, str | None] = {}
    for key, change in changes.items():
        match change.op:
            case Op.SET:
                values[key] = change.value
            case Op.DELETE:
                values[key] = None
            case Op.APPEND | Op.SUBTRACT:
                parts = _list_parts(state.config.keys, resource, key, present.get(key))
                if parts is None:
                    return KafkaError(
                        ErrorCode.INVALID_CONFIG, f"{change.op.name} needs a key of type LIST, which {key} is not."
                    )
                values[key] = ",".join(_edited(parts, change))
    return values


def _list_parts(keys: Keys, resource: Resource, key: str, present: str | None) -> list[str] | None:
    """Return the present items of a list; None if the key is no list. Only topics and brokers have lists, as in
    Kafka."""
    known = {TOPIC_RESOURCE: keys.topic, BROKER_RESOURCE: keys.broker}.get(resource[0], {}).get(key)
    if known is None or known.type is not Type.LIST:
        return None
    if present is None and isinstance(known.default, tuple):
        present = render(known.default)
    return [part for part in (present or "").split(",") if part]


def _split(text: str) -> list[str]:
    """Split like Java's ``String.split``: trailing empty items are dropped, but an empty text is one empty item."""
    return text.rstrip(",").split(",") if text.strip(",") or not text else []


def _edited(parts: list[str], change: Change) -> list[str]:
    """Return the list with missing items appended (APPEND), or without the first occurrence of each (SUBTRACT)."""
    items = _split(change.value or "")
    if change.op is Op.APPEND:
        present = set(parts)
        return parts + [item for item in dict.fromkeys(items) if item not in present]
    to_remove = Counter(items)
    kept = []
    for part in parts:
        if to_remove[part]:
            to_remove[part] -= 1
        else:
            kept.append(part)
    return kept


def _check(
    state: ControllerState, resource: Resource, values: Mapping[str, str | None], defaults: Mapping[str, Value]
) -> None:
    """Raises KafkaError if the resource does not exist or cannot have these values."""
    kind, name = resource
    _check_values(state, resource, values)
    merged = {**state.image.config(kind, name), **values}
    after = {key: value for key, value in merged.items() if value is not None}
    try:
        if kind == TOPIC_RESOURCE:
            _check_topic_name(name)
            validate_topic_config(state.config, after, before=state.image.config(kind, name), defaults=defaults)
            # Kafka too checks the values before the existence of the topic.
            topic = state.image.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            check_change(state, topic, state.image.config(kind, name), after)
        elif kind == BROKER_RESOURCE:
            _check_broker_name(state, name)
            given = {key: value for key, value in values.items() if value is not None}
            _check_broker_values(state.config.release, name, given, after)
        elif kind in (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE):
            _check_subscriber(kind, name, after)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Resources of type {kind} have no configuration.")
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_subscriber(kind: int, name: str, values: Mapping[str, str]) -> None:
    """Check a group or a client metrics subscription, which need not exist. Raises KafkaError, ConfigError."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The resource has no name.")
    if kind == GROUP_RESOURCE:
        validate_group_config(values)
        return
    try:
        validate_metrics_config(values)
    except BadSubscription as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_topic_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topics have no common default configuration.")
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{problem[0].upper()}{problem[1:]}.")


def _check_broker_name(state: ControllerState, name: str) -> None:
    if not name:
        return
    broker = whole(name)
    if broker is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{shown(name)} is not a broker id.")
    if broker < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The broker id {broker} is negative.")
    if broker not in state.image.brokers and broker != state.config.node_id:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node has the id {broker}.")


def _check_broker_values(release: str, name: str, values: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Raises KafkaError(INVALID_REQUEST) for an invalid value, as Kafka does for brokers (KAFKA-13609). ``after``: the
    whole configuration with the changes, which defines the config providers."""
    try:
        check_dynamic(values, per_broker=bool(name), after=after, release=release)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _check_values(state: ControllerState, resource: Resource, values: Mapping[str, str | None]) -> None:
    kind, name = resource
    for key, value in values.items():
        if value is not None and len(value) > MAX_VALUE_LENGTH:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"The value of {key} is longer than {MAX_VALUE_LENGTH} characters."
            )
        if kind != BROKER_RESOURCE:
            continue
        if key in REMOVED_FROM_MILENA and value is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} was removed from Milena.")
        if key == MIN_ISR and state.elr_enabled and (name or value is None):
            problem = "set on a single broker" if name else "removed for the cluster"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"While ELR is enabled, {MIN_ISR} cannot be {problem}.")
        if key == CORDONED and state.image.metadata_version < CORDONED_DIRECTORIES:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{CORDONED} needs metadata.version {CORDONED_DIRECTORIES} or above."
            )


def _records(state: ControllerState, resource: Resource, values: Mapping[str, str | None]) -> list[MetadataRecord]:
    kind, name = resource
    present = state.image.config(kind, name)
    records: list[MetadataRecord] = []
    cleared = False
    for key, value in values.items():
        if kind == BROKER_RESOURCE or present.get(key) != value:
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))
            cleared = cleared or key == MIN_ISR
    if cleared and state.elr_enabled:
        records.append(ClearElrRecord(topic_name=name if kind == TOPIC_RESOURCE else ""))
    return records
