"""The table of APIs: the versions in Kafka 4.4 and in Milena, and the roles that serve each API.

ApiVersions responses, the versions of headers, and docs/compatibility.md are derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from milena.protocol.api_keys import ApiKey
from milena.releases import ABSENT, NEWEST, RELEASES, differences


class Role(Enum):
    """The roles of a node, named as in ``process.roles``."""

    BROKER = "broker"
    CONTROLLER = "controller"


class VersionRange(NamedTuple):
    """The versions ``min`` to ``max``, inclusive."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"

    def includes(self, version: int) -> bool:
        return self.min <= version <= self.max


class Api(NamedTuple):
    """One API. ``ours`` is None if it is not served, ``flexible`` is the first flexible version (KIP-482), None if
    there is none. ``listeners`` are the roles that have the API in Kafka.

    ``advertised_min`` is the lowest version in ApiVersions, if it differs from the lowest served one.
    """

    key: ApiKey
    kafka: VersionRange
    ours: VersionRange | None
    flexible: int | None
    listeners: tuple[Role, ...]
    note: str = ""
    advertised_min: int | None = None


_BROKER: Final = (Role.BROKER,)
_CONTROLLER: Final = (Role.CONTROLLER,)
_BOTH: Final = (Role.BROKER, Role.CONTROLLER)


def _range(text: str) -> VersionRange:
    low, _, high = text.partition("-")
    return VersionRange(int(low), int(high or low))


def _api(
    key: ApiKey,
    kafka: str,
    flexible: int | None,
    listeners: tuple[Role, ...],
    *,
    served: bool = True,
    note: str = "",
    advertised_min: int | None = None,
) -> Api:
    versions = _range(kafka)
    return Api(key, versions, versions if served else None, flexible, listeners, note, advertised_min)


def _unsupported(key: ApiKey, kafka: str, flexible: int | None, listeners: tuple[Role, ...], note: str = "") -> Api:
    return _api(key, kafka, flexible, listeners, served=False, note=note)


_SECURITY: Final = "SASL and delegation tokens are not supported yet"
_NO_AUTHORIZER: Final = "SECURITY_DISABLED, as in Kafka without an authorizer"
_SHARE: Final = "share groups are not supported (feature share.version stays 0)"
_STREAMS: Final = "streams groups are not supported (feature streams.version stays 0)"
_CONSUMER: Final = "groups of the consumer protocol are not supported yet (feature group.version stays 0)"
_QUORUM: Final = "the controller is single, without elections and voter changes"

