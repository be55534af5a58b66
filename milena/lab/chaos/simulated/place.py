"""Chaos in the simulation: the nodes of one process, with virtual time, bit for bit the same for a seed."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from milena.command_line.errors import UserError
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import CLIENTS, Kind
from milena.lab.chaos.journal import HISTORY
from milena.lab.chaos.own_clients import HABITS, Habits, OwnClients
from milena.lab.chaos.place import Insight
from milena.lab.chaos.plan import in_rounds, overlaps
from milena.lab.chaos.runner import Order, run
from milena.lab.chaos.simulated.faults import SimulatedFaults
from milena.lab.chaos.simulated.insight import WatchedCluster
from milena.lab.chaos.topics import CLUSTER, COMPACTED_TIER, LAG, REPLICAS, SESSION, TOPICS
from milena.lab.chaos.verdict import Verdict
from milena.lab.cluster import (
    BROKER_PORT,
    CONTROLLER,
    CONTROLLER_ID,
    CONTROLLER_PORT,
    NodeEnded,
    SimulatedCluster,
    host_of,
)
from milena.lab.invariants.broken import demand
from milena.lab.world.disk import OFFLOAD_SECONDS, Storage
from milena.lab.world.power import Inode
from milena.lab.world.tiering import FOLDER
from milena.lab.world.world import Machine, World, simulate
from milena.runtime.context import Runtime
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC
from milena.tiered.store.remote_storage import LOG_SUFFIX
from milena.tiered.store.tier_config import LOCAL
from milena.tiered.store.tier_names import ROOT

BROKERS: Final = 3
METADATA: Final = "rlmm.config.remote.log.metadata.topic"
TIER: Final = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": LOCAL,
    "rsm.config.dir": FOLDER,
    f"{METADATA}.num.partitions": "2",
    f"{METADATA}.replication.factor": str(REPLICAS),
    f"{METADATA}.min.isr": "2",
}
SMALL_MEMORY: Final = {"log.cleaner.dedupe.buffer.size": str(4 << 20)}
SETTINGS: Final[Mapping[str, str]] = {**CLUSTER, **COMPACTED_TIER, **TIER, **SMALL_MEMORY}
CLIENT: Final = "client"
"""The clients' machine."""
CONTROLLER_DISK: Final = "/data"
DISKS: Final = ("/data-1", "/data-2")
METADATA_DISK: Final = "/metadata"
PAGE, SHORT = "page", "short"
"""Wrong answers of the tier: each object reads as an error page, or as its first half."""
ERROR_PAGE: Final = b"<html><body><h1>502 Bad Gateway</h1></body></html>\n"
ATTEMPTS: Final = 20
"""To start a node, a second apart. It may end again, for example because a disk fails or the tier is not mounted."""
COPYING: Final = 5
"""How often to look for the first copy."""
SPREADING: Final = 3.0
"""Seconds after the first copy within which the other brokers learn of it."""


