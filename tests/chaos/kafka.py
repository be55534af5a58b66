"""Chaos on Apache Kafka 4.4.0: the same faults, clients and verdict as for Milena, to compare the two."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, NoReturn

from milena.client.cluster import Cluster
from milena.command_line.errors import UserError
from milena.lab.chaos.clients import Clients
from milena.lab.chaos.faults import Kind
from milena.protocol.api_keys import ApiKey
from milena.runtime.context import Runtime
from milena.runtime.files import RealDisk
from milena.runtime.process import real_runtime
from milena.up.ports import free
from milena.up.processes import is_paused
from tests.chaos import namespaces, partitions
from tests.chaos.namespaces import Networks
from tests.oracle import kafka
from tests.oracle.kafka_cluster import write_properties
from tests.oracle.kafka_node import CLUSTER_ID

if TYPE_CHECKING:
    from milena.protocol.apis import MetadataResponse

BROKERS: Final = (1, 2, 3)
CONTROLLER: Final = 1000
PORT: Final = 9092
"""The port of each node, if each node has a network namespace of its own."""
HOST: Final = "127.0.0.1"
HEAP: Final = "384m"
LIMIT: Final = 120.0
"""Seconds that any step may take."""
STEP: Final = 0.05
TOPICS: Final = frozenset({"plain", "compacted", "tiered", "weak", "loose"})
"""Kafka does not tier compacted topics."""
OF_PROCESSES: Final = frozenset(
    {
        Kind.KILL,
        Kind.STOP,
        Kind.HANG,
        Kind.RESTART,
        Kind.WIPE,
        Kind.CONTROLLER,
        Kind.ROLLING,
        Kind.REASSIGN,
        Kind.UNCLEAN,
    }
)
OF_LINKS: Final = frozenset({Kind.ISOLATE, Kind.CUT_CONTROLLER, Kind.CUT_FOLLOWERS, Kind.CUT_ONE_WAY})
LEVEL: Final = tuple(
    option.replace("=warn", "=info") if "defaultLogLevel" in option else option for option in kafka.QUICK
)


class KafkaPlace:
    """Implements ``lab.chaos.place.Place``. Links can be cut where each node can have a network of its own."""

    name = "kafka"
    insight = None
    brokers: Sequence[int] = BROKERS
    controller: int = CONTROLLER
    odd_answers: Sequence[str] = ()
    topics = TOPICS

    def __init__(self, folder: Path, settings: Mapping[str, str], networks: Networks | None) -> None:
        self._failures: list[str] = []
        failures = self._failures
        self.runtime: Runtime = real_runtime(lambda description, error: failures.append(f"{description}: {error!r}"))
        self.session = int(settings["broker.session.timeout.ms"]) / 1000
        self.lag = int(settings["replica.lag.time.max.ms"]) / 1000
        self.kinds = OF_PROCESSES if networks is None else OF_PROCESSES | OF_LINKS
        self._folder = folder
        self._networks = networks
        ports = free(HOST, 1 + len(BROKERS)) if networks is None else [PORT] * (1 + len(BROKERS))
        self._addresses = {
            node: (HOST if networks is None else networks.address(node), port)
            for node, port in zip((CONTROLLER, *BROKERS), ports, strict=True)
        }
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._cuts: dict[tuple[int, int], None] = {}
        self._cutting = Lock()
        self._libraries: Sequence[Clients] = ()
        for node in self._addresses:
            write_properties(self._file(node), {**self._settings(node), **settings})

    @classmethod
    async def open(cls, folder: Path, settings: Mapping[str, str]) -> KafkaPlace:
        """Start a new cluster, and return when it serves. All nodes get ``settings``. Raises UserError where Kafka
        cannot run."""
        try:
            await asyncio.to_thread(kafka.jars)
        except kafka.NoKafka as reason:
            raise UserError(f"no Kafka here: {reason}") from None
        nodes = (CONTROLLER, *BROKERS)
        networks = None if namespaces.missing() else await asyncio.to_thread(Networks, nodes)
        place = cls(folder, settings, networks)
        try:
            await asyncio.to_thread(place._start_all)
            await place._all_registered()
        except BaseException:
            await place.close()
            raise
        return place

    async def brokers_of(self, broker: int) -> list[int]:
        """The ids of the unfenced brokers, from a Metadata response of ``broker``. Raises ChannelError, KafkaError."""
        address = self._addresses[broker]
        client = Cluster(self.runtime, [address])
        try:
            response: MetadataResponse = await client.to(*address).request(
                ApiKey.METADATA,
                timeout=20,
                topics=(),
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
        finally:
            client.close()
        return sorted(int(one.node_id) for one in response.brokers)

    async def _all_registered(self) -> None:
        """Wait for all brokers: before, no topic with a replica on each can be created. Raises TimeoutError."""
        async with asyncio.timeout(LIMIT):
            while await self.brokers_of(BROKERS[0]) != list(BROKERS):
                await self.runtime.clock.sleep(STEP)

    @property
    def bootstrap(self) -> Sequence[tuple[str, int]]:
        return [self._addresses[node] for node in BROKERS]

    async def address(self, node: int) -> tuple[str, int]:
        return self._addresses[node]

    async def troubles(self, node: int) -> Mapping[str, float]:
        return {}

    @property
    def clients(self) -> Sequence[Clients]:
        return self._libraries

    def use(self, libraries: Sequence[Clients]) -> None:
        self._libraries = libraries

    # -- processes

    async def kill(self, node: int) -> None:
        """A node that has already ended stays down."""
        await asyncio.to_thread(self._end, node, signal.SIGKILL)

    async def shut_down(self, node: int) -> None:
        await asyncio.to_thread(self._end, node, signal.SIGTERM)

    async def start(self, node: int) -> None:
        await asyncio.to_thread(self._start, node)

    async def pause(self, node: int) -> None:
        await asyncio.to_thread(self._pause, node)

    async def resume(self, node: int) -> None:
        self._processes[node].send_signal(signal.SIGCONT)

    async def power_off(self, node: int) -> None:
        _cannot("lose power")

    async def wipe(self, node: int) -> None:
        await asyncio.to_thread(self._wipe, node)

    # -- links

    async def cut(self, sender: int, receiver: int) -> None:
        if self._networks is None:
            _cannot(f"be cut off: {namespaces.missing()}")
        self._cuts[sender, receiver] = None
        await asyncio.to_thread(self._apply_cuts, [receiver])

    async def heal_links(self) -> None:
        receivers = {receiver for _, receiver in self._cuts}
        self._cuts.clear()
        await asyncio.to_thread(self._apply_cuts, sorted(receivers))

    # -- faults that only Milena's nodes support

    async def fill_disk(self, node: int) -> None:
        _cannot("have a full disk")

    async def fail_directory(self, node: int) -> None:
        _cannot("lose a log directory")

    async def mount_tier(self, brokers: Collection[int] = (), *, mounted: bool) -> bool:
        _cannot("have a tier")

    async def slow_disk(self, node: int, seconds: float) -> None:
        _cannot("have a slow disk")

    async def jump_clock(self, node: int, seconds: float) -> None:
        _cannot("have a clock of its own")

    async def break_tier(self, *, away: bool = False, delay: float = 0.0, lose: float = 0.0, odd: str = "") -> None:
        if away or delay or lose or odd:
            _cannot("have a tier in trouble")

    async def lost_objects(self) -> Sequence[str]:
        return ()

    # -- the end

    async def keep(self, folder: Path) -> None:
        await asyncio.to_thread(self._keep, folder)

    async def close(self) -> None:
        """Raises AssertionError if something failed in this process meanwhile."""
        await asyncio.to_thread(self._close)
        for disk in (self.runtime.disk, self.runtime.tier_disk):
            assert isinstance(disk, RealDisk)
            disk.close()
        assert not self._failures, self._failures

    # -- blocking functions, which run in threads

    def _start_all(self) -> None:
        for node in self._addresses:
            self._format(node)
            self._run(node)
        for node in self._addresses:
            self._wait_serving(node)

    def _settings(self, node: int) -> dict[str, str]:
        host, port = self._addresses[node]
        voter = ":".join(map(str, self._addresses[CONTROLLER]))
        both = {
            "node.id": str(node),
            "controller.quorum.voters": f"{CONTROLLER}@{voter}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._data(node)),
            "log.initial.task.delay.ms": "1000",
        }
        tier = {  # the controller needs it to validate tiered topics
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rsm.config.dir": str(self._folder / "tier"),
            "rsm.config.delete.on.close": "false",
            "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
            "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
        }
        if node == CONTROLLER:
            own = {"process.roles": "controller", "listeners": f"CONTROLLER://{host}:{port}"}
        else:
            own = {"process.roles": "broker", "listeners": f"PLAINTEXT://{host}:{port}"}
        return both | tier | own

    def _home(self, node: int) -> Path:
        return self._folder / ("controller" if node == CONTROLLER else f"broker-{node}")

    def _file(self, node: int) -> Path:
        return self._home(node) / "kafka.properties"

    def _data(self, node: int) -> Path:
        return self._home(node) / "data"

    def _said(self, node: int) -> Path:
        return self._home(node) / "kafka.out"

    def _format(self, node: int) -> None:
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self._file(node)))
        kafka.tool("kafka.tools.StorageTool", *arguments, timeout=LIMIT)

    def _run(self, node: int) -> None:
        command = [] if self._networks is None else self._networks.command(node)
        command += kafka.java("kafka.Kafka", str(self._file(node)), heap=HEAP, options=LEVEL)
        with self._said(node).open("a") as out:
            self._processes[node] = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def _runs(self, node: int) -> bool:
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    def _start(self, node: int) -> None:
        if not self._runs(node):
            self._run(node)
        self._wait_serving(node)

    def _wait_serving(self, node: int) -> None:
        """Kafka's broker accepts connections once it has caught up with the metadata."""
        self._wait(lambda: self._accepts(node), f"node {node} to serve")

    def _accepts(self, node: int) -> bool:
        if not self._runs(node):
            raise UserError(f"node {node} has ended: {self._said(node).read_text()[-500:]}")
        try:
            socket.create_connection(self._addresses[node], timeout=1).close()
        except OSError:
            return False
        return True

    def _end(self, node: int, number: signal.Signals) -> None:
        if self._runs(node):
            self._processes[node].send_signal(number)
        try:
            self._processes[node].wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise UserError(f"waited {LIMIT:.0f} seconds for node {node} to end") from None

    def _pause(self, node: int) -> None:
        process = self._processes[node]
        process.send_signal(signal.SIGSTOP)
        self._wait(lambda: is_paused(process.pid) or not self._runs(node), f"node {node} to stand still")

    def _wipe(self, node: int) -> None:
        if self._runs(node):
            raise UserError(f"node {node} is running: stop it before wiping its disk")
        shutil.rmtree(self._data(node))
        self._format(node)

    def _apply_cuts(self, receivers: Sequence[int]) -> None:
        """Set the rules of the network namespace of each receiver. They stay when its node restarts."""
        with self._cutting:  # so the later of two concurrent calls applies all cuts
            cuts = list(self._cuts)
            for receiver in receivers:
                assert self._networks is not None
                senders = [self._addresses[sender][0] for sender, other in cuts if other == receiver]
                partitions.drop_from(self._networks.command(receiver), senders)

    def _keep(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for node in self._addresses:
            if self._said(node).exists():
                shutil.copyfile(self._said(node), folder / f"{self._home(node).name}.log")

    def _close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        if self._networks is not None:
            self._networks.close()

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > deadline:
                raise UserError(f"waited {LIMIT:.0f} seconds for {what}")
            time.sleep(STEP)  # other processes make the condition true, without an event here


def _cannot(what: str) -> NoReturn:
    raise UserError(f"a node of Kafka cannot {what}")
