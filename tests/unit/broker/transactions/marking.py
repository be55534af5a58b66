"""A sender of markers, and brokers that answer as the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from milena.broker.transactions.markers import MarkerSender, MarkerWork
from milena.lab.world.world import World, simulate
from milena.node.links.outgoing import ChannelError, Unreachable
from milena.node.metadata.image import BrokerImage, ListenerImage, MetadataImage, PartitionImage, TopicImage
from milena.node.serving.scheduler import Scheduler
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, ProducerId, TopicPartition

Marker = tuple[int, str, int]
"""A producer id and a partition."""


class Brokers:
    """The brokers of a cluster, which write every marker unless the test says otherwise."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.requests: list[tuple[int, Any]] = []
        """Each request with the broker that got it."""
        self.errors: dict[TopicPartition, list[ErrorCode]] = {}
        """The next answers for a partition, NONE after them."""
        self.failures: dict[int, list[Exception]] = {}
        """The next failures of requests to a broker."""
        self.held: dict[int, asyncio.Event] = {}
        """Brokers that answer only once the event is set."""
        self.version = 2
        self.times: list[float] = []
        for broker in (1, 2, 3):
            self.register(broker)

    # -- the metadata

    def register(self, broker: int, *, fenced: bool = False, listener: str = "BROKERS") -> None:
        endpoints = (ListenerImage(listener, f"host-{broker}", 9092),)
        self.image.brokers[NodeId(broker)] = BrokerImage(
            NodeId(broker), BrokerEpoch(broker), UUID(int=broker), endpoints, {}, fenced=fenced
        )
        self.image.offset = Offset(self.image.offset + 1)

    def topic(self, name: str, *leaders: int) -> None:
        """Create a topic or elect leaders, one for each partition; -1 for none."""
        partitions = {
            index: PartitionImage((NodeId(1),), (NodeId(1),), NodeId(leader), LeaderEpoch(0), PartitionEpoch(0))
            for index, leader in enumerate(leaders)
        }
        self.image.topics[name] = TopicImage(name, UUID(int=len(self.image.topics) + 1), partitions)
        self.image.offset = Offset(self.image.offset + 1)

    def delete(self, name: str) -> None:
        del self.image.topics[name]
        self.image.offset = Offset(self.image.offset + 1)

    # -- the links

    def knows(self, broker: NodeId) -> bool:
        return broker in self.image.brokers and self.image.brokers[broker].address("BROKERS") is not None

    async def request(
        self, broker: NodeId, key: ApiKey, version: int | None = None, *, timeout: float | None = None, **fields: Any
    ) -> Any:
        assert key is ApiKey.WRITE_TXN_MARKERS
        request = messages.decode_request(key, self.version, messages.encode_request(key, self.version, **fields))
        self.requests.append((broker, request))
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.001)
        if broker in self.held:
            await self.held[broker].wait()
        if self.failures.get(broker):
            raise self.failures[broker].pop(0)
        markers = [self._result(marker) for marker in request.markers]
        return messages.decode_response(key, self.version, messages.encode_response(key, self.version, markers=markers))

    def _result(self, marker: Any) -> dict[str, Any]:
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": self._error(topic.name, index)}
                    for index in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ]
        return {"producer_id": marker.producer_id, "topics": topics}

    def _error(self, topic: str, index: int) -> ErrorCode:
        errors = self.errors.get((topic, index))
        return errors.pop(0) if errors else ErrorCode.NONE

    def markers(self, broker: int) -> list[Marker]:
        """What a broker was asked to write, in order."""
        return [
            (marker.producer_id, topic.name, index)
            for asked, request in self.requests
            if asked == broker
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


class Marking:
    """A coordinator that sends markers, and what it hears of them."""

    def __init__(self, world: World, brokers: Brokers) -> None:
        machine = world.machine("coordinator")
        runtime = machine.start()
        self.brokers = brokers
        self.results: list[tuple[str, ErrorCode | None]] = []
        """Transactional ids whose work is over; None for those that are complete."""
        self.failing = False
        """Whether the coordinator fails when it hears that a transaction is complete."""
        self.sender = MarkerSender(
            runtime,
            runtime.new_tasks("test"),
            brokers,  # type: ignore[arg-type]
            lambda: brokers.image,
            turn=Scheduler(runtime.clock).turn,
        )

    def send(
        self,
        transactional_id: str,
        *partitions: TopicPartition,
        producer: int = 7,
        epoch: int = 3,
        state_partition: int = 5,
        coordinator_epoch: int = 11,
        commit: bool = True,
        version: int = 2,
    ) -> None:
        self.sender.send(
            MarkerWork(
                transactional_id,
                state_partition,
                coordinator_epoch,
                ProducerId(producer),
                epoch,
                commit,
                partitions,
                version,
                done=lambda: self._done(transactional_id),
                fenced=lambda error: self.results.append((transactional_id, error)),
            )
        )

    def _done(self, transactional_id: str) -> None:
        self.results.append((transactional_id, None))
        if self.failing:
            raise ValueError("the coordinator fails")


def with_brokers(scenario: Callable[[Marking], Awaitable[None]]) -> None:
    """Play ``scenario`` in virtual time."""

    async def run(world: World) -> None:
        await scenario(Marking(world, Brokers()))

    simulate(run, seed=1)


BROKEN = ChannelError("the connection broke")
UNREACHABLE = Unreachable("cannot connect")
