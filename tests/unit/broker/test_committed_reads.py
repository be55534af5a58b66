"""Fetch with read_committed, of transactions that are open, committed and aborted (KIP-98)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from milena.broker.replica.partition import Partition
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.control_records import AbortMarker, CommitMarker, control_batch
from milena.protocol.records.records import iter_records
from milena.protocol.records.validation import Origin
from milena.protocol.types import ProducerEpoch, ProducerId
from tests.unit.broker.consumer_fetches import fetch, results, want
from tests.unit.broker.fixtures import Bench, batch


class Producers:
    """Transactional producers of one partition. Values are the numbers of their records."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[bytes]] = {}
        self.committed: list[bytes] = []
        self.count = 0

    def write(self, producer: int, *, size: int = 0) -> bytes:
        value = b"%d" % self.count + b"." * size
        self.count += 1
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        records = batch(value, transactional=True, producer_id=producer, producer_epoch=0, base_sequence=sequence)
        self.partition.append(records, 1)
        self.open.setdefault(producer, []).append(value)
        return value

    def plain(self) -> bytes:
        value = b"%d" % self.count
        self.count += 1
        self.partition.append(batch(value), 1)
        self.committed.append(value)
        return value

    def end(self, producer: int, *, commit: bool) -> None:
        record = CommitMarker(coordinator_epoch=0) if commit else AbortMarker(coordinator_epoch=0)
        data = control_batch(
            [record],
            timestamp=1,
            producer_id=ProducerId(producer),
            producer_epoch=ProducerEpoch(0),
            transactional=True,
        )
        self.partition.append(memoryview(bytearray(data)), 1, origin=Origin.COORDINATOR)
        values = self.open.pop(producer, [])
        if commit:
            self.committed += values


class Reader:
    """A consumer with read_committed, as Kafka's: it drops the batches of aborted transactions."""

    def __init__(self, bench: Bench, *, max_bytes: int = 1 << 20) -> None:
        self.bench = bench
        self.max_bytes = max_bytes
        self.offset = 0
        self.values: list[bytes] = []
        self.listed = 0
        """The longest list of aborted transactions in a response."""

    def poll(self) -> bool:
        """Fetch once. Returns whether there were records."""
        asked = want(offset=self.offset, max_bytes=self.max_bytes)
        (found,) = results(fetch(self.bench, asked, isolation_level=1, max_wait_ms=0))
        assert found.error_code == 0
        listed = sorted(((one.first_offset, one.producer_id) for one in found.aborted or ()), reverse=True)
        self.listed = max(self.listed, len(listed))
        aborting: set[int] = set()
        before = self.offset
        for one in iter_batches(memoryview(bytes(found.records))):
            while listed and listed[-1][0] <= one.last_offset:
                aborting.add(listed.pop()[1])
            self._take(one, aborting)
            self.offset = one.last_offset + 1
        return self.offset > before

    def _take(self, one: BatchView, aborting: set[int]) -> None:
        if one.is_control:
            aborting.discard(one.producer_id)
        elif not (one.is_transactional and one.producer_id in aborting):
            for record in iter_records(one):
                assert record.value is not None
                self.values.append(bytes(record.value))

    def read(self) -> list[bytes]:
        while self.poll():
            pass
        return self.values


@pytest.fixture
def producers(bench: Bench) -> Producers:
    return Producers(bench.led(segment_bytes=1 << 20, index_interval_bytes=300))


class TestOneTransaction:
    def test_its_records_are_not_returned_before_its_end(self, bench: Bench, producers: Producers) -> None:
        plain = producers.plain()
        value = producers.write(7)
        later = producers.plain()
        reader = Reader(bench)
        assert reader.read() == [plain]
        producers.end(7, commit=True)
        assert reader.read() == [plain, value, later]

    def test_its_records_are_left_out_after_an_abort(self, bench: Bench, producers: Producers) -> None:
        producers.write(7)
        plain = producers.plain()
        producers.end(7, commit=False)
        producers.end(7, commit=False)
        value = producers.write(7)
        producers.end(7, commit=True)
        assert Reader(bench).read() == [plain, value]

    def test_a_reader_without_isolation_gets_everything(self, bench: Bench, producers: Producers) -> None:
        producers.write(7)
        (found,) = results(fetch(bench, want(), isolation_level=0, max_wait_ms=0))
        assert (len(list(iter_batches(memoryview(bytes(found.records))))), found.aborted) == (1, None)
        assert (found.high_watermark, found.last_stable_offset) == (1, 0)

    def test_a_reader_beyond_its_start_gets_an_empty_list(self, bench: Bench, producers: Producers) -> None:
        producers.write(7)
        (found,) = results(fetch(bench, want(offset=1), isolation_level=1, max_wait_ms=0))
        assert (found.last_stable_offset, bytes(found.records), found.aborted) == (0, b"", [])


def test_a_response_lists_only_the_aborted_transactions_of_its_records(bench: Bench, producers: Producers) -> None:
    """A reader at the start of a log must not get all transactions that were aborted since."""
    for producer in range(200):
        producers.write(producer)
        producers.end(producer, commit=False)
    reader = Reader(bench, max_bytes=300)
    assert reader.read() == []
    assert 0 < reader.listed <= 12


def test_a_long_transaction_is_listed_for_all_its_records(bench: Bench, producers: Producers) -> None:
    expected = []
    for _ in range(30):
        producers.write(1, size=50)
        expected.append(producers.plain())
    producers.end(1, commit=False)
    assert Reader(bench, max_bytes=250).read() == expected


@pytest.mark.parametrize("seed", range(6))
def test_readers_get_exactly_the_committed_records(bench: Bench, seed: int) -> None:
    draw = random.Random(seed)
    options: dict[str, Any] = {"segment_bytes": 4_000, "index_interval_bytes": draw.choice((0, 200, 4096))}
    producers = Producers(bench.led(**options))
    reader = Reader(bench, max_bytes=draw.choice((1, 300, 2_000)))
    for _ in range(300):
        match draw.choice(("write",) * 6 + ("commit", "abort", "plain", "poll")):
            case "write":
                producers.write(draw.randrange(6), size=draw.randrange(100))
            case "commit":
                producers.end(draw.randrange(6), commit=True)
            case "abort":
                producers.end(draw.randrange(6), commit=False)
            case "plain":
                producers.plain()
            case _:
                reader.poll()
    for producer in list(producers.open):
        producers.end(producer, commit=draw.random() < 0.5)
    assert sorted(reader.read(), key=_number) == sorted(producers.committed, key=_number)


def _number(value: bytes) -> int:
    return int(value.rstrip(b"."))
