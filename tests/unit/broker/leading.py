"""A partition that this broker leads, and followers that fetch from it."""

from __future__ import annotations

from uuid import UUID

from milena.broker.replica.partition import Partition
from milena.broker.replica.replica_state import FollowerFetch
from milena.node.metadata.image import BrokerImage
from milena.protocol.types import BrokerEpoch, NodeId, Offset
from tests.unit.broker.fixtures import ME, Bench, batch, led_by

THIRD = NodeId(3)
REPLICAS = (1, 2, 3)
LAG = 30.0


def register(bench: Bench, node: int, epoch: int, *, fenced: bool = False, leaving: bool = False) -> None:
    bench.image.brokers[node] = BrokerImage(
        NodeId(node), BrokerEpoch(epoch), UUID(int=node), (), {}, fenced=fenced, in_controlled_shutdown=leaving
    )


def led(bench: Bench, isr: tuple[int, ...] = REPLICAS, *, min_isr: int = 1, leader_epoch: int = 0) -> Partition:
    for node in REPLICAS:
        register(bench, node, node)
    image = led_by(ME, replicas=REPLICAS, isr=isr, leader_epoch=leader_epoch)
    partition = bench.host(bench.topic("t", image), 0, min_insync_replicas=min_isr)
    partition.become(image)
    return partition


def fetch(
    bench: Bench, partition: Partition, node: int, offset: int, *, epoch: int | None = None, log_start: int = 0
) -> None:
    partition.follower_fetched(
        FollowerFetch(
            node=NodeId(node),
            broker_epoch=BrokerEpoch(node if epoch is None else epoch),
            offset=Offset(offset),
            log_start=Offset(log_start),
            leader_end=partition.online_log.log_end_offset,
            now_ms=bench.replication.now_ms(),
        )
    )


def append(partition: Partition, count: int = 1) -> None:
    for _ in range(count):
        partition.append(batch(b"x"), 1)


def state_of(partition: Partition) -> object:
    assert partition.leader_state is not None
    return partition.registration.state


def shrink(bench: Bench, partition: Partition, seconds: float = LAG + 1) -> None:
    bench.clock.advance(seconds)
    assert partition.leader_state is not None
    partition.leader_state.maybe_shrink()
