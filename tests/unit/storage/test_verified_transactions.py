"""The verification of transactions in the state of a partition's producers (KIP-890)."""

from __future__ import annotations

from pathlib import Path

import pytest

from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.validation import Origin
from milena.protocol.types import LeaderEpoch
from milena.storage.log.unified_log import AppendInfo, UnifiedLog
from milena.storage.state.producer_state import NO_GUARD, OpenTransaction, VerificationGuard
from tests.unit.storage.logs import START_MS, LogFolder, batch_of, marker

LEADER = LeaderEpoch(0)


@pytest.fixture
def log(tmp_path: Path) -> UnifiedLog:
    log = LogFolder(tmp_path).open()
    log.context.verifies_transactions = True
    return log


def begin(log: UnifiedLog, sequence: int = 0, *, epoch: int = 0, bumps: bool = False) -> VerificationGuard:
    return log.producers.begin_verification(7, epoch, sequence, START_MS, bumps_epoch=bumps)


def send(
    log: UnifiedLog,
    sequence: int = 0,
    *,
    epoch: int = 0,
    guard: VerificationGuard = NO_GUARD,
    origin: Origin = Origin.CLIENT,
) -> AppendInfo:
    records = batch_of(producer=(7, epoch, sequence), transactional=True)
    return log.append_as_leader(records, leader_epoch=LEADER, guard=guard, origin=origin)


def end(log: UnifiedLog, epoch: int = 0, *, version: int = 0, commit: bool = True) -> AppendInfo:
    records = marker((7, epoch), commit=commit)
    return log.append_as_leader(records, leader_epoch=LEADER, origin=Origin.COORDINATOR, transaction_version=version)


def refusal(log: UnifiedLog, sequence: int = 0, *, epoch: int = 0, guard: VerificationGuard = NO_GUARD) -> ErrorCode:
    before = log.log_end_offset
    with pytest.raises(KafkaError) as refused:
        send(log, sequence, epoch=epoch, guard=guard)
    assert log.log_end_offset == before
    return refused.value.code


class TestGuards:
    def test_a_log_that_replaces_another_continues_its_verifications(self, log: UnifiedLog, tmp_path: Path) -> None:
        moved = LogFolder(tmp_path / "moved").open()
        moved.context.verifies_transactions = True
        guard = begin(log)
        assert refusal(moved, guard=guard) is ErrorCode.INVALID_TXN_STATE
        moved.producers.continue_verifications(log.producers)
        send(moved, guard=guard)
        assert refusal(log, guard=guard) is ErrorCode.INVALID_TXN_STATE

    def test_the_first_batch_of_a_transaction_needs_the_guard_of_its_verification(self, log: UnifiedLog) -> None:
        assert refusal(log) is ErrorCode.INVALID_TXN_STATE
        guard = begin(log)
        assert refusal(log) is ErrorCode.INVALID_TXN_STATE
        assert refusal(log, guard=VerificationGuard()) is ErrorCode.INVALID_TXN_STATE
        assert send(log, guard=guard).first_offset == 0

    def test_later_batches_need_none(self, log: UnifiedLog) -> None:
        send(log, guard=begin(log))
        assert begin(log, 1) is NO_GUARD
        send(log, 1)

    def test_a_producer_with_the_epoch_of_an_open_transaction_gets_its_duplicates_and_continues_it(
        self, log: UnifiedLog
    ) -> None:
        """As after the loss of the coordinator's states: the leader does not ask, and the coordinator does not know."""
        send(log, guard=begin(log))
        assert begin(log) is NO_GUARD
        repeated = send(log)
        assert (repeated.duplicate, repeated.first_offset, log.log_end_offset) == (True, 0, 1)
        assert send(log, 1).first_offset == 1

    def test_batches_of_the_group_coordinator_need_one_too(self, log: UnifiedLog) -> None:
        with pytest.raises(KafkaError) as refused:
            send(log, -1, origin=Origin.COORDINATOR)
        assert refused.value.code is ErrorCode.INVALID_TXN_STATE
        send(log, -1, origin=Origin.COORDINATOR, guard=begin(log, -1))

    def test_batches_of_no_transaction_need_none(self, log: UnifiedLog) -> None:
        assert log.append_as_leader(batch_of(producer=(7, 0, 0)), leader_epoch=LEADER).first_offset == 0

    def test_without_the_configuration_none_is_needed(self, log: UnifiedLog) -> None:
        log.context.verifies_transactions = False
        assert send(log).first_offset == 0

    def test_a_marker_makes_earlier_verifications_useless(self, log: UnifiedLog) -> None:
        """The batch of a transaction that was verified before its abort must not open a transaction after it."""
        guard = begin(log)
        end(log, commit=False)
        assert refusal(log, guard=guard) is ErrorCode.INVALID_TXN_STATE
        assert log.producers.oldest_open is None

    def test_two_batches_in_verification_have_the_same_guard(self, log: UnifiedLog) -> None:
        guard = begin(log)
        assert begin(log, 1) is guard
        send(log, guard=guard)
        send(log, 1, guard=guard)

    def test_the_next_transaction_has_another_guard(self, log: UnifiedLog) -> None:
        guard = begin(log)
        send(log, guard=guard)
        end(log)
        assert refusal(log, 1, guard=guard) is ErrorCode.INVALID_TXN_STATE
        assert begin(log, 1) not in (guard, NO_GUARD)

    def test_a_truncation_drops_verifications(self, log: UnifiedLog) -> None:
        log.append_as_leader(batch_of(), leader_epoch=LEADER)
        guard = begin(log)
        log.truncate_fully_and_start_at(log.log_end_offset)
        assert refusal(log, guard=guard) is ErrorCode.INVALID_TXN_STATE

    def test_an_old_epoch_is_fenced_before_the_coordinator_is_asked(self, log: UnifiedLog) -> None:
        send(log, epoch=3, guard=begin(log, epoch=3))
        with pytest.raises(KafkaError) as refused:
            begin(log, epoch=2)
        assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_new_epoch_in_an_open_transaction_needs_a_verification(self, log: UnifiedLog) -> None:
        send(log, guard=begin(log))
        assert refusal(log, epoch=1) is ErrorCode.INVALID_TXN_STATE
        assert begin(log, epoch=1) is not NO_GUARD

    def test_verifications_expire_with_idle_producers(self, log: UnifiedLog) -> None:
        guard = begin(log)
        log.producers.expire(START_MS + 999, 1000)
        assert begin(log) is guard
        log.producers.expire(START_MS + 1000, 1000)
        assert begin(log) is not guard

    def test_the_verification_of_an_unknown_producer_can_be_dropped(self, log: UnifiedLog) -> None:
        guard = begin(log)
        log.producers.end_verification(7, NO_GUARD)
        assert begin(log) is guard
        log.producers.end_verification(7, guard)
        assert begin(log) is not guard


