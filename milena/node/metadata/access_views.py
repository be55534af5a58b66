"""Quotas and SCRAM credentials in the form of requests and responses. The image stores them; nothing enforces them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from milena.node.metadata.image import MetadataImage
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.metadata_records import access

if TYPE_CHECKING:
    from milena.protocol.apis import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponseFields,
        ComponentData,
        CredentialInfoFields,
        DescribeUserScramCredentialsResultFields,
        EntryDataFields,
    )

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The entity of a quota: (type, name) pairs sorted by type. The name None means the default of that type."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2

QUOTA_KIND: Final = "quota"
SCRAM_KIND: Final = "scram"
"""The first elements of these records' keys in ``MetadataImage.opaque``."""


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """Return the canonical form of an entity with these names by type."""
    return tuple(sorted(parts.items(), key=lambda part: part[0]))


def quotas(image: MetadataImage) -> dict[Entity, dict[str, float]]:
    """Return the values of all quotas by entity and quota key."""
    by_entity: dict[Entity, dict[str, float]] = {}
    for record in image.opaque.values():
        if isinstance(record, access.ClientQuotaRecord):
            by_entity.setdefault(entity_of_quota(record), {})[record.key] = record.value
    return by_entity


def entity_of_quota(record: access.ClientQuotaRecord) -> Entity:
    """Return the entity of a quota."""
    return entity_of({part.entity_type: part.entity_name for part in record.entity})


def describe_quotas(
    image: MetadataImage, components: Sequence[ComponentData], *, strict: bool
) -> list[EntryDataFields]:
    """Return the entries of DescribeClientQuotas. ``strict``: only entities without other types than those of the
    filter. Raises KafkaError if the filter is invalid."""
    exact: dict[str, str | None] = {}
    present: set[str] = set()
    for component in components:
        kind = component.entity_type
        _check_type(kind, repeated=kind in exact or kind in present)
        _check_match(component)
        if component.match_type == ANY:
            present.add(kind)
        else:
            exact[kind] = component.match
    filter_types = exact.keys() | present
    if IP in filter_types and len(filter_types) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An IP address goes with neither a user nor a client id.")

    def matches(entity: Entity) -> bool:
        parts = dict(entity)
        if strict and len(parts) != len(filter_types):
            return False
        return present <= parts.keys() and all(kind in parts and parts[kind] == exact[kind] for kind in exact)

    return [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": key, "value": value} for key, value in values.items()],
        }
        for entity, values in quotas(image).items()
        if matches(entity)
    ]


def _check_type(kind: str, *, repeated: bool) -> None:
    if not kind:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A type of entity is empty.")
    if repeated:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The type of entity {kind} is given twice.")
    if kind not in ENTITY_TYPES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The type of entity {kind} is unknown.")


def _check_match(component: ComponentData) -> None:
    if component.match_type not in (EXACT, DEFAULT, ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The kind of match {component.match_type} is unknown.")
    if (component.match_type == EXACT) is (component.match is None):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name goes with an exact match, and an exact match needs it.")


def describe_scram(image: MetadataImage, users: Sequence[str]) -> list[DescribeUserScramCredentialsResultFields]:
    """Return the results of DescribeUserScramCredentials for ``users``, or for all users if ``users`` is empty."""
    known: dict[str, list[CredentialInfoFields]] = {}
    for record in image.opaque.values():
        if isinstance(record, access.UserScramCredentialRecord):
            info: CredentialInfoFields = {"mechanism": record.mechanism, "iterations": record.iterations}
            known.setdefault(record.name, []).append(info)
    times: dict[str, int] = {}
    for user in users:
        times[user] = times.get(user, 0) + 1
    return [_credentials(user, known, times.get(user, 1)) for user in times or known]


def _credentials(
    user: str, known: Mapping[str, list[CredentialInfoFields]], times: int
) -> DescribeUserScramCredentialsResultFields:
    error, message = ErrorCode.NONE, None
    if times > 1:
        error, message = ErrorCode.DUPLICATE_RESOURCE, f"The user {user} is given twice."
    elif user not in known:
        error, message = ErrorCode.RESOURCE_NOT_FOUND, f"The user {user} has no SCRAM credentials."
    return {
        "user": user,
        "error_code": int(error),
        "error_message": message,
        "credential_infos": [] if error else known[user],
    }


def failed_entries(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponseFields:
    """Return the response to an AlterClientQuotas request that failed as a whole."""
    return {
        "entries": [
            {
                "error_code": int(error.code),
                "error_message": error.text,
                "entity": [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity],
            }
            for entry in request.entries
        ]
    }
