"""Steps with ACL requests, which both sides refuse without an authorizer, and steps that describe and change quotas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.sequences.script import TAG, Step
from tests.oracle.differential.sequences.world import World

QUOTAS: Final[Sequence[tuple[str, float]]] = (
    ("producer_byte_rate", 1000.0), ("consumer_byte_rate", 0.5), ("request_percentage", 12.5),
    ("controller_mutation_rate", 2.0), ("producer_byte_rate", -1.0), ("producer_byte_rate", 0.0),
    ("connection_creation_rate", 3.0), ("no_such_rate", 1.0), ("consumer_byte_rate", 1e19),
)  # fmt: skip
USERS: Final[Sequence[str | None]] = (f"{TAG}-u", f"{TAG}-u", f"{TAG}-v", None)
ADDRESSES: Final[Sequence[str | None]] = ("10.0.0.1", "::1", None)


def _acl(world: World, suffix: str = "") -> dict[str, Any]:
    """No kind is 0, because Kafka would close the connection."""
    return {
        f"resource_type{suffix}": world.of(1, 2, 3, 4, 7, 99),
        "operation": world.of(1, 2, 3, 8, 99),
        "permission_type": world.of(1, 2, 3, 99),
    }


def describe_acls(world: World) -> Step:
    asked = {**_acl(world, "_filter"), **_names(world), "pattern_type_filter": world.of(1, 2, 3, 4, 99)}
    return world.step(ApiKey.DESCRIBE_ACLS, world.version(ApiKey.DESCRIBE_ACLS), **asked)


def _names(world: World) -> dict[str, Any]:
    return {
        "resource_name_filter": world.of(None, "t", ""),
        "principal_filter": world.of(None, "User:x", "x"),
        "host_filter": world.of(None, "*", "h"),
    }


def delete_acls(world: World) -> Step:
    version = world.version(ApiKey.DELETE_ACLS)
    filters = [
        {**_acl(world, "_filter"), **_names(world), "pattern_type_filter": world.of(1, 2, 3, 4, 99)}
        for _ in range(world.upto(2))
    ]
    return world.step(ApiKey.DELETE_ACLS, version, filters=filters)


def create_acls(world: World) -> Step:
    named = {"resource_name": "t", "principal": "User:x", "host": "*"}
    pattern = {"resource_pattern_type": world.of(3, 4)}
    creations = [{**_acl(world), **named, **pattern} for _ in range(world.upto(2))]
    return world.step(ApiKey.CREATE_ACLS, world.version(ApiKey.CREATE_ACLS), creations=creations)


def _entity(world: World) -> list[tuple[str, str | None]]:
    user, client = ("user", world.one(USERS)), ("client-id", world.one(USERS))
    return world.of(
        [user], [user], [client], [user, client], [("ip", world.one(ADDRESSES))],
        world.of([], [user, ("ip", None)], [("group", "x")], [("user", "")]),
    )  # fmt: skip


def alter_quotas(world: World) -> Step:
    entries: dict[str, Any] = {}
    for _ in range(world.of(1, 1, 2)):
        entity = _entity(world)
        changes = dict(world.one(QUOTAS) for _ in range(world.of(1, 1, 2)))
        ops = [
            {"key": key, "value": value, "remove": remove}
            for key, value in changes.items()
            for remove in [world.chance(0.25)]
        ]
        entries[str(entity)] = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": ops,
        }
    version = world.version(ApiKey.ALTER_CLIENT_QUOTAS)
    # A default quota would also hold for the clients of this test, and Kafka would throttle them.
    everyone = any(one["entity_name"] is None for entry in entries.values() for one in entry["entity"])
    return world.step(
        ApiKey.ALTER_CLIENT_QUOTAS,
        version,
        entries=list(entries.values()),
        validate_only=everyone or world.chance(0.2),
    )


def describe_quotas(world: World) -> Step:
    """Describe quotas of at most one entity, because several have no defined order."""
    kind, name = world.one([one for one in _entity(world) if one[1] is not None] or [("user", f"{TAG}-u")])
    components = [{"entity_type": kind, "match_type": world.of(0, 0, 0, 7), "match": name}]
    version = world.version(ApiKey.DESCRIBE_CLIENT_QUOTAS)
    return world.step(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=True)


STEPS: Final[Sequence[tuple[int, Callable[[World], Step]]]] = (
    (2, describe_acls), (2, create_acls), (2, delete_acls), (6, alter_quotas), (5, describe_quotas),
)  # fmt: skip
