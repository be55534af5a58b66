"""Markers in ``__consumer_offsets``, with a coordinator and a real log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from milena.broker.groups import store
from milena.broker.groups.model import CommittedOffset
from milena.protocol.cooperative import run_now
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.records.batch import NO_SEQUENCE
from milena.protocol.records.control_records import EndMarkerRequest
from milena.protocol.types import ProducerEpoch, ProducerId, TopicPartition
from milena.storage.state.producer_state import NO_GUARD, VerificationGuard
from tests.unit.broker.fixtures import OTHER, led_by
from tests.unit.broker.groups.coordinators import Coordinated

PRODUCER = 7


def send(
    coordinated: Coordinated,
    offset: int,
    *,
    epoch: int = 0,
    partitions: int = 1,
    guard: VerificationGuard = NO_GUARD,
) -> ErrorCode:
    """Send offsets of topics ``t0``, ``t1`` ... to the transaction of the producer."""
    shard = coordinated.groups.shard("g")
    changes: dict[TopicPartition, CommittedOffset] = {
        (f"t{one}", 0): CommittedOffset(offset, -1, "", 0) for one in range(partitions)
    }
    producer, number = ProducerId(PRODUCER), ProducerEpoch(epoch)
    batch = run_now(
        store.offset_batch(
            "g", changes, 0, transactional=True, producer_id=producer, producer_epoch=number, base_sequence=0
        )
    )
    errors: list[ErrorCode] = []
    shard.commit_in_transaction(shard.get_or_create("g"), producer, changes, batch, guard, errors.append)
    return errors[0]


def end(
    coordinated: Coordinated, *, epoch: int = 0, coordinator: int = 0, commit: bool = True, version: int = 0
) -> ErrorCode:
    marker = EndMarkerRequest(ProducerId(PRODUCER), ProducerEpoch(epoch), coordinator, commit, version)
    errors: list[ErrorCode] = []
    coordinated.groups.complete_transaction(0, marker, errors.append)
    return errors[0]


def test_offsets_of_transactions_are_loaded_from_the_log(coordinated: Coordinated) -> None:
    send(coordinated, 5, partitions=3)
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {}
    assert end(coordinated) is ErrorCode.NONE
    assert coordinated.offsets() == {"t0": 5, "t1": 5, "t2": 5}
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {"t0": 5, "t1": 5, "t2": 5}


def test_aborted_offsets_are_not_loaded(coordinated: Coordinated) -> None:
    send(coordinated, 5)
    assert end(coordinated, commit=False) is ErrorCode.NONE
    send(coordinated, 6, epoch=1)
    coordinated.elect()
    coordinated.tasks.run()
    assert coordinated.offsets() == {}
    assert end(coordinated, epoch=1) is ErrorCode.NONE
    assert coordinated.offsets() == {"t0": 6}


def test_equal_requests_of_one_transaction_are_no_duplicates(coordinated: Coordinated) -> None:
    """All batches of offsets have sequence 0, as in Kafka; only those of clients are compared."""
    assert (send(coordinated, 5), send(coordinated, 6)) == (ErrorCode.NONE, ErrorCode.NONE)
    end(coordinated)
    assert coordinated.offsets() == {"t0": 6}


def test_the_last_stable_offset_follows_the_markers(coordinated: Coordinated) -> None:
    log = coordinated.partition.online_log
    before = log.log_end_offset
    send(coordinated, 5)
    assert log.last_stable_offset == before
    end(coordinated)
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (lambda of: end(of, epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH),
        (lambda of: end(of, epoch=1, version=2), ErrorCode.INVALID_PRODUCER_EPOCH),
        (lambda of: end(of, epoch=1, coordinator=2), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
def test_a_marker_of_a_fenced_sender_is_refused(
    coordinated: Coordinated, ending: Callable[[Coordinated], ErrorCode], error: ErrorCode
) -> None:
    end(coordinated, epoch=1, coordinator=3)
    send(coordinated, 5, epoch=1)
    assert ending(coordinated) is error
    assert coordinated.offsets() == {}
    assert end(coordinated, epoch=1, coordinator=3) is ErrorCode.NONE
    assert coordinated.offsets() == {"t0": 5}


def test_the_first_offsets_of_a_transaction_need_the_guard_of_a_verification(coordinated: Coordinated) -> None:
    log = coordinated.partition.online_log
    log.context.verifies_transactions = True
    assert send(coordinated, 5) is ErrorCode.INVALID_TXN_STATE
    guard = coordinated.partition.begin_verification(PRODUCER, 0, NO_SEQUENCE, 0, bumps_epoch=False)
    assert send(coordinated, 6, guard=guard) is ErrorCode.NONE
    assert send(coordinated, 7) is ErrorCode.NONE
    end(coordinated)
    assert coordinated.offsets() == {"t0": 7}
    assert send(coordinated, 8, guard=guard) is ErrorCode.INVALID_TXN_STATE


def test_offsets_of_a_fenced_producer_are_refused(coordinated: Coordinated) -> None:
    send(coordinated, 5, epoch=1)
    assert send(coordinated, 6, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    end(coordinated, epoch=1)
    assert coordinated.offsets() == {"t0": 5}


def test_markers_wait_for_the_groups_to_be_loaded(coordinated: Coordinated) -> None:
    send(coordinated, 5)
    coordinated.elect()
    assert end(coordinated) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    coordinated.tasks.run()
    assert end(coordinated) is ErrorCode.NONE


def test_markers_are_for_the_leader(coordinated: Coordinated) -> None:
    send(coordinated, 5)
    coordinated.partition.become(led_by(OTHER, leader_epoch=coordinated.epoch + 1))
    assert end(coordinated) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    coordinated.groups.resigned(0)
    assert end(coordinated) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_the_leader_knows_the_partition_of_a_groups_offsets(coordinated: Coordinated) -> None:
    assert coordinated.groups.offsets_partition("g").index == 0
    coordinated.groups.resigned(0)
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        coordinated.groups.offsets_partition("g")
