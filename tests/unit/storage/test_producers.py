"""The state of idempotent and transactional producers in a partition (docs/kafka-semantics.md: Idempotence)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import BatchView
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from milena.storage.files.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from milena.storage.log.unified_log import AppendInfo, UnifiedLog
from milena.storage.state.producer_state import KeptBatch, ProducerEntry, ProducerState
from tests.unit.storage.logs import START_MS, LogFolder, append, batch_of, marker, values_of

LAST = (1 << 31) - 1


def send(log: UnifiedLog, sequence: int, *, epoch: int = 0, count: int = 1, producer: int = 7) -> AppendInfo:
    return append(log, *[b"%d" % (sequence + n) for n in range(count)], producer=(producer, epoch, sequence))


def refusal(log: UnifiedLog, sequence: int, *, epoch: int = 0, count: int = 1) -> ErrorCode:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        send(log, sequence, epoch=epoch, count=count)
    assert log.log_end_offset == end
    return refused.value.code


def end_txn(log: UnifiedLog, producer: tuple[int, int], *, commit: bool) -> AppendInfo:
    return log.append_as_leader(marker(producer, commit=commit), leader_epoch=LeaderEpoch(0), origin=Origin.COORDINATOR)


def test_a_duplicate_batch_gets_the_same_answer_and_is_not_appended(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    first = send(log, 0, count=3)
    for sequence in range(3, 7):
        send(log, sequence)
    again = send(log, 0, count=3)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (0, 2)
    assert log.log_end_offset == 7


@pytest.mark.parametrize("sequence", [0, 1, 5])
def test_a_batch_that_is_larger_than_a_segment_is_refused_whatever_its_sequence_is(
    tmp_path: Path, sequence: int
) -> None:
    log = LogFolder(tmp_path, segment_bytes=1_500).open()
    send(log, 0)
    with pytest.raises(KafkaError) as refused:
        append(log, b"x" * 3_000, producer=(7, 0, sequence))
    assert (refused.value.code, log.log_end_offset) == (ErrorCode.RECORD_LIST_TOO_LARGE, 1)


def test_a_duplicate_batch_is_synced_before_its_answer_if_the_topic_requires_it(tmp_path: Path) -> None:
    """The first attempt has appended the batch without a sync; the answer to the duplicate promises durability."""
    log = LogFolder(tmp_path).open()
    send(log, 0)
    assert log.recovery_point == 0
    log.config = replace(log.config, flush_messages=1)
    assert send(log, 0).duplicate
    assert log.recovery_point == log.log_end_offset == 1


def test_only_the_last_five_batches_are_recognised_as_duplicates(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    for sequence in range(6):
        send(log, sequence)
    assert send(log, 1).duplicate
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_same_base_sequence_with_another_count_is_no_duplicate(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    send(log, 0, count=2)
    assert refusal(log, 0, count=3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequences_is_refused(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    send(log, 0, count=2)
    assert refusal(log, 3) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 2)


def test_an_unknown_producer_may_begin_with_any_sequence(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    assert send(log, 4711).first_offset == 0
    assert refusal(log, 4713) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_producer_epoch_is_fenced_and_a_newer_one_begins_at_sequence_zero(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    send(log, 0, epoch=3)
    assert refusal(log, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 1, epoch=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=4)
    assert not send(log, 1, epoch=4).duplicate


def test_sequences_wrap_to_zero(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    send(log, LAST - 1)
    send(log, LAST, count=2)
    assert send(log, LAST, count=2).duplicate
    assert refusal(log, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 1)


def test_followers_do_not_check_sequences(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    for offset, sequence in enumerate((5, 9)):
        log.append_as_follower(
            batch_of(producer=(7, 0, sequence), base_offset=Offset(offset), leader_epoch=LeaderEpoch(0))
        )
    assert refusal(log, 9 + 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 10)


def test_producers_without_recent_batches_expire(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    send(log, 0)
    append(log, producer=(8, 0, 0), transactional=True)
    log.producers.expire(START_MS + 999, 1000)
    assert len(log.producers) == 2
    log.producers.expire(START_MS + 1000, 1000)
    assert [producer for producer, _ in log.producers] == [8]
    assert not send(log, 0).duplicate


def test_the_last_batch_of_a_producer_is_known_after_a_restart(tmp_path: Path) -> None:
    folder = LogFolder(tmp_path)
    log = folder.open()
    for sequence in range(3):
        send(log, sequence)
    log.close()
    again = folder.open()
    assert refusal(again, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(again, 2).duplicate
    send(again, 3)


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_snapshot_that_contradicts_the_batches_is_ignored(tmp_path: Path, clean: bool) -> None:
    folder = LogFolder(tmp_path)
    log = folder.open()
    for sequence in range(2):
        send(log, sequence)
    log.roll()
    send(log, 2)
    log.close()
    (newest, older) = (tmp_path / "topic-0" / f"{offset:020}.snapshot" for offset in (3, 2))
    newest.rename(older)
    again = folder.open(clean=clean, recovery_point=2)
    assert again.log_end_offset == 3
    assert folder.events.named("log damaged below its recovery point")
    assert send(again, 2).duplicate
    send(again, 3)


def test_open_transactions_limit_the_last_stable_offset(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"plain")
    append(log, b"one", producer=(1, 0, 0), transactional=True)
    append(log, b"two", producer=(2, 0, 0), transactional=True)
    append(log, b"plain")
    log.set_high_watermark(Offset(4))
    assert log.last_stable_offset == 1
    end_txn(log, (1, 0), commit=True)
    assert log.last_stable_offset == 1
    log.set_high_watermark(Offset(5))
    assert log.last_stable_offset == 2
    end_txn(log, (2, 0), commit=False)
    log.set_high_watermark(Offset(6))
    assert log.last_stable_offset == 6
    assert values_of(log) == [b"plain", b"one", b"two", b"plain"]


def test_an_aborted_transaction_is_indexed_with_the_last_stable_offset_after_it(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"one", producer=(1, 0, 0), transactional=True)
    append(log, b"two", producer=(2, 0, 0), transactional=True)
    end_txn(log, (2, 0), commit=False)
    end_txn(log, (1, 0), commit=False)
    found = log.aborted_transactions(Offset(0), Offset(4))
    assert found == [(2, 1, 2, 0), (1, 0, 3, 4)]
    assert log.aborted_transactions(Offset(3), Offset(4)) == [(1, 0, 3, 4)]


def test_a_batch_outside_of_the_open_transaction_is_refused(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"in", producer=(7, 0, 0), transactional=True)
    assert refusal(log, 1) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_older_epoch_is_refused(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"in", producer=(7, 2, 0), transactional=True)
    with pytest.raises(KafkaError) as refused:
        end_txn(log, (7, 1), commit=True)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_snapshot_has_kafkas_format() -> None:
    state = ProducerState()
    state.load([(ProducerId(7), ProducerEntry(ProducerEpoch(1), 3, 9, Offset(5), [KeptBatch(12, Offset(20), 2, 9)]))])
    data = encode_snapshot(state)
    assert data[:2] == b"\x00\x01"
    assert data[6:].hex() == (
        "00000001000000000000000700010000000c0000000000000014000000020000000000000009000000030000000000000005"
    )
    ((producer, entry),) = decode_snapshot(data)
    assert producer == 7
    assert (entry.epoch, entry.coordinator_epoch, entry.txn_first_offset) == (1, 3, 5)
    assert entry.batches == [(12, 20, 2, 9)]


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_refused_as_a_producer_snapshot(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(data)


class Oracle:
    """A model of one producer that keeps all its accepted batches."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, int, int]] = []

    def judge(self, epoch: int, sequence: int, count: int) -> str:
        if not self.accepted:
            return "accepted"
        last_epoch, last_sequence, last_count = self.accepted[-1]
        recent = [batch for batch in self.accepted if batch[0] == last_epoch][-5:]
        if (epoch, sequence, count) in recent:
            return "duplicate"
        if epoch < last_epoch:
            return "INVALID_PRODUCER_EPOCH"
        expected = last_sequence + last_count if epoch == last_epoch else 0
        return "accepted" if sequence == expected else "OUT_OF_ORDER_SEQUENCE_NUMBER"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8), st.integers(1, 3)), max_size=40))
def test_batches_are_accepted_as_by_a_model_with_the_whole_history(batches: list[tuple[int, int, int]]) -> None:
    oracle, state = Oracle(), ProducerState()
    offset = 0
    for epoch, sequence, count in batches:
        batch = BatchView(batch_of(*[b"x"] * count, producer=(7, epoch, sequence)))
        batch.assign(Offset(offset), LeaderEpoch(0))
        expected = oracle.judge(epoch, sequence, count)
        if state.duplicate_of(batch) is not None:
            assert expected == "duplicate"
            continue
        try:
            state.check_batch(batch, sequenced=True)
        except KafkaError as error:
            assert error.code.name == expected
            continue
        assert expected == "accepted"
        state.add_batch(batch)
        oracle.accepted.append((epoch, sequence, count))
        offset += count


def test_a_marker_of_a_fenced_coordinator_is_refused(tmp_path: Path) -> None:
    log = LogFolder(tmp_path).open()
    append(log, b"x", producer=(7, 0, 0), transactional=True)
    entry = log.producers.get(7)
    assert entry is not None
    entry.coordinator_epoch = 5
    with pytest.raises(KafkaError) as refused:
        end_txn(log, (7, 0), commit=True)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.log_end_offset == 1 and log.last_stable_offset == 0
