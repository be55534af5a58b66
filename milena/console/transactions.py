"""Transactions: search, details, producers of partitions, hanging ones, and what ends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, HTTPException, Query
from pydantic import Field

from milena.client import transactions
from milena.client.cluster import Cluster
from milena.client.transactions import ActiveProducer, OpenTransaction, TransactionDescription
from milena.console.context import Number, Position, Shared, Strict, Text, not_found
from milena.console.model import Json, Key, Model
from milena.console.state_types import NamedTransactionalId, TransactionDetails, TransactionStateName, answered
from milena.console.transactional_ids import listed, row_of
from milena.node.links.outgoing import ChannelError
from milena.protocol.errors import ErrorCode, KafkaError

router = APIRouter(tags=["transactions"])

MINUTE_MS: Final = 60_000
MOST_LISTED: Final = 1_000
MOST_PARTITIONS: Final = 200
"""Partitions of a transaction whose producers an answer has."""
MOST_SEARCHED: Final = 1_000
"""Partitions with open transactions in one search for hanging ones, which asks for AT_ONCE at a time."""
AT_ONCE: Final = 100
MOST_OPENED: Final = 2_000
"""Open transactions that a search asks the coordinators for."""
SEARCH_SECONDS: Final = 20.0
ONE_AT_A_TIME: Final = anyio.CapacityLimiter(1)
"""Of searches for hanging transactions."""
LEADING: Final = "L"
ROLE, OPEN_TRANSACTION = 0, 13
"""Positions in the row of a replica."""


class OpenPlace(Strict):
    """A transaction that is open in one partition."""

    topic: Text
    partition: Number
    start_offset: Position = Field(description="the first offset of the transaction")
    force: bool = Field(default=False, description="also a transaction that a coordinator will end: it may be torn")


class Id(Strict):
    """A transactional id."""

    transactional_id: Text = Field(min_length=1)


# -- queries


@router.get(
    "/api/transactions",
    response_model=None,
    responses=answered(dict[str, list[NamedTransactionalId] | int], "`ids`, and the `total` that the filters match"),
)
async def search(
    context: Shared,
    state: Annotated[list[TransactionStateName] | None, Query(description="only in one of these states")] = None,
    text: Annotated[Text, Query(description="only ids that contain this text")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
) -> dict[str, Any]:
    """Transactional ids of all coordinators, in the order of their names. Each coordinator looks at all its ids."""
    found = await listed(context.client, state or (), text)
    shown = found[:limit]
    known = {one.transactional_id: one for one in await transactions.describe_listed(context.client, shown)}
    rows = [
        {"transactional_id": one.transactional_id, "coordinator": one.coordinator}
        | row_of(known.get(one.transactional_id, one))
        for one in shown
    ]
    return {"ids": rows, "total": len(found)}


@router.get(
    "/api/transactions/description", response_model=None, responses=answered(TransactionDetails, "The transaction")
)
async def describe(context: Shared, transactional_id: Annotated[Text, Query(min_length=1)]) -> Json:
    """A transactional id, the partitions of its transaction, and what each partition knows of the producer."""
    found = await _description(context.client, transactional_id)
    shown = list(found.partitions[:MOST_PARTITIONS])
    producers, error = await _producers(context.client, shown)
    return {
        "transactional_id": transactional_id,
        "coordinator": found.coordinator,
        **row_of(found),
        "partitions": len(found.partitions),
        "error": error,
        "producers": [
            {"topic": topic, "partition": number, "producer": _of(found.producer_id, producers.get((topic, number)))}
            for topic, number in shown
        ],
    }


async def _description(client: Cluster, transactional_id: str) -> TransactionDescription:
    """Raises HTTPException 404, KafkaError, ChannelError."""
    try:
        return await transactions.describe_transaction(client, transactional_id)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
    raise not_found(f"no coordinator knows the transactional id {transactional_id!r}")


async def _producers(client: Cluster, partitions: list[Key]) -> tuple[dict[Key, list[ActiveProducer]], str]:
    """Return the producers of each partition, or why they are not known: a leader may be down, a topic deleted."""
    if not partitions:
        return {}, ""
    try:
        return await transactions.producers_of(client, partitions), ""
    except (KafkaError, ChannelError) as error:
        return {}, str(error)


def _of(producer_id: int, producers: Sequence[ActiveProducer] | None) -> Json | None:
    return next((one._asdict() for one in producers or () if one.producer_id == producer_id), None)


@router.get("/api/transactions/hanging")
async def hanging(
    context: Shared,
    minutes: Annotated[float, Query(ge=0, lt=1 << 31, description="only those without a record for so long")] = 15,
) -> dict[str, Any]:
    """Transactions that no coordinator will end, as `milena transactions find-hanging` finds them, in the partitions
    that have an open transaction now. `incomplete` says what was not searched; it is empty if all was."""
    await context.watch.fresh()
    found, incomplete = await search_hanging(context.client, open_partitions(context.model), round(minutes * MINUTE_MS))
    return {
        "hanging": [
            {"topic": one.partition[0], "partition": one.partition[1], **one.producer._asdict()} for one in found
        ],
        "incomplete": incomplete,
    }


async def search_hanging(client: Cluster, partitions: list[Key], open_for_ms: int) -> tuple[list[OpenTransaction], str]:
    """Return the hanging transactions in ``partitions``, and a text if not all of these were searched: a search looks
    up MOST_OPENED transactions in MOST_SEARCHED partitions at most, and takes SEARCH_SECONDS at most, with those before
    it. Raises KafkaError, ChannelError."""
    found: list[OpenTransaction] = []
    searched, left = 0, MOST_OPENED
    with anyio.move_on_after(SEARCH_SECONDS):
        async with ONE_AT_A_TIME:
            for start in range(0, min(len(partitions), MOST_SEARCHED), AT_ONCE):
                some = partitions[start : start + AT_ONCE]
                opened = await transactions.open_transactions(client, some, open_for_ms=open_for_ms)
                found += await transactions.hanging_among(client, opened[:left])
                left -= len(opened)
                if left < 0:
                    break
                searched += len(some)
    if searched == len(partitions):
        return found, ""
    return found, f"{searched:,} of {len(partitions):,} partitions with open transactions were searched"


def open_partitions(model: Model) -> list[Key]:
    """Return the partitions with an open transaction, the one without a record for the longest time first."""
    opened = [
        (row[OPEN_TRANSACTION][2], key)
        for key, replicas in model.replicas.items()
        for row in replicas.values()
        if row[ROLE] == LEADING and row[OPEN_TRANSACTION]
    ]
    return [key for _, key in sorted(opened)]


@router.get("/api/transactions/producers")
async def producers(
    context: Shared, topic: Annotated[Text, Query()], partition: Annotated[Number, Query()]
) -> dict[str, Any]:
    """The producers in the state of a partition's leader, with the first offsets of their open transactions."""
    found = await transactions.describe_producers(context.client, (topic, partition))
    return {"producers": [one._asdict() for one in found]}


