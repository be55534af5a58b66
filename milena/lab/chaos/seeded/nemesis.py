"""Random faults: nodes are killed, stopped and lose power, links are cut, disks fail; all faults end before the run
does."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Final

from milena.lab.chaos.seeded.flipped_bytes import FlippedBytes
from milena.lab.chaos.seeded.tier_troubles import OF_TIER
from milena.lab.cluster import BROKER_PORT, CONTROLLER, NodeEnded, SimulatedCluster, host_of
from milena.lab.histories.group_events import Trouble
from milena.lab.world.trace import Trace
from milena.runtime.randomness import Randomness
from milena.tiered.metadata.metadata_partitioner import REMOTE_LOG_METADATA_TOPIC

LONGEST_DOWN: Final = 4.0
LONGEST_CUT: Final = 12.0
"""Seconds; longer than a broker's session."""
DISK_OPERATIONS: Final = ("append", "sync", "open", "rename", "write", "")
START_ATTEMPTS: Final = 5
LONGEST_DELAY: Final = 1.5
"""Seconds of delay on a slow link: less than clients' time-outs, but disturbing."""
OF_LINKS: Final = ("links", "halfopen", "slow", "isolate")
WEIGHTS: Final = {
    "kill": 6,
    "power": 4,
    "pause": 3,
    "stop": 3,
    "disk": 3,
    "wipe": 2,
    "blackout": 1,
    "controller": 4,
}
"""The weights of node faults."""
METADATA: Final = "metadata"
UNMOUNT: Final = "unmount"
APART: Final = (METADATA, UNMOUNT)
"""Faults with a source of random choices of their own: the other faults of a seed are the same without them."""
KINDS: Final = (*WEIGHTS, *OF_LINKS, *OF_TIER, *APART)
"""The kinds that ``--faults`` accepts."""


class UnknownFault(ValueError):
    """The message names the fault."""


