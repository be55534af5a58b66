"""Taking up work orders: which there are, and what they need beside their sources."""

from __future__ import annotations

from typing import Final, NamedTuple

from milena.protocol.types import ProducerId
from milena.storage.cleaning.retained import LastRecord
from milena.storage.files.index_file import CorruptIndex
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot
from milena.storage.files.txn_index import AbortedTxn, decode_aborted
from milena.tiered.cleaning.window import Source
from milena.tiered.orders.carrying_out import CannotBeCarriedOut
from milena.tiered.orders.order import MANIFEST, ORDER, PRODUCERS, Order, decode_order
from milena.tiered.orders.texts import BadText
from milena.tiered.segments.segment_metadata import UNFENCED
from milena.tiered.store.remote_storage import IndexType, RemoteResourceNotFound, RemoteStorage
from milena.tiered.store.staging import Staging

MOST_BYTES: Final = 256 << 20
"""Of an order."""


class Waiting(NamedTuple):
    """``orders``: those that nobody has carried out, by the end of their time; ``unreadable``: sentences."""

    orders: list[Order]
    unreadable: list[str]


async def waiting_orders(staging: Staging, now: int) -> Waiting:
    """``now``: ms. Raises RemoteStorageError."""
    found = Waiting([], [])
    for partition in await staging.names():
        for name in await _names(staging, partition):
            folder = f"{partition}/{name}"
            names = await _names(staging, folder)
            if ORDER not in names or MANIFEST in names:
                continue
            try:
                order = await _read(staging, folder)
            except RemoteResourceNotFound:
                continue  # it was taken back
            except BadText as error:
                found.unreadable.append(f"{folder}: {error}")
                continue
            if order.expires_at > now:
                found.orders.append(order)
    found.orders.sort(key=lambda one: (one.expires_at, one.folder))
    return found


async def _names(staging: Staging, folder: str) -> list[str]:
    """Nothing of a file, which somebody has put beside the orders."""
    try:
        return await staging.names(folder)
    except RemoteResourceNotFound:
        return []


async def _read(staging: Staging, folder: str) -> Order:
    path = f"{folder}/{ORDER}"
    size = await staging.size(path)
    if size > MOST_BYTES:
        raise BadText(f"an order of {size} bytes")
    order = decode_order(await staging.read(path, 0, size))
    if order.folder != folder:
        raise BadText(f"the order is that of {order.folder}")
    return order


async def producers_of(staging: Staging, order: Order) -> dict[ProducerId, LastRecord]:
    """The last records of the producers at the order's end. Raises RemoteStorageError, CannotBeCarriedOut."""
    path = order.path(PRODUCERS)
    data = await staging.read(path, 0, await staging.size(path))
    try:
        entries = decode_snapshot(data)
    except CorruptSnapshot as error:
        raise CannotBeCarriedOut(f"{path}: {error}") from None
    return {producer: LastRecord(entry.last_offset, entry.epoch) for producer, entry in entries}


async def aborted_of(storage: RemoteStorage, order: Order) -> list[AbortedTxn]:
    """The transactions whose abort markers are in the order's window. Raises RemoteStorageError, CannotBeCarriedOut."""
    found: list[AbortedTxn] = []
    for source in (one for group in order.groups for one in group.sources):
        try:
            found += await aborted_in_source(storage, source)
        except CorruptIndex as error:
            raise CannotBeCarriedOut(str(error)) from None
    return found


async def aborted_in_source(storage: RemoteStorage, source: Source) -> list[AbortedTxn]:
    """The transactions whose abort markers are among its offsets. Raises RemoteStorageError, CorruptIndex."""
    segment = source.segment
    if segment.txn_index_empty:
        return []
    try:
        data = await storage.fetch_index(segment, IndexType.TRANSACTION)
    except RemoteResourceNotFound:
        if segment.leader_epoch != UNFENCED:
            raise
        data = b""  # Kafka before 4.0 does not say that there is none
    some = decode_aborted(data, f"transaction index of segment {segment.id}")
    return [one for one in some if source.first <= one.last_offset <= source.last]