class TestSequences:
    def test_a_later_batch_is_not_appended_before_one_whose_verification_failed(self, log: UnifiedLog) -> None:
        begin(log, 0)
        guard = begin(log, 5)
        assert refusal(log, 5, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        send(log, 0, guard=guard)

    def test_a_newer_epoch_starts_again(self, log: UnifiedLog) -> None:
        begin(log, 0)
        guard = begin(log, 0, epoch=1)
        begin(log, 3, epoch=1)
        begin(log, 0, epoch=0)
        assert refusal(log, 3, epoch=1, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        send(log, 0, epoch=1, guard=guard)

    def test_an_unknown_producer_may_begin_with_any_sequence_below_version_2(self, log: UnifiedLog) -> None:
        send(log, 9, guard=begin(log, 9))

    def test_an_unknown_producer_begins_with_sequence_zero_in_version_2(self, log: UnifiedLog) -> None:
        guard = begin(log, 9, bumps=True)
        assert refusal(log, 9, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_a_transaction_begins_with_sequence_zero_after_a_marker_of_version_2(self, log: UnifiedLog) -> None:
        send(log, 0, guard=begin(log, bumps=True))
        end(log, 1, version=2)
        guard = begin(log, 4, epoch=1, bumps=True)
        assert refusal(log, 4, epoch=1, guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        begin(log, 0, epoch=1, bumps=True)
        send(log, 0, epoch=1, guard=guard)

    def test_sequences_continue_after_a_marker_of_version_1(self, log: UnifiedLog) -> None:
        send(log, 0, guard=begin(log))
        end(log, version=1)
        send(log, 1, guard=begin(log, 1))


class TestMarkersOfVersion2:
    def marker_refusal(self, log: UnifiedLog, epoch: int) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            end(log, epoch, version=2)
        return refused.value.code

    def test_a_marker_with_the_epoch_of_the_open_transaction_is_refused(self, log: UnifiedLog) -> None:
        send(log, epoch=4, guard=begin(log, epoch=4))
        assert self.marker_refusal(log, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert self.marker_refusal(log, 3) is ErrorCode.INVALID_PRODUCER_EPOCH
        end(log, 5, version=2)
        assert log.producers.oldest_open is None

    def test_the_same_marker_may_be_written_again(self, log: UnifiedLog) -> None:
        send(log, epoch=4, guard=begin(log, epoch=4))
        end(log, 5, version=2)
        assert end(log, 5, version=2).first_offset == 2

    def test_a_marker_may_have_the_last_epoch(self, log: UnifiedLog) -> None:
        last = (1 << 15) - 1
        send(log, epoch=last, guard=begin(log, epoch=last))
        end(log, last, version=2)
        assert log.producers.oldest_open is None

    def test_it_keeps_the_verification_of_the_next_transaction(self, log: UnifiedLog) -> None:
        """The next transaction begins while the coordinator still writes markers of this one."""
        send(log, epoch=4, guard=begin(log, epoch=4, bumps=True))
        guard = begin(log, epoch=5, bumps=True)
        end(log, 5, version=2)
        send(log, epoch=5, guard=guard)

    def test_below_version_2_it_has_the_epoch_of_the_transaction(self, log: UnifiedLog) -> None:
        send(log, epoch=4, guard=begin(log, epoch=4))
        end(log, 4, version=1)
        assert log.producers.oldest_open is None


def test_the_oldest_open_transaction_has_the_time_of_its_last_batch(log: UnifiedLog) -> None:
    log.append_as_leader(batch_of(), leader_epoch=LEADER)
    send(log, guard=begin(log))
    records = batch_of(producer=(7, 0, 1), transactional=True, timestamp=START_MS + 5)
    log.append_as_leader(records, leader_epoch=LEADER)
    other = log.producers.begin_verification(8, 0, 0, START_MS, bumps_epoch=False)
    log.append_as_leader(batch_of(producer=(8, 0, 0), transactional=True), leader_epoch=LEADER, guard=other)
    assert log.producers.oldest_open == OpenTransaction(7, 1, START_MS + 5)  # type: ignore[arg-type]
    end(log)
    assert log.producers.oldest_open == OpenTransaction(8, 3, START_MS)  # type: ignore[arg-type]