# -- changes


@router.post("/api/transactions/abort")
async def abort(context: Shared, place: OpenPlace) -> dict[str, Any]:
    """Abort a hanging transaction in one partition, as `milena transactions abort` does. This cannot be undone."""
    partition = (place.topic, place.partition)
    name = f"{place.topic}-{place.partition}"
    producer = await transactions.producer_at(context.client, partition, place.start_offset)
    if producer is None:
        raise HTTPException(409, f"no open transaction of {name} begins at offset {place.start_offset}")
    owner = None if place.force else await transactions.owner_of(context.client, partition, producer)
    if owner is not None:
        said = (
            f"broker {owner.coordinator} will end the transaction of {owner.transactional_id} ({owner.state}) in {name}"
        )
        raise HTTPException(409, f"{said}; force-terminate ends it at once")
    await transactions.abort_transaction(context.client, partition, producer)
    text = f"abort the transaction of producer id {producer.producer_id} in {name}"
    context.model.feed.add("action", text, partition=partition)
    context.watch.soon()
    return {"ok": {"producer_id": producer.producer_id}}


@router.post("/api/transactions/force-terminate")
async def force_terminate(context: Shared, body: Id) -> dict[str, Any]:
    """Abort the open transaction of an id and fence its producer, as `milena transactions force-terminate` does. This
    cannot be undone."""
    found = await _description(context.client, body.transactional_id)
    producer = await transactions.fence_producer(context.client, body.transactional_id)
    context.model.feed.add("action", f"force-terminate {body.transactional_id}")
    context.watch.soon()
    return {
        "ok": {
            "aborted": found.state == "Ongoing",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
        }
    }
