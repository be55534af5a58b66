"""The choice of the log that is cleaned next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from milena.protocol.types import Offset
from milena.storage.cleaning.choice import Candidate, candidate, dirtiest_first
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.storage.cleaning.cleaned_logs import DAY_MS, KeyedLog
from tests.unit.storage.logs import START_MS


def sized_log(path: Path, *sizes: int, **config: object) -> KeyedLog:
    """A log whose closed segments have ``sizes`` batches of one record, and whose active segment has one."""
    keyed = KeyedLog.at(path, **({"segment_bytes": 1 << 20, "cleanup_policy": ("compact",)} | config))
    for count in (*sizes, 1):
        keyed.log.roll()
        for _ in range(count):
            keyed.write((b"key", b"value"))
    keyed.log.flush()
    keyed.log.checkpointed_high_watermark = keyed.log.log_end_offset
    return keyed


def judged(keyed: KeyedLog, *, cleaned_to: int | None = None, now: int = START_MS) -> Candidate:
    keyed.log.cleaned_to = None if cleaned_to is None else Offset(cleaned_to)
    return candidate(keyed.log, now)


def chosen(logs: Sequence[KeyedLog], now: int = START_MS) -> UnifiedLog | None:
    found = dirtiest_first(candidate(keyed.log, now) for keyed in logs)
    return found[0].log if found else None


def test_the_dirty_ratio_counts_closed_segments_only(tmp_path: Path) -> None:
    keyed = sized_log(tmp_path, 1, 2, 5)
    size = keyed.log.segments[0].size
    assert judged(keyed)[2:4] == (0, 8 * size)
    assert judged(keyed).dirty_ratio == 1.0
    assert judged(keyed, cleaned_to=3)[2:4] == (3 * size, 5 * size)
    # A segment that is partly dirty counts both as clean and as dirty.
    assert judged(keyed, cleaned_to=2)[2:4] == (3 * size, 7 * size)
    assert judged(keyed, cleaned_to=2).dirty_ratio == 0.7
    assert judged(keyed, cleaned_to=8)[2:4] == (8 * size, 0)


def test_a_log_is_due_above_its_minimum_dirty_ratio(tmp_path: Path) -> None:
    keyed = sized_log(tmp_path, 5, 5, min_cleanable_dirty_ratio=0.5)
    assert not judged(keyed, cleaned_to=5).is_due
    assert judged(keyed, cleaned_to=4).is_due
    assert not judged(sized_log(tmp_path / "empty")).is_due


def test_a_log_is_due_after_its_maximum_compaction_lag(tmp_path: Path) -> None:
    keyed = sized_log(tmp_path, 9, 1, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=DAY_MS)
    first = keyed.log.segments[1].first_timestamp()
    assert judged(keyed, cleaned_to=9, now=first + DAY_MS).overdue_ms == 0
    late = judged(keyed, cleaned_to=9, now=first + DAY_MS + 1)
    assert (late.overdue_ms, late.is_due) == (1, True)
    assert not judged(keyed, cleaned_to=10, now=first + 9 * DAY_MS).is_due


def test_of_the_due_logs_the_one_with_the_highest_dirty_ratio_is_cleaned_first(tmp_path: Path) -> None:
    clean, half, dirty = (sized_log(tmp_path / name, 5, 5) for name in ("clean", "half", "dirty"))
    clean.log.cleaned_to, half.log.cleaned_to, dirty.log.cleaned_to = Offset(10), Offset(4), None
    assert chosen([clean, half, dirty]) is dirty.log
    assert chosen([clean, half]) is half.log
    assert chosen([clean]) is None
    assert chosen([]) is None


def test_no_log_is_due_without_a_checkpointed_high_watermark(tmp_path: Path) -> None:
    keyed = sized_log(tmp_path, 5, 5)
    keyed.log.checkpointed_high_watermark = None
    assert judged(keyed).dirty_ratio == 0.0
