"""A controller's state under test: commands are run, and their records go through bytes into the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.controller.commands.brokers import Registration, register
from milena.controller.commands.heartbeats import Heartbeat, HeartbeatReply, heartbeat
from milena.controller.commands.topics import NewTopic, create_topics
from milena.controller.rules.record_checks import check_records
from milena.controller.state.result import Result
from milena.controller.state.sessions import Sessions
from milena.controller.state.state import ControllerState
from milena.node.metadata.image import ListenerImage, PartitionImage
from milena.protocol.features import RANGES
from milena.protocol.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    decode_record,
    encode_record,
)
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId
from milena.runtime.randomness import Randomness

CLUSTER_ID = "Some1Cluster2Id3Here4Q"
SESSION = 9.0
T = TypeVar("T")


def directory(broker: int, number: int = 0) -> UUID:
    return UUID(int=(broker << 80) + (number << 70) + 500)


def incarnation(broker: int, number: int = 0) -> UUID:
    return UUID(int=(broker << 8) + number + 1000)


class Cluster:
    """Time stands still unless ``now`` is moved."""

    def __init__(self, brokers: int = 0, *, features: dict[str, int] | None = None, **config: object) -> None:
        settings = {"process_roles": "controller", "node_id": 1000, "listeners": "CONTROLLER://localhost:9093"}
        self.state = ControllerState(CLUSTER_ID, NodeConfig.of(**(settings | config)), Sessions(SESSION))
        self.random = Randomness(7)
        self.changes: list[PartitionChangeRecord] = []
        """All that were written."""
        self.now = 100.0
        levels = {"metadata.version": 33} | (features or {})
        self.write([FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()])
        for broker in range(1, brokers + 1):
            self.start_broker(broker)

    def write(self, records: Sequence[Any]) -> None:
        level = self.state.image.metadata_version or 30
        decoded = [decode_record(encode_record(record, level)) for record in records]
        check_records(self.state.image, decoded, self.state.next_offset)
        self.changes += [record for record in decoded if isinstance(record, PartitionChangeRecord)]
        self.state.replay(decoded, base_offset=self.state.next_offset, epoch=LeaderEpoch(1), timestamp_ms=1)

    def commit(self, result: Result[T]) -> T:
        self.write(result.records)
        return result.response

    def registration(self, broker: int, *, run: int = 0, dirs: int = 1, **fields: Any) -> Registration:
        request: dict[str, Any] = {
            "broker_id": NodeId(broker),
            "cluster_id": CLUSTER_ID,
            "incarnation": incarnation(broker, run),
            "endpoints": (ListenerImage("PLAINTEXT", "localhost", 9092 + broker),),
            "features": RANGES,
            "log_dirs": tuple(directory(broker, number) for number in range(dirs)),
        }
        return Registration(**(request | fields))

    def register(self, broker: int, **fields: Any) -> BrokerEpoch:
        return self.commit(register(self.state, self.registration(broker, **fields), self.now))

    def beat(self, broker: int, *, epoch: int | None = None, **fields: Any) -> HeartbeatReply:
        registered = self.state.image.brokers.get(broker)
        request: dict[str, Any] = {
            "broker_id": NodeId(broker),
            "broker_epoch": (registered.epoch if registered else -1) if epoch is None else epoch,
            "metadata_offset": self.state.next_offset - 1,
        }
        return self.commit(heartbeat(self.state, Heartbeat(**(request | fields)), self.now))

    def start_broker(self, broker: int, **fields: Any) -> BrokerEpoch:
        epoch = self.register(broker, **fields)
        assert not self.beat(broker).fenced
        return epoch

    def create_topic(self, name: str = "t", *, partitions: int = 1, replicas: int = 1) -> UUID:
        topic = NewTopic(name=name, partitions=partitions, replication_factor=replicas, configs={})
        ((_, created),) = self.commit(create_topics(self.state, [topic], self.random))
        if isinstance(created, Exception):
            raise created
        return created.id

    def assign_topic(self, *replicas: int, name: str = "t", isr: Sequence[int] | None = None) -> UUID:
        """A topic of one partition on these brokers, led by the first active one; in sync where ``isr`` says so, by
        default on all that are active."""
        topic = NewTopic(name=name, assignments=[(0, [NodeId(r) for r in replicas])], configs={})
        ((_, created),) = self.commit(create_topics(self.state, [topic], self.random))
        if isinstance(created, Exception):
            raise created
        if isr is not None and tuple(isr) != self.partition(name).isr:
            members = tuple(NodeId(member) for member in isr)
            self.write([PartitionChangeRecord(partition_id=0, topic_id=created.id, isr=members)])
        return created.id

    def partition(self, name: str = "t", number: int = 0) -> PartitionImage:
        partition = self.state.image.partition(name, number)
        assert partition is not None
        return partition
