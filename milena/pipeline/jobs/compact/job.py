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
from milena.pipeline.jobs.compact.receipts import decode_receipt, written_groups
from milena.pipeline.jobs.compact.winners import in_groups, records, sorted_keys, summaries, with_winners
from milena.pipeline.jobs.compact.writing import GROUPS, KEYS, GroupTask, KeysTask, check_stands
from milena.pipeline.jobs.progress import Progress, silent
from milena.pipeline.jobs.rows import frame_of
from milena.pipeline.loops import LoopThread
from milena.pipeline.places import staging_of, storage_of
from milena.tiered.orders.carrying_out import Before, CannotBeCarriedOut, Scanned
from milena.tiered.orders.manifest import MadeGroup, Manifest, StagedObject, encode_manifest
from milena.tiered.orders.order import MANIFEST, ORDER, Order
from milena.tiered.orders.taking_up import aborted_of, producers_of, waiting_orders
from milena.tiered.store.remote_storage import RemoteStorage, RemoteStorageError
from milena.tiered.store.staging import Staging, is_there

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_PARTS: Final = 10_000
PART: Final = 128 << 20
"""Bytes of sources that a task has, about; fewer if there would not be two tasks for each core."""
MISSING: Final = StructType([StructField("group", IntegerType())])


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
    done = segments = 0
    try:
        with _opened(place) as opened:
            while left := _left(opened, chosen, failed, told):
                for at, order in enumerate(left):
                    progress("orders", done, done + len(left) - at, "orders")
                    if not _still_waits(opened, order):
                        continue
                    if _tried(spark, opened, place, order, told, errors):
                        done, segments = done + 1, segments + sum(len(group.sources) for group in order.groups)
                    else:
                        failed.add(order.folder)
                    progress("orders", done, done + len(left) - at - 1, "orders")
    except RemoteStorageError as error:
        raise PipelineError(f"option tier={tier}: {error}") from None
    if errors:
        raise errors[0]
    return Compacted(done, len(failed), segments)


def _left(opened: _Open, chosen: Callable[[str], bool], failed: set[str], told: Callable[[str], None]) -> list[Order]:
    """The orders that are to be carried out now. ``failed`` gets those that cannot be read, and are told."""
    found = opened.loop.run(waiting_orders(opened.staging, _now()))
    for sentence in found.unreadable:
        if sentence not in failed:
            failed.add(sentence)
            told(sentence)
    return [one for one in found.orders if chosen(one.partition.topic) and one.folder not in failed]


def _still_waits(opened: _Open, order: Order) -> bool:
    """Others were carried out since it was read."""
    made = opened.loop.run(is_there(opened.staging, order.path(MANIFEST)))
    return not made and _stands(opened, order) and order.expires_at > _now()


def _stands(opened: _Open, order: Order) -> bool:
    return opened.loop.run(is_there(opened.staging, order.path(ORDER)))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _tried(
    spark: SparkSession,
    opened: _Open,
    place: Place,
    order: Order,
    told: Callable[[str], None],
    errors: list[Exception],
) -> bool:
    """Whether the order was carried out; if it has gone before, what fails is no error. ``errors`` gets what is. Raises
    RemoteStorageError."""
    done, failed = False, None
    try:
        carry_out(spark, opened, place, order)
        done = True
    except CannotBeCarriedOut as error:
        told(f"{order.folder}: {error}")
        return False
    except Exception as error:
        failed = error
    if not _stands(opened, order):
        opened.loop.run(opened.staging.remove(order.folder))  # what was written behind its leader's back
        if not done:
            told(f"{order.folder}: its leader has taken it back meanwhile, or what another job made of it")
        return done
    if isinstance(failed, RemoteStorageError):
        raise failed
    if failed is not None:
        told(f"{order.folder}: it failed; the other orders come first")
        errors.append(failed)
    return done