def checked(kinds: Collection[str]) -> tuple[str, ...]:
    """The kinds in the order of ``KINDS``. Raises UnknownFault."""
    for kind in kinds:
        if kind not in KINDS:
            raise UnknownFault(f"unknown fault {kind!r}; use {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in kinds)


class Nemesis:
    """Causes one node fault and one link fault at a time, of the given ``kinds``."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        trace: Trace,
        random: Randomness,
        disks: tuple[str, ...],
        kinds: Collection[str] = KINDS,
        flips: FlippedBytes | None = None,
    ) -> None:
        """``disks``: the brokers' log directories that may fail. ``flips``: bits of metadata logs turn over, too."""
        self._cluster = cluster
        self._world = cluster.world
        self._trace = trace
        self._random = random
        self._disks = disks
        self._flips = flips
        self._brokers = list(cluster.brokers)
        self._actions: Mapping[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill_broker,
            "power": self._cut_power_of_broker,
            "pause": self._pause_broker,
            "stop": self._stop_broker,
            "disk": self._fail_disk,
            "wipe": self._wipe_broker,
            "blackout": self._cut_all_power,
            "controller": self._end_controller,
            "links": self._cut_link,
            "halfopen": self._cut_one_way,
            "slow": self._slow_down,
            "isolate": self._isolate,
        }
        self.troubles: list[Trouble] = []
        """The brokers that had a fault, or whose links had one, and when."""
        self._of_nodes = [kind for kind in kinds if kind in WEIGHTS for _ in range(WEIGHTS[kind])]
        self._of_links = [kind for kind in kinds if kind in OF_LINKS]

    async def trouble_nodes(self, faults: int) -> None:
        for _ in range(faults):
            if self._of_nodes:
                await self._pause(2)
                await self._actions[self._random.choice(self._of_nodes)]()
            if self._flips is not None:
                await self._flip(self._flips)

    async def trouble_links(self, faults: int) -> None:
        for _ in range(faults if self._of_links else 0):
            await self._pause(4)
            await self._actions[self._random.choice(self._of_links)]()

    @contextlib.contextmanager
    def _trouble(self, *machines: str) -> Iterator[None]:
        begun = self._world.loop.time()
        yield
        ended = self._world.loop.time()
        self.troubles += [Trouble(f"{machine}:{BROKER_PORT}", begun, ended) for machine in machines]

    async def _pause(self, longest: float) -> None:
        await asyncio.sleep(self._random.uniform(0, longest))

    def _choose_link(self) -> tuple[str, str]:
        """A broker's link, with either end first."""
        broker = self._random.choice(self._brokers)
        others = [CONTROLLER, "client", *(host_of(number) for number in self._brokers if number != broker)]
        one, other = self._random.shuffled([host_of(broker), self._random.choice(others)])
        return one, other

    async def _cut_link(self) -> None:
        one, other = self._choose_link()
        await self._cut(one, [other])

    async def _cut_one_way(self) -> None:
        one, other = self._choose_link()
        self._trace.note(f"the link from {one} to {other} is cut, the other direction works")
        with self._trouble(one, other):
            self._world.fabric.cut(one, other, one_way=True)
            await self._heal(one, [other])

    async def _slow_down(self) -> None:
        one, other = self._choose_link()
        seconds = self._random.uniform(0, LONGEST_DELAY)
        self._trace.note(f"the link between {one} and {other} is slow: {seconds:.3f} s more latency")
        with self._trouble(one, other):
            self._world.fabric.slow(one, other, seconds)
            await self._heal(one, [other])

    async def _isolate(self) -> None:
        """Isolate a broker from all nodes, and sometimes also from clients. While clients reach it, it may continue to
        lead without knowing that it was replaced."""
        broker = self._random.choice(self._brokers)
        others = [CONTROLLER, *(host_of(number) for number in self._brokers if number != broker)]
        await self._cut(host_of(broker), others + ["client"] * self._random.below(2))

    async def _cut(self, host: str, others: list[str]) -> None:
        names = ", ".join(others)
        self._trace.note(f"{host} is disconnected from {names}")
        with self._trouble(host, *others):
            for other in others:
                self._world.fabric.cut(host, other)
            await self._heal(host, others)

    async def _heal(self, host: str, others: list[str]) -> None:
        await self._pause(LONGEST_CUT)
        self._trace.note(f"the links from {host} to {', '.join(others)} are restored")
        for other in others:
            self._world.fabric.heal(host, other)

    async def _kill_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        self._trace.note(f"{host_of(broker)} is killed")
        with self._trouble(host_of(broker)):
            await self._cluster.kill(host_of(broker))
            await self._bring_back(broker)

    async def _cut_power_of_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        self._trace.note(f"{host_of(broker)} loses power")
        with self._trouble(host_of(broker)):
            await self._cluster.lose_power(host_of(broker))
            await self._bring_back(broker)

    async def _cut_all_power(self) -> None:
        """All brokers lose power. They restart in any order."""
        self._trace.note("all brokers lose power")
        with self._trouble(*map(host_of, self._brokers)):
            for broker in self._brokers:
                await self._cluster.lose_power(host_of(broker))
            for broker in self._random.shuffled(self._brokers):
                await self._bring_back(broker)

    async def _wipe_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        if self._alone_knows_the_tier(broker):
            self._trace.note(
                f"{host_of(broker)} keeps its disks: it is the only in-sync replica of {REMOTE_LOG_METADATA_TOPIC}"
            )
            return
        self._trace.note(f"{host_of(broker)} is killed, and its disks are replaced")
        with self._trouble(host_of(broker)):
            await self._cluster.kill(host_of(broker))
            self._cluster.wipe(host_of(broker))
            await self._bring_back(broker)

    def _alone_knows_the_tier(self, broker: int) -> bool:
        """Whether it is the only member of an ISR of the metadata topic: without it the tier could be restored, but not
        read."""
        assert self._cluster.controller is not None
        topic = self._cluster.controller.state.image.topics.get(REMOTE_LOG_METADATA_TOPIC)
        return topic is not None and any(set(partition.isr) == {broker} for partition in topic.partitions.values())

    async def _pause_broker(self) -> None:
        """Often for longer than a session. It may believe that it still leads when it continues."""
        broker = self._random.choice(self._brokers)
        self._trace.note(f"{host_of(broker)} is paused")
        with self._trouble(host_of(broker)):
            self._world.machine(host_of(broker)).pause()
            await self._pause(LONGEST_CUT)
            self._trace.note(f"{host_of(broker)} is resumed")
            self._world.machine(host_of(broker)).resume()

    async def _stop_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        self._trace.note(f"{host_of(broker)} is shut down cleanly")
        with self._trouble(host_of(broker)):
            try:
                await self._cluster.stop_broker(broker)
            except NodeEnded as error:
                self._trace.note(str(error))
            await self._bring_back(broker)

    async def _fail_disk(self) -> None:
        """One directory fails, sometimes all; at the end the disk is repaired, and the broker restarts."""
        broker = self._random.choice(self._brokers)
        number = self._random.choice((errno.EIO, errno.ENOSPC))
        operation = self._random.choice(DISK_OPERATIONS)
        failing = self._disks if not self._random.below(4) else (self._random.choice(self._disks),)
        with self._trouble(host_of(broker)):
            await self._fail(broker, failing, number, operation)

    async def _fail(self, broker: int, failing: Collection[str], number: int, operation: str) -> None:
        storage = self._world.machine(host_of(broker)).storage
        for disk in failing:
            what = operation or "everything"
            self._trace.note(f"{disk} of {host_of(broker)} fails: {what}, {errno.errorcode[number]}")
            storage.fail(disk, number, operation=operation)
        await self._pause(LONGEST_CUT)
        self._trace.note(f"the disks of {host_of(broker)} work again")
        storage.heal()
        await self._cluster.kill(host_of(broker))
        await self._bring_back(broker)

    async def _end_controller(self) -> None:
        if self._random.below(2):
            self._trace.note("the controller is killed")
            await self._cluster.kill(CONTROLLER)
        else:
            self._trace.note("the controller loses power")
            await self._cluster.lose_power(CONTROLLER)
        await self._bring_back(None)

    async def _flip(self, flips: FlippedBytes) -> None:
        """Only ``flips`` chooses."""
        await asyncio.sleep(flips.pause())
        broker = flips.choose_node(self._brokers)
        if broker is None:
            self._trace.note("the controller is killed")
            await self._cluster.kill(CONTROLLER)
            if not await flips.start_damaged_controller():
                await self._bring_back(None)
            return
        self._trace.note(f"{host_of(broker)} is killed")
        with self._trouble(host_of(broker)):
            await self._cluster.kill(host_of(broker))
            flips.flip_in_broker(broker)
            await self._bring_back(broker)

    async def _bring_back(self, broker: int | None) -> None:
        await self._pause(LONGEST_DOWN)
        machine = CONTROLLER if broker is None else host_of(broker)
        for _ in range(START_ATTEMPTS):
            self._trace.note(f"{machine} starts")
            try:
                if broker is None:
                    await self._cluster.start_controller()
                else:
                    await self._cluster.start_broker(broker)
            except NodeEnded as error:
                self._trace.note(str(error))
            else:
                self._trace.note(f"{machine} is ready")
                return
            await self._pause(LONGEST_DOWN)
        raise NodeEnded(f"{machine} did not come back in {START_ATTEMPTS} attempts")
