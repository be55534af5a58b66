"""Each change of an ISR is logged once by its leader."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from milena.broker.replica.partition import Partition
from tests.unit.broker.fixtures import ME, OTHER, Bench, led_by
from tests.unit.broker.leading import REPLICAS, append, fetch, led, shrink


def changes(logged: StringIO) -> list[tuple[list[int], list[int]]]:
    """The ISRs before and after each logged change."""
    events = _events(logged, "ISR changed")
    return [(event["before"], event["isr"]) for event in events]


def _events(logged: StringIO, name: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in logged.getvalue().splitlines()]
    return [event for event in events if event["event"] == name]


def expanding(bench: Bench) -> Partition:
    partition = led(bench, (1,))
    fetch(bench, partition, OTHER, 0)
    return partition


def test_a_change_is_logged_when_the_controller_answers(logged: StringIO, bench: Bench) -> None:
    partition = expanding(bench)
    bench.proposals.accept()
    assert changes(logged) == [([1], [1, 2])]
    partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 2), partition_epoch=1))
    assert changes(logged) == [([1], [1, 2])]
    assert bench.replication.meters.expands.value == 1


def test_a_change_is_logged_if_the_metadata_arrive_before_the_response(logged: StringIO, bench: Bench) -> None:
    partition = expanding(bench)
    partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 2), partition_epoch=1))
    bench.proposals.accept()
    assert changes(logged) == [([1], [1, 2])]
    assert bench.replication.meters.expands.value == 1


def test_a_shrink_is_logged_and_counted_likewise(logged: StringIO, bench: Bench) -> None:
    partition = led(bench)
    append(partition)
    shrink(bench, partition)
    partition.become(led_by(ME, replicas=REPLICAS, isr=(1,), partition_epoch=1))
    bench.proposals.accept()
    assert changes(logged) == [([1, 2, 3], [1])]
    assert bench.replication.meters.shrinks.value == 1


def test_changes_by_the_controller_are_logged(logged: StringIO, bench: Bench) -> None:
    partition = led(bench)
    partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 3), partition_epoch=1))
    partition.become(led_by(ME, replicas=REPLICAS, isr=(3, 1), partition_epoch=2))
    partition.become(led_by(ME, replicas=REPLICAS, isr=(1,), leader_epoch=1, partition_epoch=3))
    assert changes(logged) == [([1, 2, 3], [1, 3]), ([3, 1], [1])]
    assert bench.replication.meters.shrinks.value == 0


def test_a_new_leader_logs_the_isr_change_of_its_election(logged: StringIO, bench: Bench) -> None:
    image = led_by(OTHER, replicas=REPLICAS, isr=REPLICAS)
    partition = bench.host(bench.topic("t", image), 0)
    partition.become(image)
    partition.become(led_by(ME, replicas=REPLICAS, isr=(1, 3), leader_epoch=1, partition_epoch=1))
    assert changes(logged) == [([1, 2, 3], [1, 3])]
