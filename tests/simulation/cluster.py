"""A controller and brokers on simulated machines, started and killed as a test says."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from broker.server import Broker
from controller.server import Controller
from lab.world import World
from node.client.cluster import Cluster
from runtime.config.node_config import NodeConfig

CONTROLLER_ID = 1000
CONTROLLER_PORT = 9093
BROKER_PORT = 9092


@dataclass
class SimulatedCluster:
    """The controller's machine is ``controller``, the brokers' are ``broker-1`` and so on."""

    world: World
    controller: Controller | None = None
    brokers: dict[int, Broker] = field(default_factory=dict)
    overrides: dict[str, object] = field(default_factory=dict)

    async def start_controller(self) -> Controller:
        config = NodeConfig.of(
            node_id=CONTROLLER_ID,
            process_roles="controller",
            listeners=f"CONTROLLER://controller:{CONTROLLER_PORT}",
            controller_quorum_voters=f"{CONTROLLER_ID}@controller:{CONTROLLER_PORT}",
            log_dirs="/data",
            **self.overrides,
        )
        self.controller = Controller(self.world.machine("controller").start(), config)
        await self.controller.start()
        return self.controller

    async def start_broker(self, number: int) -> Broker:
        host = f"broker-{number}"
        config = NodeConfig.of(
            node_id=number,
            listeners=f"PLAINTEXT://{host}:{BROKER_PORT}",
            controller_quorum_voters=f"{CONTROLLER_ID}@controller:{CONTROLLER_PORT}",
            log_dirs="/data",
            **self.overrides,
        )
        broker = self.brokers[number] = Broker(self.world.machine(host).start(), config)
        await broker.start()
        return broker

    async def kill(self, machine: str) -> None:
        """SIGKILL: what was written stays."""
        self.world.machine(machine).kill()
        await self.world.machine(machine).wait_ended()

    async def lose_power(self, machine: str) -> None:
        """What was not synced is lost."""
        self.world.machine(machine).power_off()
        await self.world.machine(machine).wait_ended()

    @contextlib.asynccontextmanager
    async def client(self, name: str = "client") -> AsyncIterator[Cluster]:
        """A client on a machine of its own."""
        runtime = self.world.machine(name).start()
        cluster = Cluster(runtime, [(f"broker-{number}", BROKER_PORT) for number in self.brokers], name)
        try:
            yield cluster
        finally:
            cluster.close()
            await self.kill(name)

    def check_alive(self) -> None:
        """No node has ended by itself."""
        failures = {name: machine.failures for name, machine in self.world.machines.items() if machine.failures}
        assert not failures, failures


async def start_cluster(world: World, brokers: int = 1, **overrides: object) -> SimulatedCluster:
    """A running cluster; topics are created with one partition unless ``overrides`` (config keys with _) say more."""
    least: dict[str, object] = {
        "offsets_topic_replication_factor": 1,
        "offsets_topic_num_partitions": 3,
        "group_initial_rebalance_delay_ms": 0,
    }
    cluster = SimulatedCluster(world, overrides=least | overrides)
    await cluster.start_controller()
    for number in range(1, brokers + 1):
        await cluster.start_broker(number)
    return cluster