class SimulatedPlace:
    """Implements ``place.Place``."""

    name = "simulation"

    def __init__(
        self,
        world: World,
        brokers: int = BROKERS,
        settings: Mapping[str, str] = SETTINGS,
        *,
        habits: Habits = HABITS,
        note: Callable[[str], object] | None = None,
        spared: Sequence[str] = (),
    ) -> None:
        """``habits``: of the clients. ``note``: watch the cluster's invariants, and call it with what happens.
        ``spared``: topics of which no object of the tier is lost for good."""
        of_brokers = {"log_dirs": ",".join(DISKS), "metadata_log_dir": METADATA_DISK}
        overrides = {name.replace(".", "_"): value for name, value in settings.items()}
        self._world = world
        self._cluster = SimulatedCluster(world, overrides=overrides, broker_overrides=of_brokers)
        self._brokers = range(1, brokers + 1)
        self._runtime = world.machine(CLIENT).start()
        self._habits = habits
        self._insight = None if note is None else self._watched(note, spared)
        self._losing = 0.0
        """The share of new segments that the tier loses."""
        self._there: set[str] = set()
        self._spoiled: dict[str, tuple[Inode, bytes]] = {}
        """Objects that read as something else, and what they were."""
        self._empty = Storage(self._runtime.random)
        """What brokers find in place of the tier while it is not mounted."""
        self._lost: list[str] = []

    def _watched(self, note: Callable[[str], object], spared: Sequence[str]) -> WatchedCluster:
        self._cluster.begin_watch().tell(note)
        faults = SimulatedFaults(
            self._cluster,
            _machine,
            self.start,
            note,
            self._runtime.random,
            disks=(*DISKS, METADATA_DISK),
            controller_disk=CONTROLLER_DISK,
            spared=spared,
        )
        return WatchedCluster(self._cluster, faults)

    async def open(self) -> None:
        await self._cluster.start_controller()
        for broker in self._brokers:
            await self._cluster.start_broker(broker)

    @property
    def runtime(self) -> Runtime:
        return self._runtime

    @property
    def bootstrap(self) -> Sequence[tuple[str, int]]:
        return [(host_of(broker), BROKER_PORT) for broker in self._brokers]

    async def address(self, node: int) -> tuple[str, int]:
        return (CONTROLLER, CONTROLLER_PORT) if node == CONTROLLER_ID else (host_of(node), BROKER_PORT)

    async def troubles(self, node: int) -> Mapping[str, float]:
        """The tier is the same for all."""
        machine, tier = self._of(node), self._world.tier
        found = {"slowed": machine.storage.slowed, "tier_failed": tier.failed, "tier_slowed": tier.slowed}
        wall = {"wall_ms": machine.time_ms()} if machine.alive else {}
        return {**wall, **found, "tier_lost": len(self._lost)}

    @property
    def brokers(self) -> Sequence[int]:
        return self._brokers

    @property
    def controller(self) -> int:
        return CONTROLLER_ID

    @property
    def kinds(self) -> frozenset[Kind]:
        """Those that need no insight come in rounds, where it is not used."""
        return frozenset(kind for kind in Kind if (overlaps if self._insight else in_rounds)(kind))

    @property
    def insight(self) -> Insight | None:
        return self._insight

    @property
    def clients(self) -> Sequence[Clients]:
        return [OwnClients(self._runtime, self.bootstrap, self._habits)]

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(TOPICS)

    @property
    def odd_answers(self) -> Sequence[str]:
        return [PAGE, SHORT]

    @property
    def session(self) -> float:
        return SESSION

    @property
    def lag(self) -> float:
        return LAG

    async def kill(self, node: int) -> None:
        await self._cluster.kill(_machine(node))

    async def shut_down(self, node: int) -> None:
        """A node that cannot reach the other nodes may end with an error."""
        try:
            if node == CONTROLLER_ID:
                await self._cluster.stop_controller()
            else:
                await self._cluster.stop_broker(node)
        except NodeEnded as error:
            if self._insight is None:
                raise UserError(str(error)) from None

    async def stop(self) -> None:
        """Shut all nodes down, brokers first. Raises NodeEnded if one does not end in order."""
        for broker in self._brokers:
            await self._cluster.stop_broker(broker)
        await self._cluster.stop_controller()

    async def start(self, node: int) -> None:
        if self._of(node).alive:
            return
        self._of(node).storage.heal()
        for attempt in range(ATTEMPTS):
            try:
                if node == CONTROLLER_ID:
                    await self._cluster.start_controller()
                else:
                    await self._cluster.start_broker(node)
                return
            except NodeEnded as error:
                if attempt == ATTEMPTS - 1:
                    raise UserError(str(error)) from None
                await self._runtime.clock.sleep(1)

    async def pause(self, node: int) -> None:
        self._of(node).pause()

    async def resume(self, node: int) -> None:
        self._of(node).resume()

    async def power_off(self, node: int) -> None:
        await self._cluster.lose_power(_machine(node))

    async def wipe(self, node: int) -> None:
        """A broker that alone knows what is in the tier keeps its disks: without it the tier could be restored, but not
        read."""
        if not self._alone_knows_the_tier(node):
            self._cluster.wipe(_machine(node))

    def _alone_knows_the_tier(self, broker: int) -> bool:
        assert self._cluster.controller is not None
        topic = self._cluster.controller.state.image.topics.get(REMOTE_LOG_METADATA_TOPIC)
        return topic is not None and any(set(partition.isr) == {broker} for partition in topic.partitions.values())

    async def cut(self, sender: int, receiver: int) -> None:
        self._world.fabric.cut(_machine(sender), _machine(receiver), one_way=True)

    async def heal_links(self) -> None:
        nodes = [CONTROLLER, CLIENT, *map(host_of, self._brokers)]
        for one in nodes:
            for other in nodes:
                self._world.fabric.heal(one, other)

    async def fill_disk(self, node: int) -> None:
        for operation in ("append", "write"):
            self._of(node).storage.fail(f"{DISKS[0]}/", errno.ENOSPC, operation=operation)

    async def fail_directory(self, node: int) -> None:
        self._of(node).storage.fail(f"{DISKS[1]}/", errno.EIO)

    async def slow_disk(self, node: int, seconds: float) -> None:
        self._of(node).storage.offload_seconds = (seconds, 1.5 * seconds) if seconds else OFFLOAD_SECONDS

    async def jump_clock(self, node: int, seconds: float) -> None:
        self._of(node).jump_clock(seconds)

    async def break_tier(self, *, away: bool = False, delay: float = 0.0, lose: float = 0.0, odd: str = "") -> None:
        tier = self._world.tier
        self._forget_objects()
        tier.heal()
        tier.offload_seconds = (delay, 1.5 * delay) if delay else OFFLOAD_SECONDS
        self._losing = lose
        self._there = set(tier.files)
        self._restore_objects()
        if away:
            tier.fail(FOLDER, errno.EIO)
        if odd:
            self._spoil_objects(odd)

    def _spoil_objects(self, odd: str) -> None:
        for path, inode in self._world.tier.files.items():
            if path.startswith(f"{FOLDER}/{ROOT}/"):
                whole = bytes(inode.data)
                inode.data[:] = ERROR_PAGE if odd == PAGE else whole[: len(whole) // 2]
                self._spoiled[path] = (inode, whole)

    def _restore_objects(self) -> None:
        """Those that brokers have deleted stay deleted."""
        for inode, whole in self._spoiled.values():
            inode.data[:] = whole
        self._spoiled.clear()

    async def mount_tier(self, brokers: Collection[int] = (), *, mounted: bool) -> bool:
        machines = [self._of(broker) for broker in brokers or self._brokers]
        if mounted:
            made = [*self._empty.files, *(folder for folder in self._empty.folders if ROOT in folder)]
            demand(not made, "the tier's mount point", f"{made} was made where no tier was mounted")
        elif not await self._is_used():
            return False
        else:
            self._empty = Storage(self._runtime.random)
            self._empty.folders[FOLDER] = None
        for machine in machines:
            machine.mount_tier(None if mounted else self._empty)
        return True

    async def _is_used(self) -> bool:
        """Wait until segments are copied and all brokers know it. Return False if that takes too long."""
        for _ in range(COPYING):
            await self._runtime.clock.sleep(SPREADING)
            if any(
                path.startswith(f"{FOLDER}/{ROOT}/") and path.endswith(LOG_SUFFIX) for path in self._world.tier.files
            ):
                await self._runtime.clock.sleep(SPREADING)
                return True
        return False

    def _forget_objects(self) -> None:
        """The store loses some of the segments that were written while it was losing."""
        files = self._world.tier.files
        for path in sorted(files.keys() - self._there) if self._losing else ():
            if path.endswith(LOG_SUFFIX) and self._runtime.random.uniform(0, 1) < self._losing:
                del files[path]
                self._lost.append(path)

    async def lost_objects(self) -> Sequence[str]:
        return self._lost

    async def keep(self, folder: Path) -> None:
        """The history has everything."""

    async def close(self) -> None:
        """The world ends its machines."""

    def check_alive(self) -> None:
        """No node has ended because of an error. Raises AssertionError."""
        self._cluster.check_alive()

    def _of(self, node: int) -> Machine:
        return self._world.machine(_machine(node))


def _machine(node: int) -> str:
    return {CONTROLLER_ID: CONTROLLER, CLIENTS: CLIENT}.get(node) or host_of(node)


def run_simulated(
    order: Order,
    folder: Path,
    place_in: Callable[[World], SimulatedPlace] = SimulatedPlace,
    header: Mapping[str, object] = MappingProxyType({}),
) -> tuple[Verdict, str]:
    """The verdict, and a digest of everything that was delivered and observed: equal for equal orders."""

    async def play(world: World) -> tuple[Verdict, str]:
        place = place_in(world)
        await place.open()
        verdict = await run(order, place, folder, header=header)
        place.check_alive()
        return verdict, world.digest()

    verdict, delivered = simulate(play, seed=order.seed)
    observed = hashlib.sha256((folder / HISTORY).read_bytes()).hexdigest()
    return verdict, f"{delivered[:16]}-{observed[:16]}"
