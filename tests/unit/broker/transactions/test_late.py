"""Transactions whose markers are missing: the metric, and the warning."""

from __future__ import annotations

import pytest

from milena.broker.transactions.late import BUFFER_MS, LateTransactions
from milena.protocol.records.control_records import AbortMarker, control_batch
from milena.protocol.records.validation import Origin
from milena.protocol.types import ProducerEpoch, ProducerId
from tests.unit.broker.fixtures import Bench, batch, led_by

MAX_TIMEOUT_MS = 900_000
LATE_MS = MAX_TIMEOUT_MS + BUFFER_MS


class Watch:
    def __init__(self, bench: Bench, count: int = 1) -> None:
        self.clock = bench.clock
        bench.led(count=count)
        self.partitions = list(bench.partitions)
        self.warned: list[dict[str, object]] = []
        self.late = LateTransactions(bench.partitions, bench.clock, MAX_TIMEOUT_MS, self)  # type: ignore[arg-type]

    def warning(self, event: str, **fields: object) -> None:
        self.warned.append(fields)

    def write(self, *, producer: int = 7, sequence: int = 0, index: int = 0) -> None:
        """Write a record of a transaction, with the present time."""
        records = batch(
            b"x",
            timestamp=self.clock.time_ms(),
            transactional=True,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self.partitions[index].append(records, 1)

    def abort(self, producer: int = 7) -> None:
        self.partitions[0].append(abort_marker(producer), 1, origin=Origin.COORDINATOR)

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.now += milliseconds / 1000


def abort_marker(producer: int) -> memoryview:
    data = control_batch(
        [AbortMarker(coordinator_epoch=0)],
        timestamp=1,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        transactional=True,
    )
    return memoryview(bytearray(data))


@pytest.fixture
def watch(bench: Bench) -> Watch:
    return Watch(bench)


class TestCount:
    def test_a_transaction_is_late_five_minutes_after_the_longest_timeout(self, watch: Watch) -> None:
        watch.write()
        watch.pass_ms(LATE_MS)
        assert watch.late.count() == 0
        watch.pass_ms(1)
        assert watch.late.count() == 1
        watch.abort()
        assert watch.late.count() == 0

    def test_the_time_counts_from_the_last_batch_of_the_oldest_transaction(self, watch: Watch) -> None:
        watch.write()
        watch.write(producer=8)
        watch.pass_ms(LATE_MS)
        watch.write(sequence=1)
        watch.pass_ms(1000)
        assert watch.late.count() == 0
        watch.abort()
        assert watch.late.count() == 1

    def test_only_leaders_count(self, bench: Bench) -> None:
        watch = Watch(bench, count=3)
        for index in range(3):
            watch.write(index=index)
        watch.pass_ms(LATE_MS + 1)
        assert watch.late.count() == 3
        watch.partitions[0].become(led_by(2, replicas=(1, 2), leader_epoch=1))
        assert watch.late.count() == 2
        watch.partitions[1].take_offline()
        assert watch.late.count() == 1


class TestWarning:
    async def test_it_names_the_partition_the_producer_and_the_age(self, watch: Watch) -> None:
        watch.write()
        watch.partitions[0].append(batch(b"other"), 1)
        await watch.late.check()
        assert watch.warned == []
        watch.pass_ms(LATE_MS + 1)
        await watch.late.check()
        assert watch.warned == [
            {
                "topic": "t",
                "partition": 0,
                "producer_id": 7,
                "first_offset": 0,
                "seconds_since_last_batch": LATE_MS // 1000,
                "records_held_back": 2,
            }
        ]

    async def test_it_is_given_once_for_each_transaction(self, watch: Watch) -> None:
        watch.write()
        watch.write(producer=8)
        watch.pass_ms(LATE_MS + 1)
        await watch.late.check()
        await watch.late.check()
        watch.abort()
        await watch.late.check()
        await watch.late.check()
        assert [one["producer_id"] for one in watch.warned] == [7, 8]
