"""The cases of ``served_apis``: one for each API. A test fails if a served API has no case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from milena.lab.cluster import CONTROLLER_ID
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.requests.headers import request_header
from milena.protocol.schemas.registry import Role
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID
from tests.simulation.cases_of_groups import GROUPS
from tests.simulation.cases_of_transactions import TRANSACTIONS
from tests.simulation.served_apis import (
    MISSING,
    MISSING_ID,
    NO_BROKER,
    PRINCIPAL,
    TOPIC,
    TOPIC_RESOURCE,
    Asker,
    Case,
    Fields,
    batch,
    made,
    missing_topic,
    named,
    registered,
)

UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TIME: Final = {"timeout_ms": 5000}


async def produce(t: Asker, v: int) -> None:
    def asked(topic: str) -> Fields:
        return {"acks": -1, "topic_data": named(t, topic, [{"index": 0, "records": batch()}], "partition_data")} | TIME

    await t.well(ApiKey.PRODUCE, v, **asked(TOPIC))
    await t.refused(ApiKey.PRODUCE, v, missing_topic(v, 13), **asked(MISSING))


async def fetch(t: Asker, v: int) -> None:
    part = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }  # fmt: skip
    asked: Fields = {"max_wait_ms": 10, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1, "replica_id": -1}
    if t.role is Role.CONTROLLER:
        part |= {"current_leader_epoch": 1, "last_fetched_epoch": 0}
        of_log: Fields = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": [part]}
        if v >= 12:
            await t.well(ApiKey.FETCH, v, topics=[of_log], **asked)
        else:  # the last fetched epoch, which a fetch of this log must name, is missing
            await t.refused(ApiKey.FETCH, v, ErrorCode.INVALID_REQUEST, topics=[of_log], **asked)
        await t.ask(ApiKey.FETCH, v, topics=[of_log | {"topic": MISSING, "topic_id": MISSING_ID}], **asked)
        return

    def topics(name: str) -> list[Fields]:
        return [{"topic": name, "topic_id": t.topic_id if name == TOPIC else MISSING_ID, "partitions": [part]}]

    await t.well(ApiKey.FETCH, v, topics=topics(TOPIC), **asked)
    await t.refused(ApiKey.FETCH, v, missing_topic(v, 13), topics=topics(MISSING), **asked)


async def list_offsets(t: Asker, v: int) -> None:
    def topics(name: str, timestamp: int) -> list[Fields]:
        part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
        return [{"name": name, "partitions": [part]}]

    for timestamp in (-1, -2, 0):
        await t.well(ApiKey.LIST_OFFSETS, v, replica_id=-1, topics=topics(TOPIC, timestamp))
    await t.refused(ApiKey.LIST_OFFSETS, v, UNKNOWN, replica_id=-1, topics=topics(MISSING, -1))


async def metadata(t: Asker, v: int) -> None:
    await t.well(ApiKey.METADATA, v, topics=None if v else [], allow_auto_topic_creation=False)
    await t.well(ApiKey.METADATA, v, topics=[{"name": TOPIC}], allow_auto_topic_creation=False)
    missing = [{"name": MISSING}]
    await t.refused(ApiKey.METADATA, v, UNKNOWN, topics=missing, allow_auto_topic_creation=False)
    if v >= 12:
        unknown = [{"name": None, "topic_id": MISSING_ID}]
        await t.refused(ApiKey.METADATA, v, ErrorCode.UNKNOWN_TOPIC_ID, topics=unknown)


async def api_versions(t: Asker, v: int) -> None:
    await t.well(ApiKey.API_VERSIONS, v, client_software_name="sweep", client_software_version="1")
    if v >= 3:
        wrong = {"client_software_name": "", "client_software_version": ""}
        await t.refused(ApiKey.API_VERSIONS, v, ErrorCode.INVALID_REQUEST, **wrong)


async def create_topics(t: Asker, v: int) -> None:
    def topics(name: str, brokers: list[int]) -> list[Fields]:
        plan = [{"partition_index": 0, "broker_ids": brokers}]
        configs = [{"name": "retention.ms", "value": "1000"}]
        return [{"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": plan, "configs": configs}]

    await t.well(ApiKey.CREATE_TOPICS, v, topics=topics(t.name("made", v), [1]), **TIME)
    wrong = topics(t.name("unmade", v), [NO_BROKER])
    await t.refused(ApiKey.CREATE_TOPICS, v, ErrorCode.INVALID_REPLICA_ASSIGNMENT, topics=wrong, **TIME)


async def delete_topics(t: Asker, v: int) -> None:
    name = t.name("deleted", v)
    await made(t, name)
    await t.well(ApiKey.DELETE_TOPICS, v, topic_names=[name], topics=[{"name": name}], **TIME)
    missing: Fields = {"topic_names": [MISSING], "topics": [{"name": MISSING}]}
    await t.refused(ApiKey.DELETE_TOPICS, v, UNKNOWN, **missing, **TIME)
    if v >= 6:
        by_id = [{"name": None, "topic_id": await made(t, name)}]
        await t.well(ApiKey.DELETE_TOPICS, v, topics=by_id, **TIME)
        await t.refused(ApiKey.DELETE_TOPICS, v, ErrorCode.UNKNOWN_TOPIC_ID, topics=by_id, **TIME)


async def delete_records(t: Asker, v: int) -> None:
    def topics(name: str) -> list[Fields]:
        return [{"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}]

    await t.well(ApiKey.DELETE_RECORDS, v, topics=topics(TOPIC), **TIME)
    await t.refused(ApiKey.DELETE_RECORDS, v, UNKNOWN, topics=topics(MISSING), **TIME)


async def offset_for_leader_epoch(t: Asker, v: int) -> None:
    def topics(name: str) -> list[Fields]:
        return [{"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]

    await t.well(ApiKey.OFFSET_FOR_LEADER_EPOCH, v, replica_id=-1, topics=topics(TOPIC))
    await t.refused(ApiKey.OFFSET_FOR_LEADER_EPOCH, v, UNKNOWN, replica_id=-1, topics=topics(MISSING))


async def acls(t: Asker, v: int, key: ApiKey, **fields: Any) -> None:
    await t.refused(key, v, ErrorCode.SECURITY_DISABLED, **fields)


async def describe_acls(t: Asker, v: int) -> None:
    await acls(t, v, ApiKey.DESCRIBE_ACLS, resource_type_filter=1, pattern_type_filter=1, operation=1)


async def create_acls(t: Asker, v: int) -> None:
    one = {"resource_type": 2, "resource_name": TOPIC, "principal": "User:a", "host": "*"}
    await acls(t, v, ApiKey.CREATE_ACLS, creations=[one | {"operation": 3, "permission_type": 3}])


async def delete_acls(t: Asker, v: int) -> None:
    await acls(t, v, ApiKey.DELETE_ACLS, filters=[{"resource_type_filter": 1, "pattern_type_filter": 1}])


def resource(name: str, **more: Any) -> list[Fields]:
    return [{"resource_type": TOPIC_RESOURCE, "resource_name": name} | more]


async def describe_configs(t: Asker, v: int) -> None:
    asked = {"include_synonyms": True, "include_documentation": True}
    node = "1" if t.role is Role.BROKER else "1000"
    for resources in (resource(TOPIC), [{"resource_type": 4, "resource_name": node}]):
        await t.well(ApiKey.DESCRIBE_CONFIGS, v, resources=[one | {"configuration_keys": None} for one in resources])
    missing = resource(MISSING, configuration_keys=None)
    await t.refused(ApiKey.DESCRIBE_CONFIGS, v, UNKNOWN, resources=missing, **asked)


async def alter_configs(t: Asker, v: int) -> None:
    configs = [{"name": "retention.ms", "value": "60000"}]
    await t.well(ApiKey.ALTER_CONFIGS, v, resources=resource(TOPIC, configs=configs))
    await t.refused(ApiKey.ALTER_CONFIGS, v, UNKNOWN, resources=resource(MISSING, configs=configs))


async def incremental_alter_configs(t: Asker, v: int) -> None:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "70000"}]
    await t.well(ApiKey.INCREMENTAL_ALTER_CONFIGS, v, resources=resource(TOPIC, configs=configs))
    missing = resource(MISSING, configs=configs)
    await t.refused(ApiKey.INCREMENTAL_ALTER_CONFIGS, v, UNKNOWN, resources=missing)


async def alter_replica_log_dirs(t: Asker, v: int) -> None:
    def dirs(path: str, name: str) -> list[Fields]:
        return [{"path": path, "topics": [{"name": name, "partitions": [0]}]}]

    await t.well(ApiKey.ALTER_REPLICA_LOG_DIRS, v, dirs=dirs("/data", TOPIC))
    await t.refused(ApiKey.ALTER_REPLICA_LOG_DIRS, v, ErrorCode.LOG_DIR_NOT_FOUND, dirs=dirs("/nowhere", TOPIC))


async def describe_log_dirs(t: Asker, v: int) -> None:
    for topics in (None, [{"topic": TOPIC, "partitions": [0]}], [{"topic": MISSING, "partitions": [0]}]):
        await t.well(ApiKey.DESCRIBE_LOG_DIRS, v, topics=topics)


async def create_partitions(t: Asker, v: int) -> None:
    name = t.name("grown", v)
    await made(t, name)
    for count, plan in ((2, None), (3, [{"broker_ids": [1]}])):
        topics = [{"name": name, "count": count, "assignments": plan}]
        await t.well(ApiKey.CREATE_PARTITIONS, v, topics=topics, **TIME)
    topics = [{"name": MISSING, "count": 2, "assignments": None}]
    await t.refused(ApiKey.CREATE_PARTITIONS, v, UNKNOWN, topics=topics, **TIME)


async def elect_leaders(t: Asker, v: int) -> None:
    for name, error in ((TOPIC, ErrorCode.ELECTION_NOT_NEEDED), (MISSING, UNKNOWN)):
        parts = [{"topic": name, "partitions": [0]}]
        await t.refused(ApiKey.ELECT_LEADERS, v, error, election_type=0, topic_partitions=parts, **TIME)
    await t.well(ApiKey.ELECT_LEADERS, v, election_type=0, topic_partitions=None, **TIME)


async def alter_partition_reassignments(t: Asker, v: int) -> None:
    def topics(name: str, replicas: list[int]) -> list[Fields]:
        return [{"name": name, "partitions": [{"partition_index": 0, "replicas": replicas}]}]

    await t.well(ApiKey.ALTER_PARTITION_REASSIGNMENTS, v, topics=topics(TOPIC, [1]), **TIME)
    await t.refused(ApiKey.ALTER_PARTITION_REASSIGNMENTS, v, UNKNOWN, topics=topics(MISSING, [1]), **TIME)


async def list_partition_reassignments(t: Asker, v: int) -> None:
    for topics in (None, [{"name": TOPIC, "partition_indexes": [0]}], [{"name": MISSING, "partition_indexes": [0]}]):
        await t.well(ApiKey.LIST_PARTITION_REASSIGNMENTS, v, topics=topics, **TIME)


async def describe_client_quotas(t: Asker, v: int) -> None:
    await t.well(ApiKey.ALTER_CLIENT_QUOTAS, 1, role=Role.CONTROLLER, **quota("producer_byte_rate"))
    await t.well(ApiKey.DESCRIBE_CLIENT_QUOTAS, v, components=[{"entity_type": "user", "match_type": 2}])
    wrong = [{"entity_type": "", "match_type": 2}]
    await t.refused(ApiKey.DESCRIBE_CLIENT_QUOTAS, v, ErrorCode.INVALID_REQUEST, components=wrong)


def quota(key: str) -> Fields:
    ops = [{"key": key, "value": 1000.0, "remove": False}]
    return {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": ops}]}


async def alter_client_quotas(t: Asker, v: int) -> None:
    await t.well(ApiKey.ALTER_CLIENT_QUOTAS, v, **quota("producer_byte_rate"))
    await t.refused(ApiKey.ALTER_CLIENT_QUOTAS, v, ErrorCode.INVALID_REQUEST, **quota("unknown"))


async def describe_user_scram_credentials(t: Asker, v: int) -> None:
    await t.well(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, v, users=None)
    missing = ErrorCode.RESOURCE_NOT_FOUND
    await t.refused(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, v, missing, users=[{"name": MISSING}])


async def describe_quorum(t: Asker, v: int) -> None:
    def topics(name: str) -> list[Fields]:
        return [{"topic_name": name, "partitions": [{"partition_index": 0}]}]

    await t.well(ApiKey.DESCRIBE_QUORUM, v, topics=topics(METADATA_TOPIC))
    await t.refused(ApiKey.DESCRIBE_QUORUM, v, UNKNOWN, topics=topics(MISSING))


async def update_features(t: Asker, v: int) -> None:
    def updates(name: str, level: int) -> list[Fields]:
        return [{"feature": name, "max_version_level": level, "allow_downgrade": False, "upgrade_type": 1}]

    level = t.image.features["metadata.version"]
    await t.well(ApiKey.UPDATE_FEATURES, v, feature_updates=updates("metadata.version", level), **TIME)
    await t.refused(
        ApiKey.UPDATE_FEATURES, v, ErrorCode.INVALID_UPDATE_VERSION, feature_updates=updates(MISSING, 3), **TIME
    )


async def describe_cluster(t: Asker, v: int) -> None:
    own, other = (1, 2) if t.role is Role.BROKER else (2, 1)
    asked: Fields = {"include_cluster_authorized_operations": True, "include_fenced_brokers": True}
    await t.ask(ApiKey.DESCRIBE_CLUSTER, v, **asked)
    if v:
        await t.well(ApiKey.DESCRIBE_CLUSTER, v, endpoint_type=own, **asked)
        mismatch = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        await t.refused(ApiKey.DESCRIBE_CLUSTER, v, mismatch, endpoint_type=other, **asked)


async def describe_producers(t: Asker, v: int) -> None:
    await t.well(ApiKey.DESCRIBE_PRODUCERS, v, topics=[{"name": TOPIC, "partition_indexes": [0]}])
    missing = [{"name": MISSING, "partition_indexes": [0]}]
    await t.refused(ApiKey.DESCRIBE_PRODUCERS, v, UNKNOWN, topics=missing)


async def unregister_broker(t: Asker, v: int) -> None:
    number = 90 if t.role is Role.BROKER else 91
    await registered(t, number)
    await t.well(ApiKey.UNREGISTER_BROKER, v, broker_id=number)
    await t.refused(ApiKey.UNREGISTER_BROKER, v, ErrorCode.BROKER_ID_NOT_REGISTERED, broker_id=NO_BROKER)


async def unregister_controller(t: Asker, v: int) -> None:
    key = ApiKey.UNREGISTER_CONTROLLER
    await t.refused(key, v, ErrorCode.INVALID_REQUEST, controller_id=CONTROLLER_ID)
    await t.refused(key, v, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, controller_id=NO_BROKER)


async def list_config_resources(t: Asker, v: int) -> None:
    await t.well(ApiKey.LIST_CONFIG_RESOURCES, v, resource_types=[])
    if v:
        await t.well(ApiKey.LIST_CONFIG_RESOURCES, v, resource_types=[2, 4, 8, 16, 32])
        await t.refused(ApiKey.LIST_CONFIG_RESOURCES, v, ErrorCode.UNSUPPORTED_VERSION, resource_types=[99])


async def describe_topic_partitions(t: Asker, v: int) -> None:
    await t.well(ApiKey.DESCRIBE_TOPIC_PARTITIONS, v, topics=[{"name": TOPIC}], response_partition_limit=1)
    missing = [{"name": MISSING}]
    await t.refused(ApiKey.DESCRIBE_TOPIC_PARTITIONS, v, UNKNOWN, topics=missing, response_partition_limit=9)


async def alter_partition(t: Asker, v: int) -> None:
    partition = t.image.topics[TOPIC].partitions[0]
    part = {
        "partition_index": 0, "leader_epoch": int(partition.leader_epoch),
        "partition_epoch": int(partition.partition_epoch), "new_isr": [1], "leader_recovery_state": 0,
        "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": t.epoch}],
    }  # fmt: skip
    asked = {"broker_id": 1, "broker_epoch": t.epoch}
    await t.well(ApiKey.ALTER_PARTITION, v, topics=[{"topic_id": t.topic_id, "partitions": [part]}], **asked)
    missing = [{"topic_id": MISSING_ID, "partitions": [part]}]
    await t.refused(ApiKey.ALTER_PARTITION, v, ErrorCode.UNKNOWN_TOPIC_ID, topics=missing, **asked)
    stale = {"broker_id": NO_BROKER, "broker_epoch": 1}
    await t.refused(ApiKey.ALTER_PARTITION, v, ErrorCode.STALE_BROKER_EPOCH, topics=missing, **stale)


async def envelope(t: Asker, v: int) -> None:
    inner = ApiKey.LIST_PARTITION_REASSIGNMENTS
    data = request_header(inner, 0, 1, "sweep") + messages.encode_request(inner, 0, topics=None, timeout_ms=1000)
    host = bytes([127, 0, 0, 1])
    await t.well(ApiKey.ENVELOPE, v, request_data=data, request_principal=PRINCIPAL, client_host_address=host)
    other = request_header(ApiKey.METADATA, 0, 1, "sweep")
    wrong = {"request_data": other, "request_principal": PRINCIPAL, "client_host_address": host}
    await t.refused(ApiKey.ENVELOPE, v, ErrorCode.INVALID_REQUEST, **wrong)


async def fetch_snapshot(t: Asker, v: int) -> None:
    def topics(name: str, end_offset: int, epoch: int) -> list[Fields]:
        snapshot = {"end_offset": end_offset, "epoch": epoch}
        part = {"partition": 0, "current_leader_epoch": 1, "snapshot_id": snapshot, "position": 0}
        return [{"name": name, "partitions": [part]}]

    asked = {"replica_id": 1, "max_bytes": 1000}
    newest = await t.snapshot()
    await t.well(ApiKey.FETCH_SNAPSHOT, v, topics=topics(METADATA_TOPIC, *newest), **asked)
    missing = topics(METADATA_TOPIC, 1 << 40, 1)
    await t.refused(ApiKey.FETCH_SNAPSHOT, v, ErrorCode.SNAPSHOT_NOT_FOUND, topics=missing, **asked)
    await t.refused(ApiKey.FETCH_SNAPSHOT, v, UNKNOWN, topics=topics(MISSING, 0, 0), **asked)


async def broker_registration(t: Asker, v: int) -> None:
    if v >= 2:
        await registered(t, 50 + v, v)
    else:  # the request names no log directories, which this metadata version requires
        no_dirs = {"broker_id": 50 + v, "cluster_id": t.cluster_id, "incarnation_id": UUID(int=8), "listeners": []}
        await t.refused(ApiKey.BROKER_REGISTRATION, v, ErrorCode.INVALID_REGISTRATION, **no_dirs)
    asked = {"broker_id": 60, "cluster_id": MISSING, "incarnation_id": UUID(int=7), "listeners": [], "features": []}
    await t.refused(ApiKey.BROKER_REGISTRATION, v, ErrorCode.INCONSISTENT_CLUSTER_ID, **asked)


async def broker_heartbeat(t: Asker, v: int) -> None:
    epoch = await registered(t, 70)
    asked = {"current_metadata_offset": 0, "want_fence": True, "want_shut_down": False}
    await t.well(ApiKey.BROKER_HEARTBEAT, v, broker_id=70, broker_epoch=epoch, **asked)
    unknown = ErrorCode.STALE_BROKER_EPOCH
    await t.refused(ApiKey.BROKER_HEARTBEAT, v, unknown, broker_id=NO_BROKER, broker_epoch=1, **asked)


async def allocate_producer_ids(t: Asker, v: int) -> None:
    await t.well(ApiKey.ALLOCATE_PRODUCER_IDS, v, broker_id=1, broker_epoch=t.epoch)
    stale = ErrorCode.STALE_BROKER_EPOCH
    await t.refused(ApiKey.ALLOCATE_PRODUCER_IDS, v, stale, broker_id=NO_BROKER, broker_epoch=1)


async def assign_replicas_to_dirs(t: Asker, v: int) -> None:
    directory = t.image.brokers[1].log_dirs[0]

    def directories(topic_id: UUID) -> list[Fields]:
        topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
        return [{"id": directory, "topics": topics}]

    asked = {"broker_id": 1, "broker_epoch": t.epoch}
    await t.well(ApiKey.ASSIGN_REPLICAS_TO_DIRS, v, directories=directories(t.topic_id), **asked)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    await t.refused(ApiKey.ASSIGN_REPLICAS_TO_DIRS, v, unknown, directories=directories(MISSING_ID), **asked)


_OTHERS: Final[dict[ApiKey, Case]] = {
    ApiKey[case.__name__.upper()]: case
    for case in (
        produce, fetch, list_offsets, metadata, api_versions, create_topics, delete_topics, delete_records,
        offset_for_leader_epoch, describe_acls, create_acls, delete_acls, describe_configs,
        alter_configs, incremental_alter_configs, alter_replica_log_dirs, describe_log_dirs, create_partitions,
        elect_leaders, alter_partition_reassignments, list_partition_reassignments, describe_client_quotas,
        alter_client_quotas, describe_user_scram_credentials, describe_quorum, update_features, describe_cluster,
        describe_producers, unregister_broker, unregister_controller, list_config_resources,
        describe_topic_partitions, alter_partition, envelope,
        fetch_snapshot, broker_registration, broker_heartbeat, allocate_producer_ids,
        assign_replicas_to_dirs,
    )
}  # fmt: skip

CASES: Final[Mapping[ApiKey, Case]] = {**GROUPS, **TRANSACTIONS, **_OTHERS}
