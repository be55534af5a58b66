"""Loading of a partition of __transaction_state."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from milena.broker.coordinators.loading import RECORDS_PER_YIELD
from milena.broker.transactions import store
from milena.broker.transactions.census import counted
from milena.broker.transactions.loading import Loader
from milena.broker.transactions.model import Transaction
from milena.protocol.cooperative import run_now
from milena.protocol.records import transaction_records as records
from milena.protocol.records.batch import CorruptBatch
from milena.protocol.records.control_records import CommitMarker, control_batch
from milena.protocol.records.records import Record, build_batch
from milena.protocol.records.transaction_records import TransactionState
from milena.protocol.schemas.undecodable import DecodeError
from milena.runtime.limited_log import LimitedLog
from milena.runtime.logging import get_logger
from tests.unit.broker.hand_clock import HandClock
from tests.unit.broker.transactions.worlds import A, B, World, transaction

ONGOING = TransactionState.ONGOING


def loaded(*batches: bytes) -> dict[str, Transaction]:
    loader = Loader(LimitedLog(get_logger("transactions"), HandClock().monotonic))
    for batch in batches:
        run_now(loader.apply(memoryview(batch)))
    return run_now(loader.finish())


def written(transactional_id: str, found: Transaction, version: int = 2) -> bytes:
    return store.state_batch(transactional_id, found, version=version, now_ms=1_000)


def one(key: bytes | None, value: bytes | None) -> bytes:
    return build_batch([Record(0, 0, key, value)], base_timestamp=0)


def test_the_last_record_of_each_id_counts() -> None:
    first, second = transaction(), transaction(epoch=4)
    assert loaded(written("x", first), written("y", first), written("x", second)) == {"x": second, "y": first}


def test_a_tombstone_removes_an_id() -> None:
    tombstone = one(store.key_of("x"), None)
    assert loaded(written("x", transaction()), tombstone) == {}
    assert loaded(tombstone, written("x", transaction())) == {"x": transaction()}


def test_all_fields_but_the_last_epoch_are_in_the_log() -> None:
    found = transaction(
        TransactionState.PREPARE_ABORT,
        A,
        ("u", 3),
        B,
        epoch=32_767,
        start_ms=300,
        previous=6,
        following=9,
        client_version=2,
    )
    assert loaded(written("x", found)) == {"x": found}
    assert loaded(written("x", transaction(last_epoch=2))) == {"x": transaction()}


def test_version_0_lacks_the_tagged_fields() -> None:
    found = transaction(TransactionState.PREPARE_ABORT, A, start_ms=300, previous=6, following=9, client_version=2)
    assert loaded(written("x", found, version=0)) == {"x": transaction(TransactionState.PREPARE_ABORT, A, start_ms=300)}
    assert loaded(written("x", found, version=1)) == {"x": found}


def test_unknown_records_are_ignored() -> None:
    unknown_key = one(b"\x00\x07\x00\x01x", b"\x00\x00")
    unknown_value = one(store.key_of("x"), b"\x00\x09later")
    markers = control_batch([CommitMarker(coordinator_epoch=1)], timestamp=0)
    assert loaded(written("x", transaction()), unknown_key, unknown_value, markers) == {"x": transaction()}


def test_a_value_that_a_later_record_replaces_is_not_decoded() -> None:
    replaced = one(store.key_of("x"), b"\x00\x00damaged")
    assert loaded(replaced, written("x", transaction())) == {"x": transaction()}
    assert loaded(replaced, one(store.key_of("x"), None)) == {}


@pytest.mark.parametrize(
    "batch",
    [
        one(None, b"x"),
        one(b"", b"x"),
        one(b"\x00", None),
        one(store.key_of("x") + b"\x00", None),
        one(store.key_of("x"), b"\x00\x00damaged"),
        one(store.key_of("x"), b""),
        one(
            store.key_of("x"),
            records.encode_transaction_value(
                records.TransactionLogValue(
                    producer_id=1,
                    producer_epoch=1,
                    transaction_timeout_ms=1,
                    transaction_status=42,
                    transaction_partitions=(),
                    transaction_last_update_timestamp_ms=1,
                    transaction_start_timestamp_ms=1,
                ),
                0,
            ),
        ),
    ],
)
def test_damaged_records_fail_the_load(batch: bytes) -> None:
    with pytest.raises((CorruptBatch, DecodeError)):
        loaded(batch)


def test_a_request_finds_all_ids_or_none() -> None:
    world = World()
    world.change("x", transaction())
    world.change("y", transaction())
    shard = world.new_shard()
    loader = Loader(LimitedLog(get_logger("transactions"), world.clock.monotonic))
    for piece in world.log.pieces():
        run_now(loader.apply(piece))
        assert not shard.transactions
    transactions = run_now(loader.finish())
    shard.add_loaded(transactions, run_now(counted(transactions)))
    assert set(shard.transactions) == {"x", "y"}


def steps(work: Iterator[object]) -> int:
    return sum(1 for _ in work)


def test_a_long_log_is_loaded_in_steps() -> None:
    loader = Loader(LimitedLog(get_logger("transactions"), HandClock().monotonic))
    small = b"".join(written(f"id-{number}", transaction()) for number in range(2 * RECORDS_PER_YIELD))
    assert steps(loader.apply(memoryview(small))) >= 2
    many = transaction(ONGOING, *[("t", index) for index in range(5_000)], start_ms=1)
    large = b"".join(written(f"id-{number}", many) for number in range(10))
    assert steps(loader.apply(memoryview(large))) >= 10
    assert steps(loader.finish()) >= 11, "the values are decoded in steps, too"


def test_a_loaded_id_takes_less_than_400_bytes() -> None:
    loader = Loader(LimitedLog(get_logger("transactions"), HandClock().monotonic))
    count = 1_000
    for number in range(count):
        state = TransactionState.COMPLETE_COMMIT
        found = transaction(
            state,
            producer_id=1_000_000 + number,
            previous=1_000_000 + number,
            start_ms=1_700_000_000_000 + number,
            update_ms=1_700_000_001_000 + number,
            client_version=2,
        )
        run_now(loader.apply(memoryview(written(f"application-{number}-transactional-id", found))))
    seen: set[int] = set()
    transactions = run_now(loader.finish())
    size = sys.getsizeof(transactions)
    for transactional_id, found in transactions.items():
        parts = [transactional_id, found, *(getattr(found, name) for name in Transaction.__slots__)]
        size += sum(sys.getsizeof(part) for part in parts if id(part) not in seen)
        seen.update(id(part) for part in parts)
    assert size / count < 400
