"""The job ``compact``: carries out the work orders that leaders of compacted partitions have put into the tier.

The leader believes nothing of what is made: it checks and publishes it (``milena.tiered.work.ordered_pass``). So a job
that is killed, or that runs twice, does no harm, and one that goes on writes only the groups that were not written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql.types import IntegerType, StructField, StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.compact.reading import SCANNED, KeyScan, Place, unpacked
from milena.pipeline.jobs.compact.winners import in_groups, records, sorted_keys, summaries, with_winners
from milena.pipeline.jobs.compact.writing import WRITTEN, GroupTask, KeysTask, decode_receipt, receipt_name
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.rows import frame_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.places import staging_of, storage_of
from milena.tiered.orders.carrying_out import Before, CannotBeCarriedOut, Scanned
from milena.tiered.orders.manifest import MadeGroup, Manifest, StagedObject, encode_manifest
from milena.tiered.orders.order import MANIFEST, ORDER, Order
from milena.tiered.orders.taking_up import aborted_of, producers_of, waiting_orders
from milena.tiered.store.remote_storage import RemoteStorage, RemoteStorageError
from milena.tiered.store.staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_PARTS: Final = 10_000
SOURCES: Final = StructType([StructField("group", IntegerType()), StructField("source", IntegerType())])
GROUPS: Final = StructType([StructField("group", IntegerType())])


@dataclass(frozen=True, slots=True)
class Compacted:
    """``orders``: carried out by this run; ``taken_back``: those that were void before that, or could not be;
    ``segments``: sources of the former."""

    orders: int
    taken_back: int
    segments: int


@dataclass(frozen=True, slots=True)
class _Open:
    loop: LoopThread
    storage: RemoteStorage
    staging: Staging


def compact(
    spark: SparkSession,
    tier: str,
    storage_options: str = "",
    *,
    chosen: Callable[[str], bool] = lambda _: True,
    told: Callable[[str], None] = lambda _: None,
    progress: Progress = silent,
) -> Compacted:
    """Carry out the orders that are in the tier, of the topics that are ``chosen``, until there are none. ``told``: of
    sentences about orders of which nothing comes.

    Raises PipelineError, and what the first order has failed with that could not be carried out, after the others."""
    place, failed, errors = Place(tier, storage_options), set[str](), list[Exception]()
    orders = segments = 0
    try:
        with _opened(place) as opened:
            while True:
                found = opened.loop.run(waiting_orders(opened.staging, time.time_ns() // 1_000_000))
                for sentence in found.unreadable:
                    if sentence not in failed:
                        failed.add(sentence)
                        told(sentence)
                left = [one for one in found.orders if chosen(one.partition.topic) and one.folder not in failed]
                if not left:
                    if errors:
                        raise errors[0]
                    return Compacted(orders, len(failed), segments)
                order = left[0]
                sources = sum(len(group.sources) for group in order.groups)
                progress("orders", orders, orders + len(left), "orders")
                try:
                    done = _tried(spark, opened, place, order, told)
                except RemoteStorageError:
                    raise
                except Exception as error:
                    told(f"{order.folder}: it failed; the other orders come first")
                    errors.append(error)
                    done = False
                if done:
                    orders, segments = orders + 1, segments + sources
                else:
                    failed.add(order.folder)
                progress("orders", orders, orders + len(left) - 1, "orders")
    except RemoteStorageError as error:
        raise PipelineError(f"option tier={tier}: {error}") from None


def _tried(spark: SparkSession, opened: _Open, place: Place, order: Order, told: Callable[[str], None]) -> bool:
    """Whether the order was carried out; if it was taken back meanwhile, what fails is no error."""
    try:
        carry_out(spark, opened, place, order)
    except CannotBeCarriedOut as error:
        told(f"{order.folder}: {error}")
        return False
    except Exception:
        if ORDER in opened.loop.run(opened.staging.names(order.folder)):
            raise
    if ORDER in opened.loop.run(opened.staging.names(order.folder)):
        return True
    opened.loop.run(opened.staging.remove(order.folder))  # what was written behind its back
    told(f"{order.folder}: it was taken back meanwhile")
    return False


def carry_out(spark: SparkSession, opened: _Open, place: Place, order: Order) -> None:
    """Raises CannotBeCarriedOut, PipelineError, RemoteStorageError, and what Spark raises."""
    aborted = tuple(opened.loop.run(aborted_of(opened.storage, order)))
    producers = opened.loop.run(producers_of(opened.staging, order))
    sources = [
        {"group": number, "source": at} for number, group in enumerate(order.groups) for at in range(len(group.sources))
    ]
    parts = min(len(sources), MOST_PARTS)
    frame = frame_of(spark, sources, SOURCES).repartition(parts, "group", "source")
    scanned = frame.mapInArrow(KeyScan(place, order, aborted), SCANNED).persist(StorageLevel.DISK_ONLY)
    try:
        befores = _befores(order, scanned)
        winners = with_winners(records(scanned)).persist(StorageLevel.DISK_ONLY)
        try:
            keys = _keys(place, order, winners, parts)
            left = _groups(opened, order)
            missing = [number for number, made in left.items() if made is None]
            if missing:
                groups = frame_of(spark, [{"group": number} for number in missing], GROUPS)
                task = GroupTask(place, order, aborted, producers, befores)
                in_groups(winners, groups, min(len(missing), MOST_PARTS)).mapInArrow(task, WRITTEN).count()
        finally:
            winners.unpersist()
    finally:
        scanned.unpersist()
    made = [one for one in _groups(opened, order).values() if one is not None]
    if len(made) != len(order.groups):
        raise PipelineError(f"{order.folder}: {len(order.groups) - len(made)} groups were not written")
    manifest = Manifest(order.id, order.leader_epoch, tuple(made), tuple(keys))
    opened.loop.run(opened.staging.write(order.path(MANIFEST), encode_manifest(manifest)))


def _befores(order: Order, scanned: DataFrame) -> dict[int, Before]:
    """What each group has before it: some bytes of each source."""
    rows = {(row["group"], row["source"]): row for row in summaries(scanned).toLocalIterator()}
    before, found = Before(), dict[int, Before]()
    for number, group in enumerate(order.groups):
        found[number] = before
        for at in range(len(group.sources)):
            row = rows[number, at]
            before = before.then(
                Scanned(unpacked(bytes(row["ended"])), unpacked(bytes(row["open"])), int(row["epoch"]))
            )
    return found


def _keys(place: Place, order: Order, winners: DataFrame, parts: int) -> list[StagedObject]:
    """The objects of sorted keys, in order."""
    task = KeysTask(place, order, uuid4().hex[:12])
    rows = sorted_keys(winners, parts).mapInArrow(task, WRITTEN).collect()  # one row of each part
    return [StagedObject(row["name"], row["size"], row["crc"]) for row in sorted(rows, key=lambda row: row["group"])]


def _groups(opened: _Open, order: Order) -> dict[int, MadeGroup | None]:
    """What was written of each group; None: nothing."""
    names = set(opened.loop.run(opened.staging.names(order.folder)))
    found: dict[int, MadeGroup | None] = {}
    for number in range(len(order.groups)):
        name = receipt_name(number)
        if name not in names:
            found[number] = None
            continue
        path = order.path(name)
        size = opened.loop.run(opened.staging.size(path))
        found[number] = decode_receipt(opened.loop.run(opened.staging.read(path, 0, size)))
    return found


@contextmanager
def _opened(place: Place) -> Iterator[_Open]:
    with LoopThread() as loop:
        storage = storage_of(loop.runtime, place.tier, place.storage_options)
        loop.at_end(storage.close)
        yield _Open(loop, storage, staging_of(loop.runtime, place.tier, place.storage_options, uuid4().hex))