def carry_out(spark: SparkSession, opened: _Open, place: Place, order: Order) -> None:
    """Raises CannotBeCarriedOut, PipelineError, RemoteStorageError, and what Spark raises."""
    aborted = tuple(opened.loop.run(aborted_of(opened.storage, order)))
    producers = opened.loop.run(producers_of(opened.staging, order))
    sources = [source for group in order.groups for source in group.sources]
    parts = _parts(spark, len(sources), sum(source.segment.size for source in sources))
    frame = spark.range(0, len(sources), 1, parts)
    scanned = frame.mapInArrow(KeyScan(place, order, aborted), SCANNED).persist(StorageLevel.DISK_ONLY)
    try:
        befores = _befores(order, scanned)
        winners = with_winners(records(scanned), parts).persist(StorageLevel.DISK_ONLY)
        try:
            keys = _keys(place, order, winners, parts)
            made = opened.loop.run(written_groups(opened.staging, order))
            if missing := [number for number in range(len(order.groups)) if number not in made]:
                task = GroupTask(place, order, aborted, producers, befores)
                made |= _made(spark, order, winners, missing, task)
        finally:
            winners.unpersist()
    finally:
        scanned.unpersist()
    groups = [made[number] for number in sorted(made)]
    if len(groups) != len(order.groups):
        raise PipelineError(f"{order.folder}: {len(order.groups) - len(groups)} groups were not written")
    check_stands(opened.loop, opened.staging, order.folder)
    manifest = Manifest(order.id, order.leader_epoch, tuple(groups), tuple(keys))
    opened.loop.run(opened.staging.write(order.path(MANIFEST), encode_manifest(manifest)))


def _parts(spark: SparkSession, count: int, size: int) -> int:
    """How many tasks share so many sources or groups, which have so many bytes. Each is told the whole order, so very
    many small ones would take longer for that than for the rest."""
    return max(1, min(count, MOST_PARTS, max(2 * spark.sparkContext.defaultParallelism, size // PART)))


def _befores(order: Order, scanned: DataFrame) -> dict[int, Before]:
    """What each group has before it: some bytes of each source."""
    rows = {row["source"]: row for row in summaries(scanned).collect()}
    before, found, at = Before(), dict[int, Before](), 0
    for number, group in enumerate(order.groups):
        found[number] = before
        for _ in group.sources:
            row, at = rows[at], at + 1
            before = before.then(
                Scanned(unpacked(bytes(row["ended"])), unpacked(bytes(row["open"])), int(row["epoch"]))
            )
    return found


def _keys(place: Place, order: Order, winners: DataFrame, parts: int) -> list[StagedObject]:
    """The objects of sorted keys, in order."""
    task = KeysTask(place, order.folder, uuid4().hex[:12])
    rows = sorted_keys(winners, parts).mapInArrow(task, KEYS).collect()  # one row of each part
    return [StagedObject(row["name"], row["size"], row["crc"]) for row in sorted(rows, key=lambda row: row["part"])]


def _made(
    spark: SparkSession, order: Order, winners: DataFrame, missing: list[int], task: GroupTask
) -> dict[int, MadeGroup]:
    """Write the groups that are ``missing``."""
    groups = frame_of(spark, [{"group": number} for number in missing], MISSING)
    parts = _parts(spark, len(missing), sum(order.groups[number].size for number in missing))
    rows = in_groups(winners, groups, parts).mapInArrow(task, GROUPS).collect()  # a receipt of each
    found = {row["group"]: decode_receipt(bytes(row["receipt"])) for row in rows}
    return {number: made for number, made in found.items() if made is not None}


@contextmanager
def _opened(place: Place) -> Iterator[_Open]:
    with LoopThread() as loop:
        storage = storage_of(loop.runtime, place.tier, place.storage_options)
        loop.at_end(storage.close)
        yield _Open(loop, storage, staging_of(loop.runtime, place.tier, place.storage_options, uuid4().hex))
