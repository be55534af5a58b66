"""A log whose parts were corrupted so that they contradict each other goes offline before it returns any data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from milena.protocol.errors import KafkaError
from milena.protocol.invariants import BrokenInvariant
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset, ProducerId
from milena.storage.log.broken_log import BrokenLog
from milena.storage.log.segment import Segment
from milena.storage.log.unified_log import UnifiedLog
from milena.storage.manager.future_logs import FutureLogs
from milena.storage.manager.log_manager import LogManager
from milena.storage.state.producer_state import ProducerEntry
from tests.fixtures.forms import ON_PURE
from tests.unit.storage.logs import LogFolder, append, batch_of, marker, values_of

AWAY = Offset(1000)


def transactional(log: UnifiedLog, sequence: int = 0) -> None:
    append(log, b"x", producer=(7, 0, sequence), transactional=True)


def producer(log: UnifiedLog) -> ProducerEntry:
    entry = log.producers.get(7)
    assert entry is not None
    return entry


def bytes_that_were_not_appended(log: UnifiedLog) -> None:
    log.segments.active.size += 1
    append(log, b"x")


def an_index_that_falls(log: UnifiedLog) -> None:
    log.segments.active.offset_index.add(500, 5000)
    append(log, b"x")


def a_batch_before_the_producers_last(log: UnifiedLog) -> None:
    transactional(log)
    producer(log).batches[-1] = producer(log).batches[-1]._replace(last_offset=AWAY)
    transactional(log, 1)


def a_transaction_before_an_open_one(log: UnifiedLog) -> None:
    log.producers._open = {AWAY: ProducerId(8)}
    transactional(log)


def a_transaction_that_ends_before_it_begins(log: UnifiedLog) -> None:
    transactional(log)
    producer(log).txn_first_offset = AWAY
    log.append_as_leader(marker((7, 0), commit=True), leader_epoch=LeaderEpoch(1), origin=Origin.COORDINATOR)


def an_open_transaction_beyond_the_end(log: UnifiedLog) -> None:
    log.producers._open = {AWAY: ProducerId(8)}
    log.truncated()


def records_before_their_segment(log: UnifiedLog) -> None:
    log.segments.add(Segment.create(log.context, log.folder, AWAY, log.config))
    log.append_as_follower(batch_at(log.log_end_offset), leader_epoch=LeaderEpoch(1))


def batch_at(offset: Offset) -> memoryview:
    """A batch as a follower fetches it from its leader."""
    data = batch_of(b"x")
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = bytes(4)
    return data


@pytest.mark.parametrize(
    "corrupt",
    [
        bytes_that_were_not_appended,
        an_index_that_falls,
        a_batch_before_the_producers_last,
        a_transaction_before_an_open_one,
        a_transaction_that_ends_before_it_begins,
        an_open_transaction_beyond_the_end,
        records_before_their_segment,
    ],
)
def test_a_log_whose_parts_contradict_each_other_goes_offline(
    tmp_path: Path, corrupt: Callable[[UnifiedLog], None]
) -> None:
    folder = LogFolder(tmp_path, index_interval_bytes=0)
    log = folder.open()
    for number in range(3):
        append(log, b"%d" % number, epoch=1)
    with pytest.raises(BrokenLog):
        corrupt(log)
    (event,) = folder.events.named("log offline, invariant violated")
    assert event["log_end"] == log.log_end_offset
    with pytest.raises(KafkaError, match="is offline"):
        append(log, b"x")
    with pytest.raises(KafkaError, match="is offline"):
        values_of(log)
    assert not folder.context.offline, "the other logs of the directory stay online"


def test_segments_have_different_base_offsets_and_the_active_one_is_never_removed(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"x", epoch=1)
    with pytest.raises(BrokenInvariant, match="begin at 0"):
        log.segments.add(Segment.create(log.context, f"{tmp_path}", Offset(0), log.config))
    with pytest.raises(BrokenInvariant, match="1 of 1 segments would be removed"):
        log.segments.take_first(1)
    assert len(log.segments) == 1


@ON_PURE
def test_a_copy_that_lacks_records_is_not_promoted(tmp_path: Path) -> None:
    log, copy = LogFolder(tmp_path / "a").open(), LogFolder(tmp_path / "b").open()
    append(log, b"x", epoch=1)
    futures = FutureLogs(cast("LogManager", SimpleNamespace(node_id=1)), cast("Any", None))
    with pytest.raises(BrokenInvariant, match="ends at 0"):
        futures.promote(log, copy)
    assert values_of(log) == [b"x"]