_APIS: Final = (
    _api(
        ApiKey.PRODUCE,
        "3-13",
        9,
        _BROKER,
        advertised_min=0,
        note="listed from 0, as Kafka lists it for old librdkafka",
    ),
    _api(ApiKey.FETCH, "4-18", 12, _BOTH),
    _api(ApiKey.LIST_OFFSETS, "1-11", 6, _BROKER),
    _api(ApiKey.METADATA, "0-13", 9, _BROKER),
    _api(ApiKey.OFFSET_COMMIT, "2-10", 8, _BROKER),
    _api(ApiKey.OFFSET_FETCH, "1-10", 6, _BROKER),
    _api(ApiKey.FIND_COORDINATOR, "0-6", 3, _BROKER),
    _api(ApiKey.JOIN_GROUP, "0-9", 6, _BROKER),
    _api(ApiKey.HEARTBEAT, "0-4", 4, _BROKER),
    _api(ApiKey.LEAVE_GROUP, "0-5", 4, _BROKER),
    _api(ApiKey.SYNC_GROUP, "0-5", 4, _BROKER),
    _api(ApiKey.DESCRIBE_GROUPS, "0-6", 5, _BROKER),
    _api(ApiKey.LIST_GROUPS, "0-5", 3, _BROKER),
    _unsupported(ApiKey.SASL_HANDSHAKE, "0-1", None, _BOTH, _SECURITY),
    _api(ApiKey.API_VERSIONS, "0-5", 3, _BOTH),
    _api(ApiKey.CREATE_TOPICS, "2-7", 5, _BOTH),
    _api(ApiKey.DELETE_TOPICS, "1-6", 4, _BOTH),
    _api(ApiKey.DELETE_RECORDS, "0-2", 2, _BROKER),
    _api(ApiKey.INIT_PRODUCER_ID, "0-5", 2, _BROKER, note="6 with unstable.api.versions.enable, as in Kafka"),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "2-4", 4, _BROKER),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, "0-5", 3, _BROKER),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, "0-4", 3, _BROKER),
    _api(ApiKey.END_TXN, "0-5", 3, _BROKER),
    _api(ApiKey.WRITE_TXN_MARKERS, "1-2", 1, _BROKER),
    _api(ApiKey.TXN_OFFSET_COMMIT, "0-6", 3, _BROKER),
    _api(ApiKey.DESCRIBE_ACLS, "1-3", 2, _BOTH, note=_NO_AUTHORIZER),
    _api(ApiKey.CREATE_ACLS, "1-3", 2, _BOTH, note=_NO_AUTHORIZER),
    _api(ApiKey.DELETE_ACLS, "1-3", 2, _BOTH, note=_NO_AUTHORIZER),
    _api(ApiKey.DESCRIBE_CONFIGS, "1-4", 4, _BOTH),
    _api(ApiKey.ALTER_CONFIGS, "0-2", 2, _BOTH),
    _api(ApiKey.ALTER_REPLICA_LOG_DIRS, "1-2", 2, _BROKER),
    _api(ApiKey.DESCRIBE_LOG_DIRS, "1-5", 2, _BROKER),
    _unsupported(ApiKey.SASL_AUTHENTICATE, "0-2", 2, _BOTH, _SECURITY),
    _api(ApiKey.CREATE_PARTITIONS, "0-3", 2, _BOTH),
    _unsupported(ApiKey.CREATE_DELEGATION_TOKEN, "1-3", 2, _BOTH, _SECURITY),
    _unsupported(ApiKey.RENEW_DELEGATION_TOKEN, "1-2", 2, _BOTH, _SECURITY),
    _unsupported(ApiKey.EXPIRE_DELEGATION_TOKEN, "1-2", 2, _BOTH, _SECURITY),
    _unsupported(ApiKey.DESCRIBE_DELEGATION_TOKEN, "1-3", 2, _BOTH, _SECURITY),
    _api(ApiKey.DELETE_GROUPS, "0-3", 2, _BROKER),
    _api(ApiKey.ELECT_LEADERS, "0-2", 2, _BOTH),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "0-1", 1, _BOTH),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "0-1", 0, _BOTH),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "0", 0, _BOTH),
    _api(ApiKey.OFFSET_DELETE, "0", None, _BROKER),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "0-1", 1, _BROKER),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, "0-1", 1, _BOTH, note="kept, not enforced"),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "0", 0, _BOTH),
    _unsupported(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "0", 0, _BOTH, _SECURITY),
    _unsupported(ApiKey.VOTE, "0-2", 0, _CONTROLLER, _QUORUM),
    _unsupported(ApiKey.BEGIN_QUORUM_EPOCH, "0-1", 1, _CONTROLLER, _QUORUM),
    _unsupported(ApiKey.END_QUORUM_EPOCH, "0-1", 1, _CONTROLLER, _QUORUM),
    _api(ApiKey.DESCRIBE_QUORUM, "0-2", 0, _BOTH),
    _api(ApiKey.ALTER_PARTITION, "2-3", 0, _CONTROLLER),
    _api(ApiKey.UPDATE_FEATURES, "0-2", 0, _BOTH),
    _api(ApiKey.ENVELOPE, "0", 0, _CONTROLLER),
    _api(ApiKey.FETCH_SNAPSHOT, "0-1", 0, _CONTROLLER),
    _api(ApiKey.DESCRIBE_CLUSTER, "0-2", 0, _BOTH),
    _api(ApiKey.DESCRIBE_PRODUCERS, "0", 0, _BROKER),
    _api(ApiKey.BROKER_REGISTRATION, "0-4", 0, _CONTROLLER),
    _api(ApiKey.BROKER_HEARTBEAT, "0-2", 0, _CONTROLLER),
    _api(ApiKey.UNREGISTER_BROKER, "0", 0, _BOTH),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, "0", 0, _BROKER),
    _api(ApiKey.LIST_TRANSACTIONS, "0-2", 0, _BROKER),
    _api(ApiKey.ALLOCATE_PRODUCER_IDS, "0", 0, _CONTROLLER),
    _unsupported(ApiKey.CONSUMER_GROUP_HEARTBEAT, "0-1", 0, _BROKER, _CONSUMER),
    _unsupported(ApiKey.CONSUMER_GROUP_DESCRIBE, "0-1", 0, _BROKER, _CONSUMER),
    _unsupported(ApiKey.CONTROLLER_REGISTRATION, "0", 0, _CONTROLLER, _QUORUM),
    _unsupported(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "0", 0, _BROKER, "Kafka lists it only with a telemetry reporter"),
    _unsupported(ApiKey.PUSH_TELEMETRY, "0", 0, _BROKER, "Kafka lists it only with a telemetry reporter"),
    _api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, "0", 0, _CONTROLLER),
    _api(ApiKey.LIST_CONFIG_RESOURCES, "0-1", 0, _BROKER),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "0", 0, _BROKER),
    _unsupported(ApiKey.SHARE_GROUP_HEARTBEAT, "1", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.SHARE_GROUP_DESCRIBE, "1", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.SHARE_FETCH, "1-2", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.SHARE_ACKNOWLEDGE, "1-2", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.ADD_RAFT_VOTER, "0-1", 0, _BOTH, _QUORUM),
    _unsupported(ApiKey.REMOVE_RAFT_VOTER, "0", 0, _BOTH, _QUORUM),
    _unsupported(ApiKey.UPDATE_RAFT_VOTER, "0", 0, _CONTROLLER, _QUORUM),
    _unsupported(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "0", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.READ_SHARE_GROUP_STATE, "0", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.WRITE_SHARE_GROUP_STATE, "0-1", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.DELETE_SHARE_GROUP_STATE, "0", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "0-1", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.STREAMS_GROUP_HEARTBEAT, "0-1", 0, _BROKER, _STREAMS),
    _unsupported(ApiKey.STREAMS_GROUP_DESCRIBE, "0-1", 0, _BROKER, _STREAMS),
    _unsupported(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "0-1", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "0", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "0", 0, _BROKER, _SHARE),
    _unsupported(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, "0", 0, _BROKER, _STREAMS),
    _api(ApiKey.UNREGISTER_CONTROLLER, "0", 0, _BOTH),
)

