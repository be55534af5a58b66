"""The lab command `observe` of a broker: the changes of its replicas since the observer's last call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from milena.node.observed_changes import PAGE, Sessions, skip

if TYPE_CHECKING:
    from milena.broker.follower.fetchers import Fetchers
    from milena.broker.replica.partition import Partition
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.transactions.coordinator import TransactionCoordinator
    from milena.node.metadata.image import MetadataImage

UNKNOWN: Final = -1
Row: TypeAlias = tuple[object, ...]
Key: TypeAlias = tuple[str, int]


class Observed(Protocol):
    """What the command reads of the broker."""

    @property
    def fetchers(self) -> Fetchers: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def transactions(self) -> TransactionCoordinator: ...


class Observation:
    """The replicas of one broker as rows of JSON."""

    def __init__(self, node: Observed) -> None:
        self._node = node
        self._sessions: Sessions[Key, Row] = Sessions()

    def observe(self, session: str, from_: int = 0, end: bool = False) -> dict[str, object]:
        """Return the replicas that have changed since the session's last round.

        A row has role (L, F, O), log start, local log start, high watermark, last stable offset, log end, highest
        offset in the tier, bytes, leader epochs and their starts, leader epoch, follower state, followers (node, log
        end, broker epoch), the proposed ISR, and the oldest open transaction (producer id, first offset, timestamp of
        its last batch in ms). ``transactions`` changes when the command of this name has another answer. Raises
        LookupError for a later page of an unknown session."""
        if end:
            self._sessions.end(session)
            return {}
        seen = self._sessions.use(session, start=from_)
        changed, complete = seen.page(self._rows(from_))
        return {
            "rows": [[*key, row] for key, row in changed],
            "gone": [list(key) for key in seen.gone(self._is_hosted)] if complete else [],
            "first": seen.first,
            "next": None if complete else from_ + PAGE,
            "hosts": len(self._node.partitions),
            "leads": sum(one.is_leader for one in self._node.partitions) if complete else None,
            "metadata_offset": self._node.image.offset,
            "transitions": self._node.fetchers.transitions.last,
            "transactions": self._node.transactions.transitions.version,
        }

    def _is_hosted(self, key: Key) -> bool:
        return self._node.partitions.find(*key) is not None

    def _rows(self, start: int) -> Iterator[tuple[Key, Row]]:
        fetchers = self._node.fetchers
        for partition in skip(self._node.partitions, start):
            yield (partition.topic, partition.index), row_of(partition, fetchers)


def row_of(partition: Partition, fetchers: Fetchers) -> Row:
    """Return the row of one replica, as the docstring of `observe` describes it."""
    log, leading = partition.log, partition.leader_state
    if log is None:
        return ("O", *[UNKNOWN] * 7, [], partition.leader_epoch, "", [], [], [])
    followers: list[int] = []
    proposed: list[int] = []
    if leading is not None:
        for node, state in leading.followers.items():
            followers += (node, state.log_end, UNKNOWN if state.broker_epoch is None else state.broker_epoch)
        if partition.maximal_isr is not partition.isr and partition.maximal_isr != partition.isr:
            proposed = list(partition.maximal_isr)
    oldest = None if leading is None else log.producers.oldest_open
    return (
        "F" if leading is None else "L",
        log.log_start_offset,
        log.local_log_start_offset,
        log.high_watermark,
        log.last_stable_offset,
        log.log_end_offset,
        log.highest_offset_in_remote_storage,
        log.size,
        [number for entry in log.epochs.entries for number in entry],
        partition.leader_epoch,
        "" if leading is not None else fetchers.state_of(partition.topic, partition.index),
        followers,
        proposed,
        [] if oldest is None else [oldest.producer_id, oldest.first_offset, oldest.timestamp],
    )
