"""Client quotas (KIP-546): checks and ClientQuotaRecords, as in Kafka's ClientQuotaControlManager.

An entity is changed as a whole or not at all. Neither the controller nor the brokers enforce quotas.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milena.config.values import BOUNDS, Type
from milena.controller.state.result import Result
from milena.controller.state.state import ControllerState
from milena.node.metadata.access_views import CLIENT_ID, ENTITY_TYPES, IP, QUOTA_KIND, USER, Entity
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import MetadataRecord, access

OF_CLIENTS: Final = {
    "producer_byte_rate": Type.LONG,
    "consumer_byte_rate": Type.LONG,
    "request_percentage": Type.DOUBLE,
    "controller_mutation_rate": Type.DOUBLE,
}
OF_ADDRESSES: Final = {"connection_creation_rate": Type.INT}
ALMOST_WHOLE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Change:
    """One entry of the request: values by key; None removes a quota."""

    entity: Entity
    values: Mapping[str, float | None]
    repeated_key: str | None = None


def alter(state: ControllerState, changes: Sequence[Change]) -> Result[dict[Entity, KafkaError | None]]:
    """Return each entity's error, or None if it is changed. An entity that is in the request twice is not changed."""
    records: dict[Entity, list[MetadataRecord]] = {}
    outcomes: dict[Entity, KafkaError | None] = {}
    for change in changes:
        entity = change.entity
        if entity in outcomes:
            outcomes[entity] = _invalid("The entity is in the request twice.")
            records.pop(entity, None)
            continue
        outcomes[entity] = None
        try:
            if change.repeated_key is not None:
                raise _invalid(f"The key {change.repeated_key} is in the request twice.")
            records[entity] = _records(state, entity, change.values)
        except KafkaError as error:
            outcomes[entity] = error.without_traceback()
    return Result([record for some in records.values() for record in some], outcomes)


def _records(state: ControllerState, entity: Entity, values: Mapping[str, float | None]) -> list[MetadataRecord]:
    known = _keys_of(entity)
    parts = tuple(access.QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity)
    records: list[MetadataRecord] = []
    for key, value in values.items():
        present = state.image.opaque.get((QUOTA_KIND, entity, key))
        assert present is None or isinstance(present, access.ClientQuotaRecord)
        if value is not None:
            _check(known, key, value)
            if present is None or present.value != value:
                records.append(access.ClientQuotaRecord(entity=parts, key=key, value=value, remove=False))
        elif present is not None:
            records.append(access.ClientQuotaRecord(entity=parts, key=key, value=0.0, remove=True))
    return records


def _keys_of(entity: Entity) -> Mapping[str, Type]:
    """Return the quota keys that the entity may have. Raises KafkaError for an invalid entity."""
    if not entity:
        raise _invalid("The entity is empty.")
    for kind, name in entity:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"The type of entity {kind} is unknown.")
        if name == "":
            raise _invalid(f"The name of the {kind} is empty.")
    kinds = dict(entity)
    if IP not in kinds:
        assert kinds.keys() <= {USER, CLIENT_ID}
        return OF_CLIENTS
    if len(kinds) > 1:
        raise _invalid("An IP address cannot be combined with a user or a client id.")
    if kinds[IP] is not None and not _is_address(str(kinds[IP])):
        raise _invalid(f"{kinds[IP]} is not an IP address.")
    return OF_ADDRESSES


def _is_address(text: str) -> bool:
    """Host names are not resolved: the lookup could block for a long time."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check(known: Mapping[str, Type], key: str, value: float) -> None:
    kind = known.get(key)
    if kind is None:
        raise _invalid(f"The key {key} is unknown.")
    if not value > 0:
        raise _invalid(f"{key} must be above 0.")
    if kind is Type.DOUBLE:
        return
    if value > float(BOUNDS[kind] - 1):  # the float of 2 ** 63 - 1 is 2 ** 63, which passes, as in Kafka
        raise _invalid(f"{key} is too large for a {kind.name}.")
    if math.fmod(value, 1) > ALMOST_WHOLE:
        raise _invalid(f"{key} must be a whole number.")


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, text)
