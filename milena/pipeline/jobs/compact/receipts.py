"""Receipts: which groups of a work order were written, and what of.

A group's receipt comes last, so a job that goes on writes only the groups that have none. It is as good as none if it
cannot be read.
"""

from __future__ import annotations

import asyncio
import json
from typing import Final

from milena.tiered.orders.manifest import MadeGroup, StagedObject
from milena.tiered.orders.order import Order
from milena.tiered.store.staging import Staging

AT_ONCE: Final = 16
MOST_BYTES: Final = 16 << 10
"""Of a receipt."""


def receipt_name(group: int) -> str:
    return f"group-{group}.receipt"


def encode_receipt(made: MadeGroup) -> bytes:
    log = None if made.log is None else made.log._asdict()
    return json.dumps({"log": log, "winners": made.winners._asdict()}).encode()


def decode_receipt(data: bytes) -> MadeGroup | None:
    """None if it cannot be read."""
    try:
        found = json.loads(data)
        log = None if found["log"] is None else StagedObject(**found["log"])
        return MadeGroup(log, StagedObject(**found["winners"]))
    except (ValueError, KeyError, TypeError):
        return None


async def written_groups(staging: Staging, order: Order) -> dict[int, MadeGroup]:
    """What there is of an order's groups, by their numbers. Raises RemoteStorageError."""
    names, limit = set(await staging.names(order.folder)), asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> MadeGroup | None:
        async with limit:
            path = order.path(receipt_name(number))
            size = await staging.size(path)
            return decode_receipt(await staging.read(path, 0, size)) if size <= MOST_BYTES else None

    there = [number for number in range(len(order.groups)) if receipt_name(number) in names]
    found = await asyncio.gather(*map(one, there))
    return {number: made for number, made in zip(there, found, strict=True) if made is not None}
