"""The verification of one partition, for the offsets of a transaction."""

from __future__ import annotations

import pytest

from milena.broker.transactions.batch_verification import BrokerVerification
from milena.broker.transactions.verification import Operation
from milena.config.node_config import NodeConfig
from milena.protocol.errors import ErrorCode
from milena.protocol.records.validation import Origin
from milena.protocol.types import ProducerId
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard
from tests.unit.broker.fixtures import Bench, batch, led_by

PRODUCER = ProducerId(5)


class Verified:
    def __init__(self, bench: Bench, operation: Operation = Operation.GENERIC_ERROR, **config: object) -> None:
        bench.led()
        self.partition = bench.partitions.get("t", 0)
        self.partition.online_log.context.verifies_transactions = True
        self.results: list[VerificationGuard | ErrorCode] = []
        self.operation = operation
        node = NodeConfig.of(log_dirs=str(bench.folder), **config)
        self.verification = BrokerVerification(bench.clock, bench.verifications, lambda: node)  # type: ignore[arg-type]

    def ask(self, epoch: int = 0) -> None:
        self.verification.verify(self.partition, "tx", PRODUCER, epoch, self.operation, self.results.append)

    def append(self, guard: VerificationGuard, epoch: int = 0) -> None:
        records = batch(b"x", transactional=True, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=-1)
        self.partition.append(records, 1, guard=guard, origin=Origin.COORDINATOR)


def test_the_guard_of_a_verified_transaction_allows_the_append(bench: Bench) -> None:
    verified = Verified(bench)
    verified.ask()
    assert verified.results == []
    assert bench.verifications.answer().partitions == [("t", 0)]
    (guard,) = verified.results
    assert isinstance(guard, VerificationGuard)
    verified.append(guard)
    verified.ask()
    assert verified.results[1:] == [NO_GUARD]


def test_an_error_of_the_coordinator_is_passed_on(bench: Bench) -> None:
    verified = Verified(bench)
    verified.ask()
    bench.verifications.answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert verified.results == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert verified.partition.online_log.producers._verification(PRODUCER) is None


def test_an_old_epoch_and_a_lost_leadership_are_not_asked_about(bench: Bench) -> None:
    verified = Verified(bench)
    verified.ask(epoch=1)
    bench.verifications.answer()
    (guard,) = verified.results
    assert isinstance(guard, VerificationGuard)
    verified.append(guard, epoch=1)
    verified.ask(epoch=0)
    verified.partition.become(led_by(2, replicas=(1, 2), leader_epoch=1))
    verified.ask(epoch=1)
    assert verified.results[1:] == [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert bench.verifications.open == []


@pytest.mark.parametrize(("operation", "asked"), [(Operation.DEFAULT_ERROR, 0), (Operation.ADD_PARTITION, 1)])
def test_without_verification_partitions_are_only_added(bench: Bench, operation: Operation, asked: int) -> None:
    verified = Verified(bench, operation, transaction_partition_verification_enable=False)
    verified.ask()
    assert len(bench.verifications.open) == asked and len(verified.results) == 1 - asked


def test_retries_last_as_configured_but_not_longer_than_a_request(bench: Bench) -> None:
    usual = Verified(bench).verification
    assert (usual.is_enabled, usual.retry_backoff, usual.retry_max) == (True, 0.02, 0.1)
    short = BrokerVerification(
        bench.clock,
        bench.verifications,  # type: ignore[arg-type]
        lambda: NodeConfig.of(request_timeout_ms=50, add_partitions_to_txn_retry_backoff_max_ms=70),
    )
    assert short.retry_max == 0.05
