"""Bounds for the log start of a tiered partition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from milena.lab.invariants.broken import InvariantBroken
from milena.lab.invariants.ledger import CommittedBatch, Ledger
from milena.lab.invariants.tiers import TierRules
from milena.lab.world.disk import Storage
from milena.runtime.randomness import Randomness
from milena.storage.log.unified_log import UnifiedLog

KEY = (UUID(int=1), 0)
BATCH = 100
"""The size of a batch of one record, in bytes."""


class Segments(list[SimpleNamespace]):
    @property
    def active(self) -> SimpleNamespace:
        return self[-1]


def log(start: int, segments: dict[int, int], *, retention: int) -> UnifiedLog:
    """``segments``: bytes by base offset."""
    found = SimpleNamespace(
        topic="t",
        partition=0,
        log_start_offset=start,
        config=SimpleNamespace(retention_bytes=retention),
        segments=Segments(SimpleNamespace(base_offset=base, size=size) for base, size in segments.items()),
    )
    return cast(UnifiedLog, found)


def start_seen(found: UnifiedLog, committed: int) -> None:
    ledger = Ledger("t-0")
    ledger.take("the leader", [CommittedBatch(base, base, 0, 7, BATCH) for base in range(committed)], 0)
    TierRules(Storage(Randomness(1))).start_seen("the leader", KEY, found, ledger)


def test_uncommitted_bytes_count_as_the_leader_counts_them_also_if_segments_were_rolled() -> None:
    """Of 1,600 bytes, 600 after the log start are committed; the others are in the last two segments."""
    segments = {0: 500, 5: 500, 10: 500, 15: 100}
    start_seen(log(4, segments, retention=1000), committed=10)
    with pytest.raises(InvariantBroken, match=r"its log starts at 5 and has 1100 bytes; retention\.bytes is 1200"):
        start_seen(log(5, segments, retention=1200), committed=10)


def test_committed_bytes_are_counted_once() -> None:
    with pytest.raises(InvariantBroken, match="has 700 bytes"):
        start_seen(log(4, {0: 500, 5: 500, 10: 100}, retention=800), committed=10)


def test_without_retention_the_log_start_must_not_rise() -> None:
    with pytest.raises(InvariantBroken, match="retention is unlimited"):
        start_seen(log(1, {0: 500}, retention=-1), committed=5)
