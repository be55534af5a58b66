"""The lab command ``transactions``: what this broker coordinates, in an answer of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import Final

from milena.broker.transactions.coordinator import TransactionCoordinator
from milena.broker.transactions.model import NO_TIME, NO_TIMEOUT, Transaction
from milena.broker.transactions.shard import Shard

LISTED: Final = 100
"""The maximum number of open ids, of prepared ids, and of others in an answer."""


def overview(coordinator: TransactionCoordinator, since: int | None) -> dict[str, object]:
    """Return the numbers of ids by state, some of the ids, and the transitions after ``since``.

    The ids with an open transaction come first, oldest first; then those that are prepared; then the ones that changed
    last, newest first. The time that this takes does not depend on the number of ids."""
    transitions = coordinator.transitions
    shards = list(coordinator.led())
    counts: dict[str, int] = {}
    for shard in shards:
        for state, count in shard.census.counts.items():
            if count:
                counts[state.label] = counts.get(state.label, 0) + count
    open_ids = _oldest((shard, shard.census.open) for shard in shards)
    prepared = _oldest((shard, shard.census.prepared) for shard in shards)
    return {
        "version": transitions.version,
        "last": transitions.last,
        "counts": counts,
        "total": sum(counts.values()),
        "loading": coordinator.loading_count,
        "ids": dict(chain(open_ids, prepared, _newest(coordinator, shards))),
        "transitions": [one.as_json() for one in ([] if since is None else transitions.since(since))],
    }


def _oldest(groups: Iterable[tuple[Shard, Iterable[str]]]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield ids that are in the order of their starts in each shard, in this order."""

    def of_shard(shard: Shard, ids: Iterable[str]) -> Iterator[tuple[int, str, Shard]]:
        for transactional_id in ids:
            yield shard.transactions[transactional_id].start_ms, transactional_id, shard

    merged = merge(*(of_shard(shard, ids) for shard, ids in groups), key=lambda one: one[:2])
    for _, transactional_id, shard in islice(merged, LISTED):
        yield transactional_id, row_of(shard, transactional_id, shard.transactions[transactional_id])


def _newest(coordinator: TransactionCoordinator, shards: list[Shard]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the ids without a transaction that changed last; after a start of the broker, any ids."""
    changed = (one.transactional_id for one in reversed(coordinator.transitions.since(0)))
    loaded = chain.from_iterable(islice(reversed(shard.transactions), LISTED) for shard in shards)
    found: set[str] = set()
    for transactional_id in chain(changed, loaded):
        if len(found) == LISTED:
            return
        shard = next((one for one in shards if transactional_id in one.transactions), None)
        if shard is None or transactional_id in found:
            continue
        if transactional_id in shard.census.open or transactional_id in shard.census.prepared:
            continue
        found.add(transactional_id)
        yield transactional_id, row_of(shard, transactional_id, shard.transactions[transactional_id])


def row_of(shard: Shard, transactional_id: str, known: Transaction) -> dict[str, object]:
    """Return what docs/http.md says of a transactional id."""
    pending = shard.pending(transactional_id)
    return {
        "state": known.state.label,
        "producer_id": known.producer_id,
        "producer_epoch": known.epoch,
        "start_ms": None if known.start_ms == NO_TIME else known.start_ms,
        "update_ms": known.update_ms,
        "timeout_ms": None if known.timeout_ms == NO_TIMEOUT else known.timeout_ms,
        "partitions": len(known.partitions),
        "pending": None if pending is None else pending.state.label,
    }
