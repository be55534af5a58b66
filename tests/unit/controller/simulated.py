"""A controller on a simulated machine, and what speaks to it over the simulated network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.controller.log.formatting import Formatting
from milena.controller.server import Controller
from milena.lab.world.world import Machine, World
from milena.node.links.outgoing import Channel
from milena.protocol.api_keys import ApiKey
from milena.protocol.requests.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse
from milena.protocol.requests.fetch import decode_fetch_response as decode
from milena.protocol.requests.fetch import encode_fetch_request as encode
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID
from milena.runtime.context import Runtime
from tests.unit.controller.cluster import CLUSTER_ID, directory, incarnation

HOST, PORT = "c1", 9093
RANGES = [
    {"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 33},
    {"name": "kraft.version", "min_supported_version": 0, "max_supported_version": 1},
    {"name": "transaction.version", "min_supported_version": 0, "max_supported_version": 2},
]


def config(**values: object) -> NodeConfig:
    settings: dict[str, object] = {
        "process_roles": "controller",
        "node_id": 1000,
        "listeners": f"CONTROLLER://{HOST}:{PORT}",
        "controller_quorum_voters": f"1000@{HOST}:{PORT}",
        "log_dirs": "/data",
    }
    return NodeConfig.of(**(settings | values))


@dataclass
class Site:
    """One machine with a controller, and a client on another."""

    world: World
    client: Runtime
    controller: Controller
    channel: Channel

    @classmethod
    async def start(
        cls, world: World, *, client: Runtime | None = None, formatting: Formatting | None = None, **values: object
    ) -> Site:
        client = client or world.machine("client").start()
        runtime = world.machine(HOST).start()
        controller = Controller(runtime, config(**values), formatting=formatting or Formatting(CLUSTER_ID))
        await controller.start()
        return cls(world, client, controller, Channel(client, HOST, PORT, "client"))

    @property
    def machine(self) -> Machine:
        return self.world.machine(HOST)

    async def restart(self, **values: object) -> Site:
        """After the machine was killed or lost its power."""
        await self.machine.wait_ended()
        return await Site.start(self.world, client=self.client, formatting=Formatting(), **values)

    async def ask(self, key: ApiKey, version: int | None = None, **fields: Any) -> Any:
        return await self.channel.request(key, version, timeout=5.0, **fields)

    async def register(self, broker: int, *, run: int = 0) -> int:
        """Register and unfence a broker; its epoch."""
        answer = await self.ask(
            ApiKey.BROKER_REGISTRATION,
            broker_id=broker,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation(broker, run),
            listeners=[{"name": "PLAINTEXT", "host": "b", "port": 9092, "security_protocol": 0}],
            features=RANGES,
            log_dirs=[directory(broker)],
        )
        assert answer.error_code == 0
        epoch: int = answer.broker_epoch
        await self.beat(broker, epoch)
        return epoch

    async def beat(self, broker: int, epoch: int, **fields: Any) -> Any:
        offset = self.controller.metadata.high_watermark - 1
        return await self.ask(
            ApiKey.BROKER_HEARTBEAT,
            **{"broker_id": broker, "broker_epoch": epoch, "current_metadata_offset": offset} | fields,
        )

    async def create(self, name: str, partitions: int = 1, **fields: Any) -> Any:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
        answer = await self.ask(ApiKey.CREATE_TOPICS, topics=[topic | fields], timeout_ms=1000)
        return answer.topics[0]

    async def fetch(
        self,
        offset: int,
        *,
        last_epoch: int = 1,
        epoch: int | None = None,
        version: int = 18,
        wait_ms: int = 0,
        high_watermark: int = 2**63 - 1,
        node: int = 7,
        cluster_id: str | None = None,
        topic: tuple[str | None, UUID | None] = (METADATA_TOPIC, METADATA_TOPIC_ID),
    ) -> FetchResponse:
        partition = FetchPartition(
            0,
            offset,
            1 << 20,
            current_leader_epoch=self.controller.metadata.epoch if epoch is None else epoch,
            last_fetched_epoch=last_epoch,
            high_watermark=high_watermark,
        )
        request = FetchRequest(wait_ms, 0, 1 << 20, [(*topic, [partition])], replica_id=node, cluster_id=cluster_id)
        return await self.channel.request_raw(
            ApiKey.FETCH, version, [encode(version, request)], lambda body: decode(version, bytes(body)), timeout=5.0
        )

    async def fetch_partition(self, offset: int, **fields: Any) -> FetchedPartition:
        response = await self.fetch(offset, **fields)
        assert response.error_code == 0
        ((_, _, (partition,)),) = response.topics
        return partition


def scenario(steps: Callable[[Site], Awaitable[None]], **values: Any) -> Callable[[World], Any]:
    async def run(world: World) -> None:
        site = await Site.start(world, **values)
        await steps(site)
        assert world.machine(HOST).failures == []

    return run
