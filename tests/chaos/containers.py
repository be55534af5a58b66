"""Chaos in containers: the nodes of the repository's compose file, run in a lab. Faults are made with the container
engine, with nftables, and with lab commands through `docker exec`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

from milena.command_line.errors import UserError
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import Kind
from milena.lab.chaos.plan import in_rounds
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime
from milena.up.ports import free
from tests.chaos import partitions
from tests.containers.engine import IMAGE, ROOT, Container, Project, compose_command, docker, missing
from tests.wire.properties import variables

P = ParamSpec("P")
T = TypeVar("T")

BROKERS: Final = (1, 2, 3)
CONTROLLER: Final = 1000
CONTROLLER_PORT: Final = 9093
DATA: Final = "/var/lib/kafka/data"
LAB: Final = f"{DATA}/lab"
LOG_DIRS: Final = (f"{DATA}/log-1", f"{DATA}/log-2")
"""A broker has both, so that one can be full; the controller has the first."""
LIMIT: Final = 120.0
"""Seconds that any step may take."""
STEP: Final = 0.05
PAUSES: Final = 4
"""Attempts to pause a container before the engine's error counts."""
PAUSED: Final = "is paused"
"""Part of the engine's error for a command in a paused container."""
SERVICES: Final = {CONTROLLER: "controller", **{number: f"broker-{number}" for number in BROKERS}}
NAMES: Final = {CONTROLLER: f"controller-{CONTROLLER}", **{number: f"broker-{number}" for number in BROKERS}}
"""The names of the nodes in `milena lab`."""
PORTS: Final = {CONTROLLER: "METRICS_PORT_CONTROLLER", **{number: f"METRICS_PORT_{number}" for number in BROKERS}}
"""The variables of the compose file with the HTTP port of each node."""


class TierState(NamedTuple):
    """The fault of the tier, which every broker is to have, also after a restart."""

    away: bool = False
    delay_ms: float = 0.0
    lose: float = 0.0


