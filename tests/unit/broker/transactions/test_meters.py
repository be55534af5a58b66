"""The gauges of transactions, under Kafka's names."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from milena.broker.coordinators.load_times import LoadTimes
from milena.broker.transactions.gauges import register_gauges
from milena.node.metrics import Metrics
from tests.unit.broker.transactions.coordinators import Coordinated

CHANNELS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
LOADS = "kafka_server_transaction_coordinator_metrics_partition_load_time"


class Sender:
    without_leader = 3


@pytest.fixture
def metrics(coordinated: Coordinated) -> Metrics:
    registry, markers = Metrics(), Sender()
    untyped: Any = register_gauges
    untyped(registry, coordinated.transactions, markers)
    return registry


def test_the_ids_and_the_open_transactions_are_counted(coordinated: Coordinated, metrics: Metrics) -> None:
    coordinated.init()
    coordinated.init("y")
    coordinated.add(0, 1)
    assert (metrics.value("milena_transactional_ids"), metrics.value("milena_open_transactions")) == (2, 1)
    coordinated.end(0)
    assert (metrics.value("milena_transactional_ids"), metrics.value("milena_open_transactions")) == (2, 0)


def test_markers_without_a_leader_are_counted(metrics: Metrics) -> None:
    assert metrics.value(f"{CHANNELS}_unknowndestinationqueuesize") == 3


def test_loads_of_the_last_thirty_seconds_count(coordinated: Coordinated) -> None:
    clock = coordinated.bench.clock
    loads = LoadTimes(clock)
    assert (loads.average_ms(), loads.longest_ms()) == (0, 0)
    for seconds in (1.0, 3.0):
        began = clock.monotonic()
        clock.advance(seconds)
        loads.loaded(began)
    assert (loads.average_ms(), loads.longest_ms()) == (2000, 3000)
    clock.advance(28.0)
    assert (loads.average_ms(), loads.longest_ms()) == (3000, 3000)
    clock.advance(3.0)
    assert loads.longest_ms() == 0


def test_the_load_of_a_partition_is_measured(
    coordinated: Coordinated, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metrics.value(f"{LOADS}_max") == metrics.value(f"{LOADS}_avg") == 0
    ticks = count()
    monkeypatch.setattr(coordinated.bench.clock, "monotonic", lambda: float(next(ticks)))
    coordinated.elect()
    coordinated.tasks.run()
    assert metrics.value(f"{LOADS}_max") >= 1000
