"""ACLs without an authorizer, quotas, and SCRAM credentials without SASL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.oracle.differential.pair import Pair, eventually, versions
from tests.oracle.differential.sides import CLOSED

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
RATE: Final = "producer_byte_rate"
Entity = Mapping[str, str | None]

ACL: Final = {"principal": "User:x", "host": "*", "operation": 3, "permission_type": 3}


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_ACLS))
def test_acl_requests_are_refused_without_an_authorizer(pair: Pair, version: int) -> None:
    wanted: dict[str, Any] = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    for kinds in ((1, 1, 1, 1), (2, 3, 3, 3), (6, 4, 10, 2), (99, 99, 99, 99)):
        names = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
        asked = {**wanted, **dict(zip(names, kinds, strict=True))}
        pair.same(ApiKey.DESCRIBE_ACLS, version, **asked)
        for filters in ([], [asked], [asked, asked]):
            pair.same(ApiKey.DELETE_ACLS, version, filters=filters)
    creation = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, **ACL}
    for creations in ([], [creation], [creation, creation]):
        pair.same(ApiKey.CREATE_ACLS, version, creations=creations)


def test_acl_requests_on_which_kafka_closes_the_connection_are_refused(pair: Pair) -> None:
    creation = {"resource_type": 0, "resource_name": "t", "resource_pattern_type": 3, **ACL}
    kafka, milena = pair.ask(ApiKey.CREATE_ACLS, 3, creations=[creation]).both
    assert kafka == CLOSED
    assert [one["error_code"] for one in milena["results"]] == [ErrorCode.SECURITY_DISABLED]


def alter(pair: Pair, version: int, *entries: tuple[Entity, Sequence[tuple[str, float | None]]], **more: Any) -> None:
    asked = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
        }
        for entity, ops in entries
    ]
    pair.same(ApiKey.ALTER_CLIENT_QUOTAS, version, entries=asked, **{"validate_only": False, **more})


def described(pair: Pair, version: int, *components: tuple[str, int, str | None], strict: bool = False) -> None:
    asked = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    pair.same(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=strict)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLIENT_QUOTAS))
def test_quotas_are_stored_and_described(pair: Pair, version: int) -> None:
    try:
        described(pair, version)
        alter(
            pair,
            version,
            ({"user": "ann"}, [(RATE, 1000.0), ("request_percentage", 12.5)]),
            ({"user": "ann", "client-id": "app"}, [("consumer_byte_rate", 5.0)]),
            ({"client-id": "app", "user": None}, [(RATE, 7.0)]),
            ({"user": None}, [("controller_mutation_rate", 0.5)]),
            ({"client-id": None}, [(RATE, 8.0)]),
            ({"client-id": "app"}, [(RATE, 9.0)]),
            ({"ip": "10.0.0.1"}, [("connection_creation_rate", 3.0)]),
            ({"ip": None}, [("connection_creation_rate", 4.0)]),
            ({"ip": "::1"}, [("connection_creation_rate", 5.0)]),
        )
        filters: list[list[tuple[str, int, str | None]]] = [
            [], [("user", EXACT, "ann")], [("user", DEFAULT, None)], [("user", ANY, None)], [("client-id", ANY, None)],
            [("user", EXACT, "ann"), ("client-id", EXACT, "app")], [("user", ANY, None), ("client-id", ANY, None)],
            [("ip", ANY, None)], [("ip", EXACT, "10.0.0.1")], [("ip", DEFAULT, None)], [("user", EXACT, "absent")],
            [("user", EXACT, None)], [("user", DEFAULT, "x")], [("user", ANY, "x")], [("user", 7, None)],
            [("", ANY, None)], [("group", ANY, None)], [("user", ANY, None), ("user", DEFAULT, None)],
            [("user", ANY, None), ("ip", ANY, None)],
        ]  # fmt: skip

        def look() -> None:
            for components in filters:
                for strict in (False, True):
                    described(pair, version, *components, strict=strict)

        eventually(look)
        alter(pair, version, ({"user": "ann"}, [(RATE, None), ("request_percentage", 13.0)]), ({"ip": None}, []))
        alter(pair, version, ({"user": "ann"}, [("consumer_byte_rate", None)]))
        eventually(look)
    finally:  # Kafka would enforce them in later tests
        alter(
            pair,
            version,
            ({"user": "ann"}, [("request_percentage", None)]),
            ({"user": "ann", "client-id": "app"}, [("consumer_byte_rate", None)]),
            ({"client-id": "app", "user": None}, [(RATE, None)]),
            ({"user": None}, [("controller_mutation_rate", None)]),
            ({"client-id": None}, [(RATE, None)]),
            ({"client-id": "app"}, [(RATE, None)]),
            ({"ip": "10.0.0.1"}, [("connection_creation_rate", None)]),
            ({"ip": None}, [("connection_creation_rate", None)]),
            ({"ip": "::1"}, [("connection_creation_rate", None)]),
        )
    eventually(look)


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CLIENT_QUOTAS))
def test_invalid_quotas_are_refused(pair: Pair, version: int) -> None:
    for entity, ops in (
        ({}, [(RATE, 1.0)]), ({"user": ""}, [(RATE, 1.0)]), ({"group": "g"}, [(RATE, 1.0)]), ({"": "g"}, [(RATE, 1.0)]),
        ({"user": "u", "ip": "10.0.0.1"}, [(RATE, 1.0)]), ({"ip": "no such host"}, [("connection_creation_rate", 1.0)]),
        ({"ip": "10.0.0.1"}, [(RATE, 1.0)]), ({"user": "u"}, [("connection_creation_rate", 1.0)]),
        ({"user": "u"}, [("no_such", 1.0)]), ({"user": "u"}, [("no_such", None)]), ({"user": "u"}, [(RATE, -1.0)]),
        ({"user": "u"}, [(RATE, 0.0)]), ({"user": "u"}, [(RATE, 1.5)]), ({"user": "u"}, [(RATE, 1e19)]),
        ({"user": "u"}, [("request_percentage", 0.01)]), ({"ip": "10.0.0.1"}, [("connection_creation_rate", 3e9)]),
        ({"user": "u"}, [(RATE, 1.0), (RATE, 2.0)]), ({"user": "u"}, [(RATE, 9223372036854775807.0)]),
        ({"user": "u"}, []),
    ):  # fmt: skip
        alter(pair, version, (entity, ops), validate_only=True)
    alter(pair, version)
    good: tuple[Entity, Sequence[tuple[str, float | None]]] = ({"user": "u"}, [(RATE, 1.0)])
    alter(pair, version, good, ({"user": "v"}, [("x", 1.0)]), validate_only=True)
    alter(pair, version, good, good, validate_only=True)


def test_no_user_has_scram_credentials(pair: Pair) -> None:
    for users in (None, [], ["ann"], ["ann", "bob"], ["ann", "ann"], [""]):
        named = None if users is None else [{"name": user} for user in users]
        pair.same(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=named)