class ContainersPlace:
    """Implements ``lab.chaos.place.Place``."""

    name = "containers"
    insight = None
    brokers: Sequence[int] = BROKERS
    controller: int = CONTROLLER
    kinds: frozenset[Kind] = frozenset(filter(in_rounds, Kind)) - {Kind.TIER_UNMOUNTED, Kind.ODD_TIER}
    odd_answers: Sequence[str] = ()

    def __init__(
        self,
        project: Project,
        containers: Mapping[int, Container],
        settings: Mapping[str, str],
        topics: Collection[str],
    ) -> None:
        self._project = project
        self._containers = containers
        self._failures: list[str] = []
        failures = self._failures
        self.runtime: Runtime = real_runtime(lambda description, error: failures.append(f"{description}: {error!r}"))
        self.session = int(settings["broker.session.timeout.ms"]) / 1000
        self.lag = int(settings["replica.lag.time.max.ms"]) / 1000
        self.topics = frozenset(topics)
        self._libraries: Sequence[Clients] = ()
        self._cuts: dict[tuple[int, int], None] = {}
        self._cutting = Lock()
        self._tier = TierState()
        self._tier_at = dict.fromkeys(BROKERS, TierState())
        self._lost: dict[str, None] = {}

    @classmethod
    async def open(cls, folder: Path, settings: Mapping[str, str], topics: Collection[str] = ()) -> ContainersPlace:
        """Start a new cluster, and return when it is healthy. All nodes get ``settings``, through a compose file in
        ``folder``. Raises UserError where no container can run."""
        reason = missing() or partitions.missing()
        command = compose_command()
        if reason is not None or command is None:
            raise UserError(f"no containers here: {reason or 'there is no docker-compose'}")
        project = await _in_thread(_project, command, folder, settings)
        try:
            return cls(project, await _in_thread(_started, project), settings, topics)
        except BaseException:
            await _in_thread(project.compose, "down", "--volumes")
            raise

    @property
    def bootstrap(self) -> Sequence[tuple[str, int]]:
        return [("127.0.0.1", int(self._project.variables[f"PORT_{number}"])) for number in BROKERS]

    async def address(self, node: int) -> tuple[str, int] | None:
        """The port of the controller is not published: its address is that in the network of the engine."""
        if node in BROKERS:
            return self.bootstrap[BROKERS.index(node)]
        host = (await _in_thread(self._facts))[node].address
        return (host, CONTROLLER_PORT) if host else None

    async def troubles(self, node: int) -> Mapping[str, float]:
        return await _in_thread(self._ask_if_up, node, "troubles") or {}

    @property
    def clients(self) -> Sequence[Clients]:
        return self._libraries

    def use(self, libraries: Sequence[Clients]) -> None:
        self._libraries = libraries

    def container(self, node: int) -> Container:
        return self._containers[node]

    # -- processes

    async def kill(self, node: int) -> None:
        """A node that has already ended stays down."""
        await _in_thread(self._end, node, ["kill"])

    async def shut_down(self, node: int) -> None:
        await _in_thread(self._end, node, ["stop", "--time", f"{LIMIT / 2:.0f}"])

    async def power_off(self, node: int) -> None:
        await _in_thread(self._end, node, ["exec"], ["milena", "lab", NAMES[node], "power_off"])

    async def start(self, node: int) -> None:
        await _in_thread(self._start, node)

    async def pause(self, node: int) -> None:
        await _in_thread(self._pause, node)

    async def resume(self, node: int) -> None:
        await _in_thread(self._resume, node)

    async def wipe(self, node: int) -> None:
        await _in_thread(self._wipe, node)

    # -- links

    async def cut(self, sender: int, receiver: int) -> None:
        self._cuts[sender, receiver] = None
        await _in_thread(self._apply_cuts, [receiver])

    async def heal_links(self) -> None:
        receivers = {receiver for _, receiver in self._cuts}
        self._cuts.clear()
        await _in_thread(self._apply_cuts, sorted(receivers))

    # -- disks, clocks and the tier. These faults do nothing to a node that another fault has ended

    async def fail_directory(self, node: int) -> None:
        await _in_thread(self._ask_if_up, node, "fail_disk", path=LOG_DIRS[1])

    async def fill_disk(self, node: int) -> None:
        await _in_thread(self._ask_if_up, node, "fill_disk", path=LOG_DIRS[1])

    async def slow_disk(self, node: int, seconds: float) -> None:
        await _in_thread(self._ask_if_up, node, "slow_disk", ms=seconds * 1000)

    async def jump_clock(self, node: int, seconds: float) -> None:
        await _in_thread(self._ask_if_up, node, "jump_clock", ms=round(seconds * 1000))

    async def mount_tier(self, brokers: Collection[int] = (), *, mounted: bool) -> bool:
        raise UserError("containers cannot unmount the tier")

    async def break_tier(self, *, away: bool = False, delay: float = 0.0, lose: float = 0.0, odd: str = "") -> None:
        self._tier = TierState(away, delay * 1000, lose)
        await asyncio.gather(*(_in_thread(self._break_tier, node) for node in BROKERS))

    async def lost_objects(self) -> Sequence[str]:
        for node in BROKERS:
            await _in_thread(self._remember_lost, node)
        return list(self._lost)

    # -- the end

    async def keep(self, folder: Path) -> None:
        await _in_thread(self._keep, folder)

    async def close(self) -> None:
        """Raises AssertionError if a task of this process has failed during the run."""
        await _in_thread(self._close)
        for disk in (self.runtime.disk, self.runtime.tier_disk):
            assert isinstance(disk, RealDisk)
            disk.close()
        assert not self._failures, self._failures

    # -- blocking functions, which run in threads

    def _status(self, node: int) -> str:
        """``running``, ``paused`` or ``exited``."""
        return str(self._containers[node].state()["Status"])

    def _runs(self, node: int) -> bool:
        return self._status(node) == "running"

    def _end(self, node: int, command: Sequence[str], words: Sequence[str] = ()) -> None:
        if self._status(node) != "exited":
            docker(*command, self._containers[node].id, *words, check=False)  # it may end by itself before the command
        _wait(lambda: self._status(node) == "exited", f"{NAMES[node]} to end")

    def _start(self, node: int) -> None:
        if self._status(node) == "exited":
            if node in BROKERS:
                self._tier_at[node] = TierState()
            docker("start", self._containers[node].id)
            self._apply_cuts(SERVICES)
        _wait(lambda: self._serves(node), f"{NAMES[node]} to serve")
        if node in BROKERS:
            self._break_tier(node)

    def _serves(self, node: int) -> bool:
        if self._status(node) == "exited":
            raise UserError(f"{NAMES[node]} has ended: {self._containers[node].log.strip().splitlines()[-1:]}")
        try:
            with urlopen(f"http://127.0.0.1:{self._project.variables[PORTS[node]]}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, URLError):
            return False

    def _pause(self, node: int) -> None:
        """Repeated, because the engine cannot freeze a container while a command begins in it ("unable to freeze")."""
        for _ in range(PAUSES):
            docker("pause", self._containers[node].id, check=False)
            if self._status(node) == "paused":
                return
        docker("pause", self._containers[node].id)

    def _resume(self, node: int) -> None:
        if self._status(node) == "paused":
            docker("unpause", self._containers[node].id)
            if node in BROKERS:
                self._break_tier(node)

    def _wipe(self, node: int) -> None:
        if self._status(node) != "exited":
            raise UserError(f"{NAMES[node]} is running: stop it before wiping its disk")
        volumes = ["--volumes-from", self._containers[node].id, "--network", "none", "--entrypoint", "rm"]
        docker("run", "--rm", *volumes, IMAGE, "-r", "-f", *LOG_DIRS)

    def _apply_cuts(self, nodes: Iterable[int]) -> None:
        """Let each node drop packets from the present addresses of the nodes that it is cut off from."""
        with self._cutting:  # so the later of two concurrent calls applies all cuts
            found, cuts = self._facts(), list(self._cuts)
            for node in nodes:
                senders = [sender for sender, receiver in cuts if receiver == node]
                addresses = [address for sender in senders if (address := found[sender].address)]
                if found[node].process:
                    self._unless_it_ends(node, partitions.drop_from, partitions.inside(found[node].process), addresses)

    def _facts(self) -> dict[int, Facts]:
        """Process and address of each node, from one `docker inspect`: each call of the engine is slow."""
        inspected = json.loads(docker("inspect", *(container.id for container in self._containers.values())))
        return {
            node: Facts(
                one["State"]["Pid"],
                next((network["IPAddress"] for network in one["NetworkSettings"]["Networks"].values()), ""),
            )
            for node, one in zip(self._containers, inspected, strict=True)
        }

    def _break_tier(self, node: int) -> None:
        """Set the fault of the tier at a node. A node that is paused or down gets it when it is resumed or started."""
        wanted = self._tier
        if self._tier_at[node] != wanted and self._ask_if_up(node, "break_tier", **wanted._asdict()) is not None:
            self._tier_at[node] = wanted

    def _remember_lost(self, node: int) -> None:
        self._lost.update(dict.fromkeys(self._ask_if_up(node, "lost_objects") or ()))

    def _ask_if_up(self, node: int, command: str, **arguments: object) -> Any:
        """The answer to a lab command; None if another fault pauses or ends the node before the answer."""
        if not self._runs(node):
            return None
        try:
            return self._unless_it_ends(node, self.ask, node, command, **arguments)
        except AssertionError as error:
            if PAUSED in str(error):
                return None
            raise

    def _unless_it_ends(self, node: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The result of ``work``; None if ``work`` fails because another fault ends the node."""
        try:
            return work(*args, **kwargs)
        except (AssertionError, UserError):
            if self._status(node) != "exited":
                raise
            return None

    def ask(self, node: int, command: str, **arguments: object) -> Any:
        """The answer to a lab command. Raises AssertionError with the output of a command that fails."""
        words = [f"{name}={json.dumps(value)}" for name, value in arguments.items()]
        return json.loads(self._containers[node].run("milena", "lab", NAMES[node], command, *words))

    def _keep(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for node, container in self._containers.items():
            (folder / f"{NAMES[node]}.log").write_text(container.log)
            (folder / f"{NAMES[node]}.state.json").write_text(json.dumps(container.state(), indent=1))

    def _close(self) -> None:
        for node in SERVICES:
            self._resume(node)
        self._project.compose("down", "--volumes", "--timeout", "10")


def _project(command: list[str], folder: Path, settings: Mapping[str, str]) -> Project:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "lab.json"
    file.write_text(json.dumps(lab_settings(settings), indent=1))
    names = ("PORT_1", "PORT_2", "PORT_3", *PORTS.values())
    ports = map(str, free("127.0.0.1", len(names)))
    both = [*command, "-f", str(ROOT / "docker-compose.yml")]
    return Project(both, f"milena-chaos-{time.time_ns() // 1_000_000}", file, dict(zip(names, ports, strict=True)))


def _started(project: Project) -> dict[int, Container]:
    project.up()
    return {node: project.container(service) for node, service in SERVICES.items()}


class Facts(NamedTuple):
    """The state of a container: the id of its first process and its address, or 0 and "" while it is down."""

    process: int
    address: str


def lab_settings(settings: Mapping[str, str]) -> dict[str, object]:
    """A compose file to be used together with the repository's: all nodes get these settings, and run in a lab."""
    given = variables(settings) | {"MILENA_LAB": LAB}
    nodes = {
        service: {
            "restart": "no",
            "environment": given | {"KAFKA_LOG_DIRS": ",".join(LOG_DIRS if node in BROKERS else LOG_DIRS[:1])},
        }
        for node, service in SERVICES.items()
    }
    return {"services": nodes}


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise UserError(f"waited {LIMIT:.0f} seconds for {what}")
        time.sleep(STEP)  # other processes make the condition true, without an event here


async def _in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking ``work`` in a thread. Raises UserError with the message of an AssertionError."""
    try:
        return await asyncio.to_thread(work, *args, **kwargs)
    except AssertionError as error:
        raise UserError(str(error)) from error
