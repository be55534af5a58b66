"""Scenarios on real processes: a cluster of `milena up --lab` whose nodes are killed, controlled and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from milena.command_line.errors import UserError
from milena.lab.scenarios.driver import CONTROLLER, tier_settings
from milena.lab.scenarios.interpreter import play, silent
from milena.lab.scenarios.played import Watch
from milena.lab.scenarios.script import Script, node_id
from milena.lab.scenarios.stage import ScenarioFailed
from milena.node.serving.lab_commands import LabCommandError
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime
from milena.steering.nodes import SteeredNode
from milena.storage.files.names import META_PROPERTIES
from milena.testing.local_cluster import MILENA, LocalCluster
from milena.up.layout import ClusterDir

QUICK: Final[Mapping[str, str]] = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "broker.heartbeat.interval.ms": "500",
}
"""The session timeout. Ended processes are fenced at once; a scenario that waits for a session shortens it."""

HIDDEN: Final = ".hidden"
"""The suffix of the tier's folder while a scenario has closed the tier."""

PEER: Final = (sys.executable, "-P", "-m", "milena.commands.scenario.peer_process")
"""The command of a test peer; its name and the node's properties file are appended."""


class ProcessDriver:
    """Implements ``lab.scenarios.driver.Driver``. All nodes start together with the controller; those that the scenario
    has not started yet are idle."""

    def __init__(self, directory: str, script: Script, runtime: Runtime, *, detach: bool = False) -> None:
        self._script = script
        self._detach = detach
        self._commands: dict[str, Sequence[str]] = {}
        """Processes that the supervisor does not start, by node."""
        self._layout = ClusterDir(directory)
        self._tier = os.path.join(directory, "tier")
        self._runtime = runtime
        self._cluster: LocalCluster | None = None

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    def address(self, node: str) -> tuple[str, int]:
        (address,) = self._node(node).entry["listeners"].values()
        host, _, port = address.rpartition(":")
        return host.strip("[]"), int(port)

    async def start(self, node: str) -> None:
        if self._cluster is None:
            await self._start_cluster()
        steered = self._node(node)
        if steered.pid is not None:
            return
        if (command := self._commands.get(node)) is None:
            await asyncio.to_thread(steered.start)
        else:
            await asyncio.to_thread(self._running.restart, steered.id, command)

    async def _start_cluster(self) -> None:
        """Start all nodes. Test peers use disks that ordinary nodes have formatted."""
        options = ["--lab"]
        if self._script.release_version is not None:
            options += ["--release-version", self._script.release_version]
        brokers = self._script.brokers
        self._cluster = await asyncio.to_thread(
            LocalCluster.start,
            self._layout.path,
            brokers=len(brokers),
            overrides={**QUICK, **tier_settings(self._script, self._tier), **self._script.nodes},
            options=options,
            detach=self._detach,
        )
        for node in (CONTROLLER, *brokers):
            self.replace(node, self._script.peers.get(node))
        if CONTROLLER in self._commands:
            # A controller detects the end of a process only if it had a heartbeat from it and connected to it.
            await asyncio.gather(*(self.stop(node) for node in brokers))
        for node in self._commands:
            if self._node(node).pid is not None:
                await self.kill(node)

    async def stop(self, node: str) -> None:
        await asyncio.to_thread(self._node(node).stop)

    async def kill(self, node: str) -> None:
        await asyncio.to_thread(self._node(node).kill)

    async def power_off(self, node: str) -> None:
        await asyncio.to_thread(self._node(node).power_off)

    async def wipe(self, node: str) -> None:
        for folder in self._node(node).entry["log.dirs"]:
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry)
                elif entry.name != META_PROPERTIES:
                    os.unlink(entry)

    async def erase(self, node: str, names: Sequence[str]) -> None:
        for folder in self._node(node).entry["log.dirs"]:
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))

    def replace(self, node: str, peer: str | None) -> None:
        self._commands.pop(node, None)
        if peer is not None:
            self._commands[node] = (*PEER, peer)
        elif node != CONTROLLER and self._script.log_dirs > 1:
            first = self._layout.data(self._node(node).name)
            directories = [first, *(f"{first}-{number}" for number in range(2, self._script.log_dirs + 1))]
            self._commands[node] = (*MILENA, "node", "--override", f"log.dirs={','.join(directories)}")

    async def tier(self) -> Mapping[str, bytes]:
        return await asyncio.to_thread(_contents, self._tier)

    async def close_tier(self) -> None:
        os.rename(self._tier, self._hidden)

    async def break_tier(self, operation: str, error: str) -> None:
        raise ScenarioFailed(f"{operation or 'all'} cannot be made to fail with {error} on real files")

    async def open_tier(self) -> None:
        shutil.rmtree(self._tier, ignore_errors=True)
        os.rename(self._hidden, self._tier)

    @property
    def _hidden(self) -> str:
        return self._tier + HIDDEN

    async def cut(self, one: str, other: str) -> None:
        await self.command(one, "cut", peer=self._node(other).id)

    async def heal(self, one: str, other: str) -> None:
        await self.command(one, "heal", peer=self._node(other).id)

    async def command(self, node: str, command: str, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON of any command
        try:
            return await asyncio.to_thread(self._node(node).lab_commands.call, command, **arguments)
        except UserError as error:
            raise LabCommandError(str(error)) from None

    async def close(self) -> None:
        """End all processes."""
        if self._cluster is not None:
            await asyncio.to_thread(self._cluster.stop)

    @property
    def _running(self) -> LocalCluster:
        assert self._cluster is not None, "the controller is started first"
        return self._cluster

    def _node(self, node: str) -> SteeredNode:
        return SteeredNode(self._layout, self._running.controller.id if node == CONTROLLER else node_id(node))


async def play_on_processes(script: Script, directory: str, *, watch: Watch = silent, keep: bool = False) -> list[str]:
    """Run a scenario. Return the replicas after each step. ``watch`` as in ``play``; ``directory`` must be new.
    ``keep``: leave the cluster running at the end of the scenario, also if it has failed.

    Raises ScriptError, ScenarioFailed.
    """
    runtime = real_runtime(_failed)
    driver = ProcessDriver(directory, script, runtime, detach=keep)
    at_end = False
    try:
        shown = await play(script, driver, watch)
        at_end = True
    except ScenarioFailed:
        at_end = True
        raise
    finally:
        if not (keep and at_end):
            await driver.close()
        assert isinstance(runtime.disk, RealDisk)
        runtime.disk.close()
    return shown


def _contents(folder: str) -> dict[str, bytes]:
    """Return the files of a folder that other processes change concurrently."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                found[path] = file.read()
    return found


def _failed(description: str, error: BaseException | None) -> None:
    """A background task of the scenario has failed."""
    raise ScenarioFailed(description) from error
