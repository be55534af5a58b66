"""Chaos on processes of this machine: the nodes of `milena up --lab`, steered by signals and commands."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from milena.command_line.errors import UserError
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.own_clients import OwnClients
from milena.lab.chaos.topics import CLUSTER, COMPACTED_TIER, LAG, SESSION, TOPICS
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime
from milena.steering.caller import NotListening
from milena.steering.nodes import SteeredNode
from milena.steering.tier_troubles import ODD_ANSWERS
from milena.testing.local_cluster import LocalCluster
from milena.up.layout import ClusterDir
from milena.up.processes import runs

BROKERS: Final = 3
SMALL_TIER: Final = {"rlmm.config.remote.log.metadata.topic.num.partitions": "3"}
SIGNALS_AND_LINKS: Final = frozenset(
    {
        Kind.KILL,
        Kind.STOP,
        Kind.HANG,
        Kind.RESTART,
        Kind.ISOLATE,
        Kind.CUT_CONTROLLER,
        Kind.CUT_FOLLOWERS,
        Kind.CUT_ONE_WAY,
        Kind.WIPE,
        Kind.POWER_LOSS,
        Kind.CONTROLLER,
        Kind.ROLLING,
        Kind.REASSIGN,
        Kind.UNCLEAN,
    }
)
FOLDER, FSSPEC = "folder", "fsspec"
TIERS: Final = (FOLDER, FSSPEC)
"""The tier's store: a folder, or the same folder through fsspec, like an object store."""
OF_FOLDER: Final = frozenset({Kind.TIER_UNMOUNTED, Kind.ODD_TIER})
LOG_DIRS: Final = 2
ERROR_PAGE: Final = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n"
PAGE, SHORT = "page", "short"
BY_COMMAND: Final[Mapping[str, frozenset[Kind]]] = {
    "fill_disk": frozenset({Kind.FULL_DISK}),
    "fail_disk": frozenset({Kind.LOST_DIRECTORY}),
    "slow_disk": frozenset({Kind.SLOW_DISK}),
    "jump_clock": frozenset({Kind.CLOCK}),
    "break_tier": frozenset({Kind.TIER_AWAY, Kind.SLOW_OBJECTS, Kind.LOST_OBJECTS}),
}
"""Kinds of faults that need a lab command of the nodes."""


