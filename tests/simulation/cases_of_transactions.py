"""The cases of ``served_apis`` for transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from tests.simulation.served_apis import MISSING, NO_BROKER, TOPIC, Asker, Case, Fields, codes, named

INVALID_MAPPING: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def begun(t: Asker, of: str, version: int) -> Fields:
    """The fields that name a producer with a new transactional id. Its coordinator may have to load first."""
    transactional_id = t.name(of, version)
    asked: Fields = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
    while True:
        await t.ask(ApiKey.FIND_COORDINATOR, 6, key_type=1, coordinator_keys=[transactional_id])
        found = await t.ask(ApiKey.INIT_PRODUCER_ID, 4, producer_id=-1, producer_epoch=-1, **asked)
        if not found["error_code"]:
            break
        await asyncio.sleep(0.1)
    return {name: found[name] for name in ("producer_id", "producer_epoch")} | {"transactional_id": transactional_id}


def others(producer: Fields) -> Fields:
    """The same transactional id with a producer id that it does not have."""
    return producer | {"producer_id": producer["producer_id"] + 4711}


async def init_producer_id(t: Asker, v: int) -> None:
    nothing: Fields = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": 60_000}
    await t.well(ApiKey.INIT_PRODUCER_ID, v, transactional_id=None, **nothing)
    producer = await begun(t, "init", v)
    again = producer if v >= 3 else nothing | {"transactional_id": producer["transactional_id"]}
    await t.well(ApiKey.INIT_PRODUCER_ID, v, **nothing | again)
    wrong = nothing | {"transactional_id": ""}
    await t.refused(ApiKey.INIT_PRODUCER_ID, v, ErrorCode.INVALID_REQUEST, **wrong)


def added(v: int, producer: Fields, topic: str = TOPIC) -> Fields:
    """An AddPartitionsToTxn request."""
    topics = [{"name": topic, "partitions": [0]}]
    if v >= 4:
        return {"transactions": [producer | {"verify_only": False, "topics": topics}]}
    return {f"v3_and_below_{name}": value for name, value in (producer | {"topics": topics}).items()}


async def add_partitions_to_txn(t: Asker, v: int) -> None:
    producer = await begun(t, "adding", v)
    await t.well(ApiKey.ADD_PARTITIONS_TO_TXN, v, **added(v, producer))
    await t.refused(ApiKey.ADD_PARTITIONS_TO_TXN, v, INVALID_MAPPING, **added(v, others(producer)))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await t.refused(ApiKey.ADD_PARTITIONS_TO_TXN, v, unknown, **added(v, producer, MISSING))


async def add_offsets_to_txn(t: Asker, v: int) -> None:
    producer = await begun(t, "adding offsets", v)
    await t.well(ApiKey.ADD_OFFSETS_TO_TXN, v, group_id="g", **producer)
    await t.refused(ApiKey.ADD_OFFSETS_TO_TXN, v, INVALID_MAPPING, group_id="g", **others(producer))


async def end_txn(t: Asker, v: int) -> None:
    producer = await begun(t, "ending", v)
    await t.well(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **added(3, producer))
    await t.refused(ApiKey.END_TXN, v, INVALID_MAPPING, committed=True, **others(producer))
    await t.well(ApiKey.END_TXN, v, committed=True, **producer)


async def write_txn_markers(t: Asker, v: int) -> None:
    def asked(topic: str, producer_id: int = 4711) -> Fields:
        topics = [{"name": topic, "partition_indexes": [0]}]
        marker = {"producer_id": producer_id, "producer_epoch": 1, "coordinator_epoch": 0, "topics": topics}
        return {"markers": [marker | {"transaction_result": False, "transaction_version": 2}]}

    await t.well(ApiKey.WRITE_TXN_MARKERS, v, **asked(TOPIC))
    await t.refused(ApiKey.WRITE_TXN_MARKERS, v, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, **asked(MISSING))


async def txn_offset_commit(t: Asker, v: int) -> None:
    producer = await begun(t, "offsets", v)
    if v < 5:
        await t.well(ApiKey.ADD_OFFSETS_TO_TXN, 3, group_id="txn", **producer)

    def asked(topic: str) -> Fields:
        part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        member: Fields = {"group_id": "txn", "generation_id": -1, "member_id": "", "group_instance_id": None}
        return producer | member | {"topics": named(t, topic, [part])}

    await t.well(ApiKey.TXN_OFFSET_COMMIT, v, **asked(TOPIC))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if v >= 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await t.refused(ApiKey.TXN_OFFSET_COMMIT, v, unknown, **asked(MISSING))


async def describe_transactions(t: Asker, v: int) -> None:
    producer = await begun(t, "described", v)
    await t.well(ApiKey.DESCRIBE_TRANSACTIONS, v, transactional_ids=[producer["transactional_id"]])
    unknown = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    await t.refused(ApiKey.DESCRIBE_TRANSACTIONS, v, unknown, transactional_ids=[MISSING])


async def list_transactions(t: Asker, v: int) -> None:
    producer = await begun(t, "listed", v)

    def asked(pattern: str) -> dict[str, Any]:
        filters: Fields = {"state_filters": ["Empty"], "producer_id_filters": [], "duration_filter": -1}
        return filters | {"transactional_id_pattern": pattern}

    listed = await t.well(ApiKey.LIST_TRANSACTIONS, v, **asked("listed.*"))
    assert producer["transactional_id"] in {one["transactional_id"] for one in listed["transaction_states"]}
    if v >= 2:
        await t.refused(ApiKey.LIST_TRANSACTIONS, v, ErrorCode.INVALID_REGULAR_EXPRESSION, **asked("("))
    assert not any(codes(await t.ask(ApiKey.LIST_TRANSACTIONS, v, **asked("x") | {"producer_id_filters": [NO_BROKER]})))


TRANSACTIONS: Final[Mapping[ApiKey, Case]] = {
    ApiKey[case.__name__.upper()]: case
    for case in (
        init_producer_id, add_partitions_to_txn, add_offsets_to_txn, end_txn, write_txn_markers, txn_offset_commit,
        describe_transactions, list_transactions,
    )
}  # fmt: skip
