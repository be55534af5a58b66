"""A lab of several brokers: its settings, and actions and questions of its tests."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from milena.testing.local_cluster import LocalCluster

SESSION = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
"""broker.session.timeout.ms: a broker is fenced when it has sent no heartbeat for so long."""


def leader_of(lab: LocalCluster, topic: str) -> int:
    found: int = lab.lab_commands(lab.controller.id).call("partitions", topic=topic)[f"{topic}-0"]["leader"]
    return found


def write(lab: LocalCluster, topic: str, value: str) -> None:
    """Write one record with acks=all."""
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": lab.bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(topic, value.encode(), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(30) == 0
    assert not failures, failures


def log_of(lab: LocalCluster, broker: int, topic: str) -> list[str]:
    return [value for _, value, _ in lab.lab_commands(broker).call("read_log", topic=topic, partition=0)]