class ProcessesPlace:
    """Implements ``lab.chaos.place.Place``."""

    name = "processes"
    insight = None

    def __init__(self, cluster: LocalCluster, runtime: Runtime, failures: list[str], tier: str = FOLDER) -> None:
        """``tier``: ``FOLDER`` or ``FSSPEC``."""
        self._cluster = cluster
        self._runtime = runtime
        self._failures = failures
        self._layout = ClusterDir(cluster.directory)
        self._brokers = sorted(node.id for node in cluster.brokers)
        self._controller = cluster.controller.id
        self._cuts: dict[tuple[int, int], None] = {}
        self._paused: set[int] = set()
        self._steering = asyncio.Lock()
        """Serializes commands with starts of nodes, which repeat them."""
        self._tier: Mapping[str, object] = {}
        """The arguments of the last lab command for faults of the tier."""
        commands = cluster.lab_commands(self._brokers[0]).call("help")
        self._kinds = SIGNALS_AND_LINKS.union(*(kinds for command, kinds in BY_COMMAND.items() if command in commands))
        self._kinds |= OF_FOLDER if tier == FOLDER else {Kind.ODD_TIER}
        self._has_folder = tier == FOLDER
        self._folder = Path(cluster.directory, "remote")
        self._hidden = Path(cluster.directory, "remote-hidden")
        self._libraries: Sequence[Clients] = [OwnClients(runtime, self.bootstrap)]

    @classmethod
    async def open(
        cls, directory: Path, *, brokers: int = BROKERS, port: int = 0, tier: str = FOLDER
    ) -> ProcessesPlace:
        """Start a new cluster in a directory; each broker has two log directories. ``tier``: ``FOLDER`` or ``FSSPEC``.
        Raise UserError."""
        failures: list[str] = []
        runtime = real_runtime(lambda description, error: failures.append(f"{description}: {error!r}"))
        overrides = {**CLUSTER, **COMPACTED_TIER, **SMALL_TIER}
        options = _options(directory, tier)
        cluster = await asyncio.to_thread(
            LocalCluster.start, directory, brokers=brokers, port=port, overrides=overrides, lab=True, options=options
        )
        return cls(cluster, runtime, failures, tier)

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    @property
    def bootstrap(self) -> Sequence[tuple[str, int]]:
        addresses = (address.rpartition(":") for address in self._cluster.bootstrap.split(","))
        return [(host, int(port)) for host, _, port in addresses]

    async def address(self, node: int) -> tuple[str, int]:
        host, _, port = next(iter(self._of(node).entry["listeners"].values())).rpartition(":")
        return host, int(port)

    async def troubles(self, node: int) -> Mapping[str, float]:
        if self._of(node).pid is None or node in self._paused:
            return {}
        try:
            counts: dict[str, float] = await asyncio.to_thread(self._cluster.lab_commands(node).call, "troubles")
        except UserError:
            return {}  # the node has ended in between
        if self._has_folder:
            counts.pop("tier_odd", None)  # this place replaces files; nodes do not count that
        return counts

    @property
    def brokers(self) -> Sequence[int]:
        return self._brokers

    @property
    def controller(self) -> int:
        return self._controller

    @property
    def kinds(self) -> frozenset[Kind]:
        return self._kinds

    @property
    def clients(self) -> Sequence[Clients]:
        return self._libraries

    def use(self, libraries: Sequence[Clients]) -> None:
        """Use these client libraries instead of Milena's own client."""
        self._libraries = libraries

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(TOPICS)

    @property
    def odd_answers(self) -> Sequence[str]:
        return [PAGE, SHORT] if self._has_folder else list(ODD_ANSWERS)

    @property
    def session(self) -> float:
        return SESSION

    @property
    def lag(self) -> float:
        return LAG

    async def kill(self, node: int) -> None:
        """Does nothing for a node whose process has ended."""
        steered = self._of(node)
        if steered.pid is not None:
            await asyncio.to_thread(steered.kill)

    async def shut_down(self, node: int) -> None:
        await asyncio.to_thread(self._of(node).stop)

    async def start(self, node: int) -> None:
        """Start a node, and repeat the commands for its cut links and the tier's faults."""
        steered = self._of(node)
        if steered.pid is not None:
            return
        await asyncio.to_thread(steered.start)
        async with self._steering:
            for sender, receiver in self._cuts:
                if node in (sender, receiver):
                    await self._cut_at(node, sender, receiver)
            if self._tier and node in self._brokers:
                await self._command(node, "break_tier", **self._tier)

    async def pause(self, node: int) -> None:
        self._paused.add(node)
        await asyncio.to_thread(self._of(node).pause)

    async def resume(self, node: int) -> None:
        await asyncio.to_thread(self._of(node).resume)
        self._paused.discard(node)

    async def power_off(self, node: int) -> None:
        await asyncio.to_thread(self._of(node).power_off)

    async def wipe(self, node: int) -> None:
        await asyncio.to_thread(self._of(node).wipe)

    async def cut(self, sender: int, receiver: int) -> None:
        """Cut a link at both ends, so that it stays cut if one of them is restarted, and if one of them is stopped."""
        async with self._steering:
            self._cuts[sender, receiver] = None
            for node in (sender, receiver):
                if node not in self._paused:
                    await self._cut_at(node, sender, receiver)

    async def _cut_at(self, node: int, sender: int, receiver: int) -> None:
        peer, direction = (receiver, "out") if node == sender else (sender, "in")
        await self._command(node, "cut", peer=peer, direction=direction)

    async def heal_links(self) -> None:
        async with self._steering:
            nodes = {node for link in self._cuts for node in link}
            self._cuts.clear()
            for node in sorted(nodes):
                await self._command(node, "heal")

    async def fill_disk(self, node: int) -> None:
        await self._command(node, "fill_disk")

    async def fail_directory(self, node: int) -> None:
        await self._command(node, "fail_disk", path=self._of(node).entry["log.dirs"][-1])

    async def slow_disk(self, node: int, seconds: float) -> None:
        await self._command(node, "slow_disk", ms=1000 * seconds)

    async def jump_clock(self, node: int, seconds: float) -> None:
        await self._command(node, "jump_clock", ms=int(1000 * seconds))

    async def break_tier(self, *, away: bool = False, delay: float = 0.0, lose: float = 0.0, odd: str = "") -> None:
        if self._has_folder:
            await asyncio.to_thread(self._restore_objects)
            if odd:
                await asyncio.to_thread(self._spoil_objects, odd)
                odd = ""
        async with self._steering:
            self._tier = {"away": away, "delay_ms": 1000 * delay, "lose": lose, "odd": odd}
            for broker in self._brokers:
                await self._command(broker, "break_tier", **self._tier)

    def _spoil_objects(self, odd: str) -> None:
        """Replace the content of each object by an error page, or by its first half."""
        for path in [path for path in self._folder.rglob("*") if path.is_file()]:
            kept = self._hidden / path.relative_to(self._folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # a copy that has just been published under its final name
                os.rename(path, kept)
                whole = kept.read_bytes()
                path.write_bytes(ERROR_PAGE if odd == PAGE else whole[: len(whole) // 2])

    def _restore_objects(self) -> None:
        for kept in [path for path in self._hidden.rglob("*") if path.is_file()]:
            path = self._folder / kept.relative_to(self._hidden)
            if path.exists():  # else a broker has deleted the segment
                os.replace(kept, path)
        shutil.rmtree(self._hidden, ignore_errors=True)

    async def mount_tier(self, brokers: Collection[int] = (), *, mounted: bool) -> bool:
        await asyncio.to_thread(self._mount_folder if mounted else self._unmount_folder)
        return True

    def _unmount_folder(self) -> None:
        self._folder.mkdir(exist_ok=True)  # a broker makes it with its first copy
        os.rename(self._folder, self._hidden)
        self._folder.mkdir()

    def _mount_folder(self) -> None:
        made = [str(path) for path in self._folder.rglob("*")]
        shutil.rmtree(self._folder)
        os.rename(self._hidden, self._folder)
        assert not made, f"{made} was written where no tier was mounted"

    async def lost_objects(self) -> Sequence[str]:
        found: list[str] = []
        for broker in self._brokers:
            found += await asyncio.to_thread(self._cluster.lab_commands(broker).call, "lost_objects")
        return found

    async def keep(self, folder: Path) -> None:
        """Copy the logs of all nodes to ``folder``, named after the nodes."""
        await asyncio.to_thread(self._keep, folder)

    def _keep(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for node in self._cluster.nodes:
            name = SteeredNode(self._layout, node).name
            shutil.copyfile(self._layout.log(name), folder / f"{name}.log")

    async def close(self) -> None:
        """Close the cluster. Raises AssertionError if a background task of this process has failed."""
        for node in self._cluster.nodes.values():
            if node.pid is not None:
                self._cluster.resume(node.id)
        await asyncio.to_thread(self._cluster.stop)
        for disk in (self._runtime.disk, self._runtime.tier_disk):
            assert isinstance(disk, RealDisk)
            disk.close()
        assert not self._failures, self._failures

    async def _command(self, node: int, command: str, **arguments: object) -> None:
        """Call a lab command of a node. Ignored if the node is down or ends: its next start repeats the command."""
        pid = self._of(node).pid
        if pid is None:
            return
        try:
            await asyncio.to_thread(self._cluster.lab_commands(node).call, command, **arguments)
        except NotListening:
            return  # it is just being started
        except UserError:
            if runs(pid):
                raise

    def _of(self, node: int) -> SteeredNode:
        return SteeredNode(self._layout, node)


def _options(directory: Path, tier: str) -> list[str]:
    """Return the options of `milena up`."""
    options = ["--log-dirs", str(LOG_DIRS)]
    return [*options, "--tier", f"local://{directory.absolute()}/remote"] if tier == FSSPEC else options
