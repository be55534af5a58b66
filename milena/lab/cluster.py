"""A controller and brokers on simulated machines, started and stopped by the caller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Final

from milena.broker.server import Broker
from milena.client.cluster import Cluster
from milena.config.node_config import NodeConfig
from milena.controller.server import Controller
from milena.lab.invariants.watch import Watch
from milena.lab.world.world import World
from milena.runtime.context import Runtime

CONTROLLER_ID: Final = 1000
CONTROLLER: Final = "controller"
"""The controller's machine."""
CONTROLLER_PORT: Final = 9093
BROKER_PORT: Final = 9092
REQUEST_TIMEOUT: Final = 5.0
"""Seconds that a client waits for an answer: a machine without power does not reset its connections."""


class NodeEnded(RuntimeError):
    """A node ended, by itself or killed, while it started or stopped."""


def host_of(broker: int) -> str:
    """Return the name of a broker's machine."""
    return f"broker-{broker}"


@dataclass
class SimulatedCluster:
    """A simulated cluster. The controller's machine is ``controller``, those of the brokers are ``broker-1`` and so
    on."""

    world: World
    controller: Controller | None = None
    brokers: dict[int, Broker] = field(default_factory=dict)
    overrides: Mapping[str, object] = field(default_factory=dict)
    """Configuration of all nodes, with ``_`` for ``.``."""
    broker_overrides: Mapping[str, object] = field(default_factory=dict)
    makers: Mapping[str, Callable[[Runtime, NodeConfig], Broker | Controller]] = field(default_factory=dict)
    """Machines with nodes that are not Milena's, such as test peers."""
    watch: Watch | None = None
    """Checks the invariants; created by ``begin_watch``."""
    _runtimes: dict[str, Runtime] = field(default_factory=dict)

    def begin_watch(self) -> Watch:
        """Check the invariants after every event from now on. Call it before the first node starts."""
        self.watch = Watch(self.world.loop.time, self.world.tier)
        self.world.loop.after_event = self.watch.after_event
        return self.watch

    async def start_controller(self) -> Controller:
        """Start the controller, and return once it is active. Raises NodeEnded."""
        values = {
            "node_id": CONTROLLER_ID,
            "process_roles": "controller",
            "listeners": f"CONTROLLER://{CONTROLLER}:{CONTROLLER_PORT}",
            "controller_quorum_voters": f"{CONTROLLER_ID}@{CONTROLLER}:{CONTROLLER_PORT}",
            "log_dirs": "/data",
        }
        config = NodeConfig.of(**values | dict(self.overrides))
        controller = self.makers.get(CONTROLLER, Controller)(self._boot(CONTROLLER), config)
        assert isinstance(controller, Controller)
        self.controller = controller
        if self.watch is not None:
            self.watch.controller_starts(controller)
        await self._run(CONTROLLER, controller.start(), "start")
        return controller

    async def start_broker(self, number: int) -> Broker:
        """Start a broker, and return once it serves. Raises NodeEnded."""
        values = {
            "node_id": number,
            "listeners": f"PLAINTEXT://{host_of(number)}:{BROKER_PORT}",
            "controller_quorum_voters": f"{CONTROLLER_ID}@{CONTROLLER}:{CONTROLLER_PORT}",
            "log_dirs": "/data",
        }
        config = NodeConfig.of(**values | dict(self.overrides) | dict(self.broker_overrides))
        broker = self.makers.get(host_of(number), Broker)(self._boot(host_of(number)), config)
        assert isinstance(broker, Broker)
        self.brokers[number] = broker
        if self.watch is not None:
            machine = self.world.machine(host_of(number))
            self.watch.broker_starts(number, broker, machine.storage, self.is_running(broker, number))
        await self._run(host_of(number), broker.start(), "start")
        return broker

    async def kill(self, machine: str) -> None:
        """Kill a machine's process as by SIGKILL: written data is kept."""
        self.world.machine(machine).kill()
        await self.world.machine(machine).wait_ended()

    async def lose_power(self, machine: str) -> None:
        """Cut the power of a machine: unsynced data is lost."""
        self.world.machine(machine).power_off()
        self._note_lost(machine, wiped=False)
        await self.world.machine(machine).wait_ended()

    def wipe(self, machine: str) -> None:
        """Delete all files of a machine that is down."""
        assert not self.world.machine(machine).alive
        self.world.machine(machine).storage.wipe()
        self._note_lost(machine, wiped=True)

    def _note_lost(self, machine: str, *, wiped: bool) -> None:
        for number in self.brokers:
            if self.watch is not None and host_of(number) == machine:
                self.watch.disk_lost(number, wiped=wiped)

    def is_running(self, broker: Broker, number: int) -> Callable[[], bool]:
        """Return a function that checks whether this process of a broker is still running."""
        machine = self.world.machine(host_of(number))
        return lambda: machine.alive and self.brokers[number] is broker

    async def stop_broker(self, number: int) -> None:
        """Stop a broker as by SIGTERM: it shuts down cleanly, and its process ends. Raises NodeEnded if the shutdown
        fails."""
        await self._run(host_of(number), self.brokers[number].stop(), "stop")
        await self.kill(host_of(number))

    async def stop_controller(self) -> None:
        """Stop the controller, like ``stop_broker``."""
        assert self.controller is not None
        await self._run(CONTROLLER, self.controller.stop(), "stop")
        await self.kill(CONTROLLER)

    @contextlib.asynccontextmanager
    async def client(self, name: str = "client") -> AsyncIterator[Cluster]:
        """Provide a client on a separate machine."""
        runtime = self.world.machine(name).start()
        bootstrap = [(host_of(number), BROKER_PORT) for number in self.brokers]
        cluster = Cluster(runtime, bootstrap, name, request_timeout=REQUEST_TIMEOUT)
        try:
            yield cluster
        finally:
            cluster.close()
            await self.kill(name)

    def _boot(self, name: str) -> Runtime:
        runtime = self._runtimes[name] = self.world.machine(name).start()
        return runtime

    async def _run(self, name: str, work: Coroutine[object, object, None], what: str) -> None:
        """Run ``work`` in a task of the machine, which ends with its process."""
        machine = self.world.machine(name)
        if not machine.alive:
            work.close()
            raise NodeEnded(f"{name} cannot {what}: it is down")
        task = self._runtimes[name].new_tasks(what).spawn(work, name=what)
        assert isinstance(task, asyncio.Task)
        await asyncio.wait((task,))
        if task.cancelled() or task.exception() is not None:
            reason = "; ".join(f"{text} ({error})" for text, error in machine.failures[-1:])
            raise NodeEnded(f"{name} ended before its {what} was done: {reason or 'it was killed'}")

    def check_alive(self) -> None:
        """Raises AssertionError if a node has ended by itself."""
        failures = {name: machine.failures for name, machine in self.world.machines.items() if machine.failures}
        assert not failures, failures


async def start_cluster(
    world: World,
    brokers: int = 1,
    overrides: Mapping[str, object] | None = None,
    *,
    of_brokers: Mapping[str, object] | None = None,
    watched: bool = False,
) -> SimulatedCluster:
    """Start a cluster. ``overrides`` are configuration keys with ``_``; ``of_brokers`` those of the brokers only.
    ``watched``: check the invariants after every event (``lab.invariants``)."""
    least: dict[str, object] = {
        "offsets_topic_replication_factor": 1,
        "offsets_topic_num_partitions": 3,
        "transaction_state_log_replication_factor": 1,
        "transaction_state_log_min_isr": 1,
        "transaction_state_log_num_partitions": 3,
        "group_initial_rebalance_delay_ms": 0,
    }
    cluster = SimulatedCluster(world, overrides=least | dict(overrides or {}), broker_overrides=of_brokers or {})
    if watched:
        cluster.begin_watch()
    await cluster.start_controller()
    for number in range(1, brokers + 1):
        await cluster.start_broker(number)
    return cluster
