"""The range of a log that may be cleaned."""

from __future__ import annotations

from pathlib import Path

from milena.protocol.types import Offset
from milena.storage.cleaning.bounds import Cleanable, cleanable
from tests.unit.storage.cleaning.cleaned_logs import KeyedLog


def long_log(path: Path, **config: object) -> KeyedLog:
    keyed = KeyedLog.at(path, **config)
    for number in range(30):
        keyed.write((b"%d" % number, b"value" * 10))
    assert len(keyed.log.segments) > 4
    return keyed


def bases(keyed: KeyedLog) -> list[Offset]:
    return [segment.base_offset for segment in keyed.log.segments]


def test_all_but_the_active_segment_is_cleaned(tmp_path: Path) -> None:
    keyed = long_log(tmp_path)
    assert keyed.range() == Cleanable(Offset(0), bases(keyed)[-1], False)


def test_a_cleaning_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    keyed = long_log(tmp_path)
    keyed.dirty = 7
    assert keyed.range() == Cleanable(Offset(7), bases(keyed)[-1], False)
    keyed.dirty = keyed.log.log_end_offset
    assert keyed.range().end == keyed.log.log_end_offset


def test_a_cleaner_checkpoint_outside_of_the_log_is_ignored(tmp_path: Path) -> None:
    keyed = long_log(tmp_path)
    keyed.dirty = keyed.log.log_end_offset + 1
    assert keyed.range() == Cleanable(Offset(0), bases(keyed)[-1], True)
    keyed.log.increment_log_start(Offset(9))
    keyed.dirty = 8
    assert keyed.range() == Cleanable(Offset(9), bases(keyed)[-1], True)


def test_a_segment_that_reaches_the_high_watermark_is_not_cleaned(tmp_path: Path) -> None:
    keyed = long_log(tmp_path)
    second, third = bases(keyed)[1:3]
    for high, end in ((third, third), (Offset(third - 1), second), (Offset(0), 0)):
        keyed.log.set_high_watermark(high)
        assert keyed.range().end == end


def test_a_segment_that_reaches_the_checkpointed_high_watermark_is_not_cleaned(tmp_path: Path) -> None:
    keyed = long_log(tmp_path)
    keyed.log.flush()
    second, third = bases(keyed)[1:3]
    for high, end in ((third, third), (Offset(third - 1), second), (None, Offset(0))):
        found = cleanable(keyed.log, cleaned_to=None, replicated_to=high, now=keyed.now)
        assert found == Cleanable(Offset(0), end, False)


def test_a_segment_that_is_not_synced_is_not_cleaned(tmp_path: Path) -> None:
    keyed = long_log(tmp_path)
    end = keyed.log.log_end_offset
    assert cleanable(keyed.log, cleaned_to=None, replicated_to=end, now=keyed.now).end == 0
    plan = keyed.log.plan_flush(bases(keyed)[2])
    assert plan is not None
    plan.run()
    keyed.log.flushed(plan)
    assert cleanable(keyed.log, cleaned_to=None, replicated_to=end, now=keyed.now).end == bases(keyed)[2]


def test_a_segment_with_an_open_transaction_is_not_cleaned(tmp_path: Path) -> None:
    keyed = KeyedLog.at(tmp_path)
    for number in range(10):
        keyed.write((b"%d" % number, b"value" * 10))
    keyed.write((b"open", b"value"), producer=(7, 0, 0), transactional=True)
    first = keyed.log.log_end_offset - 1
    for number in range(20):
        keyed.write((b"%d" % number, b"value" * 10))
    holding = max(base for base in bases(keyed) if base <= first)
    assert keyed.range().end == holding
    keyed.end((7, 0), commit=True)
    assert keyed.range().end == bases(keyed)[-1]


def test_a_segment_younger_than_the_minimum_compaction_lag_is_not_cleaned(tmp_path: Path) -> None:
    keyed = long_log(tmp_path, min_compaction_lag_ms=1000)
    assert keyed.range().end == 0
    second = keyed.log.segments[1]
    keyed.now = second.largest_timestamp() + 999
    assert keyed.range().end == second.base_offset
    keyed.now += 1
    assert keyed.range().end == bases(keyed)[2]
    # The lag does not apply to segments that were cleaned before.
    keyed.now -= 1
    keyed.dirty = bases(keyed)[2]
    assert keyed.range() == Cleanable(bases(keyed)[2], bases(keyed)[2], False)
