"""Transactional ids by Kafka's protocol. Each function raises KafkaError and ChannelError."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from milena.client.cluster import Cluster
from milena.client.transactions import (
    TransactionDescription,
    TransactionListing,
    describe_listed,
    list_transactions,
)
from milena.console.model import Json
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.schemas.primitives import MAX_STRING

NO_TIMEOUT: Final = 2**31 - 1
UNFILTERED: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGULAR_EXPRESSION)
"""The errors of brokers that do not know the filter by a regular expression."""
OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states of ids whose transaction has not ended."""
MOST_DESCRIBED: Final = 100
"""Open ids of a coordinator that are described."""


async def listed(client: Cluster, states: Sequence[str], text: str) -> list[TransactionListing]:
    """Return the ids of all coordinators that contain ``text``, in one of ``states`` if there are some."""
    pattern = f"(?s).*{re.escape(text)}.*" if text else None
    try:
        if pattern is None or len(pattern.encode()) <= MAX_STRING:
            return await list_transactions(client, states=states, pattern=pattern)
    except KafkaError as error:
        if pattern is None or error.code not in UNFILTERED:
            raise
    every = await list_transactions(client, states=states)
    return [one for one in every if text in one.transactional_id]


async def open_ids(client: Cluster) -> dict[int, Json]:
    """Return each coordinator's part of the state, only with the ids whose transaction has not ended: a large cluster
    has too many ids to describe all in each round."""
    ids = await listed(client, OPEN, "")
    found: dict[int, Json] = {}
    for coordinator in {one.coordinator for one in ids}:
        here = [one for one in ids if one.coordinator == coordinator]
        known = sorted(await describe_listed(client, here[:MOST_DESCRIBED]), key=lambda one: one.start_ms or 0)
        found[coordinator] = {
            "counts": dict(Counter(one.state for one in here)),
            "total": None,
            "loading": 0,
            "ids": {one.transactional_id: row_of(one) for one in known},
        }
    return found


def row_of(known: TransactionListing | TransactionDescription) -> Json:
    """Return what docs/http.md says of a transactional id, as far as Kafka's protocol has it."""
    row = {"state": known.state, "producer_id": known.producer_id, "update_ms": None, "pending": None}
    if not isinstance(known, TransactionDescription):
        return row | {"producer_epoch": -1, "start_ms": None, "timeout_ms": None, "partitions": 0}
    return row | {
        "producer_epoch": known.producer_epoch,
        "start_ms": known.start_ms,
        "timeout_ms": None if known.timeout_ms == NO_TIMEOUT else known.timeout_ms,
        "partitions": len(known.partitions),
    }
