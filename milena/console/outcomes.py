"""The outcomes of the transactions of batches that are shown: committed, aborted, open, or unknown."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from milena.client.cluster import Cluster
from milena.client.consumer import AbortedBatches
from milena.client.offsets import LATEST, READ_COMMITTED, find_offset
from milena.client.raw_reads import RawRecords, read_raw
from milena.client.transactions import producers_of
from milena.protocol.errors import KafkaError
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.control_records import ControlType, decode_control_type
from milena.protocol.records.records import iter_records
from milena.protocol.requests.fetch import AbortedTransaction

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
UNKNOWN: Final = "unknown"
"""The transaction has ended, and its marker is behind the slice, after an older transaction that is open."""


def marker_of(batch: BatchView) -> str:
    """Return the type of a control batch's record, such as ``COMMIT``. Raises CorruptBatch, ValueError."""
    for record in iter_records(batch):
        return ControlType(decode_control_type(record.key or b"")).name
    return ""


class Outcomes:
    """The outcomes of the batches of one fetched slice. ``of`` is asked in the order of their offsets."""

    def __init__(
        self,
        data: bytes = b"",
        *,
        stable: int = 0,
        aborted: Sequence[AbortedTransaction] = (),
        opened: Mapping[int, int] | None = None,
    ) -> None:
        """``stable``: the last stable offset; ``aborted``: the aborted transactions before it; ``opened``: the first
        offset of the open transaction of each producer."""
        self._stable = stable
        self._aborted = AbortedBatches(aborted)
        self._opened = opened or {}
        self._markers: dict[int, list[tuple[int, str]]] = {}
        """Offset and outcome of each marker of the slice, by producer id."""
        for producer, offset, outcome in _markers(data) if data else ():
            self._markers.setdefault(producer, []).append((offset, outcome))

    def of(self, batch: BatchView) -> str | None:
        """Return the outcome of a batch's transaction; None outside of transactions. Raises CorruptBatch,
        ValueError."""
        if not batch.is_transactional:
            return None
        before_stable = batch.base_offset < self._stable
        aborted = before_stable and self._aborted.skips(batch)
        if batch.is_control:
            return ABORTED if marker_of(batch) == ControlType.ABORT.name else COMMITTED
        if before_stable:
            return ABORTED if aborted else COMMITTED
        first = self._opened.get(batch.producer_id)
        if first is not None and first <= batch.base_offset:
            return OPEN
        markers = self._markers.get(batch.producer_id, ())
        following = bisect(markers, batch.base_offset, key=lambda marker: marker[0])
        return markers[following][1] if following < len(markers) else UNKNOWN


def _markers(data: bytes) -> Iterator[tuple[int, int, str]]:
    for batch in iter_batches(memoryview(data)):
        if batch.is_control and batch.is_transactional:
            outcome = ABORTED if marker_of(batch) == ControlType.ABORT.name else COMMITTED
            yield batch.producer_id, batch.base_offset, outcome


async def outcomes_of(
    client: Cluster, topic: str, partition: int, offset: int, fetched: RawRecords, max_bytes: int, *, committed: bool
) -> Outcomes:
    """Return the outcomes for a slice that was fetched from ``offset`` on. A slice without transactions costs nothing.
    ``committed``: whether it was fetched with read_committed. Raises KafkaError, ChannelError, CorruptBatch,
    ValueError."""
    batches = [batch for batch in iter_batches(memoryview(fetched.data)) if batch.is_transactional]
    if not batches:
        return Outcomes()
    if committed:  # all of them are before the last stable offset
        return Outcomes(stable=fetched.end, aborted=fetched.aborted or ())
    stable = (await find_offset(client, topic, partition, LATEST, isolation=READ_COMMITTED)).offset
    aborted: Sequence[AbortedTransaction] = ()
    if offset < stable:
        ended = await read_raw(client, topic, partition, offset, committed=True, max_bytes=max_bytes)
        stable, aborted = min(stable, ended.end), ended.aborted or ()
    if batches[-1].base_offset < stable:
        return Outcomes(stable=stable, aborted=aborted)
    opened = await _opened(client, topic, partition)
    return Outcomes(fetched.data, stable=stable, aborted=aborted, opened=opened)


async def _opened(client: Cluster, topic: str, partition: int) -> dict[int, int]:
    """Return the first offsets of open transactions by producer id; none if the leader does not report them."""
    try:
        producers = (await producers_of(client, [(topic, partition)]))[topic, partition]
    except KafkaError:  # an older broker
        return {}
    return {one.producer_id: one.start_offset for one in producers if one.start_offset is not None}
