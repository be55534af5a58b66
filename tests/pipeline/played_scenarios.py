"""The states of scenarios after each of their steps: tier and brokers' directories in real folders, and the records
that a consumer reads from the leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from milena.client.cluster import Cluster
from milena.client.consumer import ConsumedRecord, Consumer
from milena.client.offsets import EARLIEST, LATEST, find_offset
from milena.lab.cluster import host_of
from milena.lab.scenarios.driver import CONTROLLER
from milena.lab.scenarios.interpreter import play
from milena.lab.scenarios.script import BROKERS, Script, load, node_id
from milena.lab.scenarios.simulated import SimulatedDriver
from milena.lab.world.disk import Storage
from milena.lab.world.world import World, simulate
from milena.protocol.errors import KafkaError

LATEST_TIERED, EARLIEST_LOCAL = -5, -4
DISK, TIER = "/data-1/", "/tier/"


@dataclass(frozen=True)
class Stand:
    """The state after a step. ``folder`` has ``tier``, and a directory for each running broker, named by its letter."""

    place: str
    step: int
    folder: Path
    running: Sequence[str]
    cleaned: bool
    """Whether segments of the tier may have been cleaned."""
    log_start: int
    tiered: int
    """The leader's highest offset in remote storage, or -1."""
    local: int
    """The leader's local log start offset."""
    consumed: Sequence[ConsumedRecord] | None
    """None if a consumer cannot read the whole log."""

    @property
    def tier(self) -> Path:
        return self.folder / "tier"

    def directories(self, *brokers: str) -> str:
        """Return the directories of these brokers in the form of the option ``metadata``."""
        return ",".join(str(self.folder / one) for one in brokers)


def stands(scenario: str, variant: str, folder: Path) -> list[Stand]:
    """Play the scenario in the simulated world up to each of its steps; return those in which ``t-0`` can be read."""
    whole = load(scenario, variant)
    played = [stand_after(whole, count, folder / str(count)) for count in range(1, len(whole.steps) + 1)]
    return [one for one in played if one is not None and one.consumed is not None]


def stand_after(whole: Script, step: int, folder: Path) -> Stand | None:
    """Play the scenario up to a step and return the state; None if ``t-0`` has no leader."""
    script = replace(whole, steps=whole.steps[:step])

    async def run(world: World) -> Stand | None:
        driver = SimulatedDriver(world, script)
        await play(script, driver)
        leader = (await driver.command(CONTROLLER, "partitions", topic="t"))["t-0"]["leader"]
        if leader < 0:
            return None
        try:
            offsets, consumed = await _consumed(driver, BROKERS[leader - 1])
        except KafkaError:  # the tier is unavailable, or has lost objects
            offsets, consumed = (-1, -1, -1), None
        running = [one for one in script.brokers if world.machines[host_of(node_id(one))].alive]
        write(world.tier, TIER, folder / "tier")
        for one in running:
            write(world.machines[host_of(node_id(one))].storage, DISK, folder / one)
        place = f"{script.id} ({script.variant}), step {step}"
        return Stand(place, step, folder, running, "cleaner" in script.id, *offsets, consumed)

    return simulate(run, seed=0)


async def _consumed(driver: SimulatedDriver, leader: str) -> tuple[tuple[int, int, int], list[ConsumedRecord]]:
    cluster = Cluster(driver.runtime, [driver.address(leader)], "consumer")
    consumer = Consumer(cluster, reset=None)
    try:
        asked = EARLIEST, LATEST, LATEST_TIERED, EARLIEST_LOCAL
        first, end, tiered, local = [(await find_offset(cluster, "t", 0, one)).offset for one in asked]
        consumer.assign({("t", 0): first})
        found: list[ConsumedRecord] = []
        while (consumer.position("t", 0) or 0) < end:
            found += await consumer.poll(10.0)
        return (first, tiered, local), found
    finally:
        await consumer.close()
        cluster.close()


def write(storage: Storage, below: str, folder: Path) -> None:
    """Write the files of a simulated disk as real files."""
    folder.mkdir(parents=True)
    for path, inode in storage.files.items():
        if path.startswith(below):
            place = folder / path.removeprefix(below)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(bytes(inode.data))
