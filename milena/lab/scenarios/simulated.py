"""Scenarios on simulated machines (``lab.cluster``): the same nodes with a virtual clock in one process."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any, Final

from milena.broker.server import Broker
from milena.config.node_config import NodeConfig
from milena.controller.log.formatting import Formatting
from milena.controller.server import Controller
from milena.lab.cluster import BROKER_PORT, CONTROLLER_PORT, SimulatedCluster, host_of
from milena.lab.cluster import CONTROLLER as CONTROLLER_MACHINE
from milena.lab.scenarios.driver import CONTROLLER, tier_settings
from milena.lab.scenarios.interpreter import play, silent
from milena.lab.scenarios.peers import PEERS, Peer
from milena.lab.scenarios.played import Watch
from milena.lab.scenarios.script import Script, node_id
from milena.lab.world.world import World, simulate
from milena.node.serving.lab_commands import LabCommandError
from milena.runtime.context import Runtime
from milena.storage.files.names import META_PROPERTIES
from milena.tiered.store import tier_names

QUICK: Final[Mapping[str, object]] = {
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
    "group_initial_rebalance_delay_ms": 0,
    "broker_session_timeout_ms": 3000,
    "broker_heartbeat_interval_ms": 500,
}
TIER: Final = "/tier"


class SimulatedDriver:
    """Implements ``lab.scenarios.driver.Driver``."""

    def __init__(self, world: World, script: Script) -> None:
        settings = tier_settings(script, TIER) | dict(script.nodes)
        overrides = dict(QUICK) | {name.replace(".", "_"): value for name, value in settings.items()}
        directories = ",".join(f"/data-{number}" for number in range(1, script.log_dirs + 1))
        self._formatting = Formatting.parse(release_version=script.release_version)
        self._makers: dict[str, Peer] = {CONTROLLER_MACHINE: self._controller}
        self._cluster = SimulatedCluster(
            world, overrides=overrides, broker_overrides={"log_dirs": directories}, makers=self._makers
        )
        self._world = world
        for node, peer in script.peers.items():
            self.replace(node, peer)
        self._runtime = world.machine("scenario").start()

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    def address(self, node: str) -> tuple[str, int]:
        return _machine(node), CONTROLLER_PORT if node == CONTROLLER else BROKER_PORT

    async def start(self, node: str) -> None:
        if node == CONTROLLER:
            await self._cluster.start_controller()
        else:
            await self._cluster.start_broker(node_id(node))

    async def stop(self, node: str) -> None:
        if node == CONTROLLER:
            await self._cluster.stop_controller()
        else:
            await self._cluster.stop_broker(node_id(node))

    async def kill(self, node: str) -> None:
        await self._cluster.kill(_machine(node))

    async def power_off(self, node: str) -> None:
        """As on processes, all unsynced data is lost, and none is torn."""
        for inode in self._world.machine(_machine(node)).storage.files.values():
            del inode.data[inode.synced :]
        await self._cluster.lose_power(_machine(node))

    async def wipe(self, node: str) -> None:
        storage = self._world.machine(_machine(node)).storage
        kept = {path: inode for path, inode in storage.files.items() if path.endswith(f"/{META_PROPERTIES}")}
        folders = {folder: None for path in kept for folder in ("/", path.rpartition("/")[0])}
        storage.wipe()
        storage.files |= kept
        storage.folders |= folders

    async def erase(self, node: str, names: Sequence[str]) -> None:
        files = self._world.machine(_machine(node)).storage.files
        for path in list(files):
            if "/".join(path.split("/")[2:]) in names:
                del files[path]

    def replace(self, node: str, peer: str | None) -> None:
        ours = self._controller if node == CONTROLLER else Broker
        self._makers[_machine(node)] = ours if peer is None else PEERS[peer]

    def _controller(self, runtime: Runtime, config: NodeConfig) -> Controller:
        return Controller(runtime, config, formatting=self._formatting)

    async def tier(self) -> Mapping[str, bytes]:
        return {path: bytes(inode.data) for path, inode in self._world.tier.files.items()}

    async def close_tier(self) -> None:
        self._world.tier.fail(TIER, errno.ENOENT)

    async def break_tier(self, operation: str, error: str) -> None:
        """The file that names the tier's owner is kept: without it brokers would not start to copy."""
        number = getattr(errno, error)
        for folder in (tier_names.COPYING, f"{tier_names.ROOT}/"):
            self._world.tier.fail(f"{TIER}/{folder}", number, operation=operation)
        if not operation:
            self._world.tier.fail(f"{TIER}/{tier_names.ROOT}", number, operation="list")

    async def open_tier(self) -> None:
        self._world.tier.heal()

    async def cut(self, one: str, other: str) -> None:
        self._world.fabric.cut(_machine(one), _machine(other))

    async def heal(self, one: str, other: str) -> None:
        self._world.fabric.heal(_machine(one), _machine(other))

    async def command(self, node: str, command: str, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON of any command
        found = self._cluster.controller if node == CONTROLLER else self._cluster.brokers.get(node_id(node))
        if found is None:
            raise LabCommandError(f"{node} is down")
        return await found.lab_commands.call(command, **arguments)

    def check_alive(self) -> None:
        """Raise AssertionError if a node has ended by itself."""
        self._cluster.check_alive()


def play_simulated(script: Script, *, seed: int = 0, watch: Watch = silent) -> list[str]:
    """Run a scenario. Return the replicas after each step. ``watch`` as in ``play``. Raises ScriptError,
    ScenarioFailed."""

    async def run(world: World) -> list[str]:
        driver = SimulatedDriver(world, script)
        shown = await play(script, driver, watch)
        driver.check_alive()
        return shown

    return simulate(run, seed=seed)


def _machine(node: str) -> str:
    return CONTROLLER_MACHINE if node == CONTROLLER else host_of(node_id(node))