_UNSTABLE: Final = {ApiKey.INIT_PRODUCER_ID: (VersionRange(0, 6), "4.1")}
"""The APIs whose newest version is unstable: their versions with it, and the first release that has it."""

REGISTRY: Final[Mapping[int, Api]] = {api.key: api for api in _APIS}
"""Every API of Kafka 4.4 by its key, in the order of the keys."""


FORWARDABLE: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.UNREGISTER_CONTROLLER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""The APIs that a controller accepts from a broker on behalf of a client: those of Kafka that are served."""


def served(role: Role, release: str = NEWEST) -> dict[ApiKey, VersionRange]:
    """Return the versions that a node of this role serves, by key, if it behaves like ``release``."""
    ranges = {api.key: api.ours for api in _APIS if api.ours is not None and role in api.listeners}
    for name, text in differences(release, "api").items():
        _limit(ranges, ApiKey[name], None if text == ABSENT else _range(text))
    return ranges


def unstable(role: Role, release: str = NEWEST) -> dict[ApiKey, VersionRange]:
    """Return the versions of the APIs that have an unstable one, which ``unstable.api.versions.enable`` adds."""
    return {
        key: versions
        for key, (versions, since) in _UNSTABLE.items()
        if role in REGISTRY[key].listeners and RELEASES.index(release) >= RELEASES.index(since)
    }


def with_unstable(api: Api) -> VersionRange | None:
    """Return the versions of an API that a node may serve."""
    return api.ours if api.key not in _UNSTABLE else _UNSTABLE[api.key][0]


def _limit(ranges: dict[ApiKey, VersionRange], key: ApiKey, limit: VersionRange | None) -> None:
    ours = ranges.pop(key, None)
    if ours is not None and limit is not None:
        ranges[key] = VersionRange(max(ours.min, limit.min), min(ours.max, limit.max))


def advertised(role: Role, release: str = NEWEST) -> dict[ApiKey, VersionRange]:
    """Return the versions that ApiVersions lists for this role: the served ones, except the minimum of Produce."""
    ranges = served(role, release)
    for api in _APIS:
        if api.advertised_min is not None and api.key in ranges:
            ranges[api.key] = VersionRange(api.advertised_min, ranges[api.key].max)
    return ranges
