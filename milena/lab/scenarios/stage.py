"""The cluster of a running scenario: access to its nodes, remembered values, and the state of its replicas."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from milena.client.membership import GroupMetadata
from milena.command_line.options import nearest
from milena.lab.scenarios.driver import CONTROLLER, Driver
from milena.lab.scenarios.recorder import Recorder
from milena.lab.scenarios.remote import Ids, Place
from milena.lab.scenarios.script import THE_PARTITION, Fields, Partition, Script, node_id, replica_of
from milena.lab.scenarios.tables import Renumbering, Row, Table
from milena.lab.scenarios.transactions.producers import ScenarioProducer
from milena.node.links.outgoing import Channel
from milena.node.serving.lab_commands import LabCommandError
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.types import ZERO_UUID
from milena.protocol.uuids import from_text

if TYPE_CHECKING:
    from milena.protocol.apis import DescribeLogDirsResponse

TOPIC: Final = THE_PARTITION.topic
PARTITION: Final = THE_PARTITION.number
LIMIT: Final = 30.0
"""The time limit of every wait, in seconds on the scenario's clock."""
PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.25
PATIENCE: Final = 0.05
"""Between two checks of a condition the stage waits for this share of the time waited so far, so that it checks less
often in long waits."""
CLIENT: Final = "scenario"
"""The client id of the scenario's own requests."""


REFERENCE: Final = re.compile(r"(.*?)(?: ([+-] \d+))?")
"""A name, and an offset to add to its value."""


Action: TypeAlias = Callable[["Stage", Any], Awaitable[None]]
Condition: TypeAlias = Callable[["Stage", Any], Awaitable[str | None]]
"""A function that checks a condition. It takes the stage and the arguments as in the file, returns what is missing as
text, or None, and fails if the arguments have another form."""


class ScenarioFailed(AssertionError):
    """A run differs from the scenario. The message has the place and the actual state."""


class Stage:
    """``tables``: the last state of each replica by name (``A``, ``A/u-1``), also of brokers that are down."""

    def __init__(self, script: Script, driver: Driver) -> None:
        self.script = script
        self.driver = driver
        self.topic_ids: dict[str, UUID] = {}
        self.replicas: dict[Partition, tuple[str, ...]] = {THE_PARTITION: script.replicas}
        """The brokers with a replica of any partition."""
        self.segments = Ids()
        self.up: set[str] = set()
        self.memory: dict[str, object] = dict(script.values)
        self.rules: dict[str, tuple[str, int]] = {}
        """Names of rules to their nodes and numbers."""
        self.cuts: set[frozenset[str]] = set()
        """Pairs of nodes whose link is cut."""
        self.tables: dict[str, Table] = {}
        self.expected: Fields = {}
        """The expectations of the present step, with their values."""
        self.described: dict[str, Fields] = {}
        """The last description of each replica by its broker."""
        self.tier_rows: dict[str, list[Row]] = {}
        """The last comparison of the tier, by expectation (``remote``, ``metadata/u-1``)."""
        self.traces: dict[str, list[Any]] = {}
        """The exchanges that the present step has compared, by rule."""
        self.longest_write = 0.0
        """Seconds until the slowest record of the present step was acknowledged by all in-sync replicas."""
        self.producers: dict[str, ScenarioProducer] = {}
        self.members: dict[str, GroupMetadata] = {}
        """Members of groups by name, as they were when they joined."""
        self.answers: dict[str, ErrorCode] = {}
        """Answers to the requests for which their producers do not wait, by name."""
        self.acknowledged: dict[str, int] = {}
        """Values written with acks=all, with their offsets."""
        self.numbering = None if script.epochs is None else Renumbering(script.epochs)
        self.recorder = Recorder(driver.runtime.clock.monotonic, driver.command, transactions=script.has_transactions)
        self.recorder.topics[TOPIC] = TOPIC
        self._channels: dict[tuple[str, str, str], Channel] = {}
        self._starting: dict[str, asyncio.Event] = {}

    def begin(self, node: str) -> None:
        """Start a node in the background."""
        done = self._starting[node] = asyncio.Event()

        async def run() -> None:
            await self.driver.start(node)
            await self.recorder.watch(node)
            done.set()

        self.driver.runtime.new_tasks("scenario").spawn(run(), name=f"start {node}")

    async def start(self, node: str) -> None:
        """Start a node, or wait for one that is starting. Raises TimeoutError."""
        done = self._starting.pop(node, None)
        if done is None:
            await self.driver.start(node)
            await self.recorder.watch(node)
        else:
            async with asyncio.timeout(LIMIT):
                await done.wait()

    # -- asking

    def channel(self, node: str, client_id: str = CLIENT, name: str = "") -> Channel:
        """Return the scenario's own connection to a node. One with another ``name`` is another connection."""
        host, port = self.driver.address(node)
        known = self._channels.get((node, client_id, name))
        if known is None or (known.host, known.port) != (host, port):
            known = self._channels[node, client_id, name] = Channel(self.driver.runtime, host, port, client_id)
        return known

    def forget(self, node: str) -> None:
        """Drop the connections to a node that goes down: after its restart new ones are used."""
        self.recorder.forget(node)
        for key in [key for key in self._channels if key[0] == node]:
            self._channels.pop(key).close()

    async def ask(self, node: str, api: ApiKey, version: int | None = None, **fields: object) -> Any:  # noqa: ANN401 - a value of any kind, from YAML or a response
        """Send a request. Raises ChannelError, KafkaError."""
        return await self.channel(node).request(api, version, timeout=LIMIT, **fields)

    async def command(self, node: str, command: str, **arguments: object) -> Any:  # noqa: ANN401 - a value of any kind, from YAML or a response
        return await self.driver.command(node, command, **arguments)

    def rule(self, name: str) -> tuple[str, int]:
        """Return the node and the number of a rule that the scenario has named. Raises ScenarioFailed."""
        if name not in self.rules:
            raise ScenarioFailed(f"no rule is called {name!r}{nearest(name, list(self.rules))}")
        return self.rules[name]

    async def of_replica(self, name: str, command: str, **arguments: object) -> Any:  # noqa: ANN401 - a value of any kind, from YAML or a response
        """Send a command about a replica, ``A`` or ``A/u-1``, to its broker."""
        broker, partition = replica_of(name)
        return await self.command(broker, command, topic=partition.topic, partition=partition.number, **arguments)

    async def replica(self, name: str) -> Fields:
        """Return a replica as its broker describes it."""
        described: Fields = await self.of_replica(name, "describe_partition")
        return described

    async def partition(self, partition: Partition = THE_PARTITION) -> Fields:
        """Return a partition as registered at the controller. Raises LabCommandError if there is none."""
        found = await self.command(CONTROLLER, "partitions", topic=partition.topic)
        one: Fields | None = found.get(str(partition))
        if one is None:
            raise LabCommandError(f"the controller has no partition {partition}")
        if partition.topic in self.topic_ids:
            self.recorder.note_partition(str(partition), one)
        return one

    @property
    def topic_id(self) -> UUID:
        """The id of the topic with the one partition."""
        return self.topic_ids.get(TOPIC, ZERO_UUID)

    def place(self, partition: Partition) -> Place:
        return Place(partition.topic, self.topic_ids.get(partition.topic, ZERO_UUID), partition.number)

    async def registration(self, broker: str) -> Fields | None:
        """Return the registration of a broker at the controller."""
        found: Fields | None = (await self.command(CONTROLLER, "brokers")).get(str(node_id(broker)))
        return found

    async def directories(self, broker: str) -> dict[str, bool]:
        """Return a broker's log directories, and whether each has the replica's log (not one that is to replace it)."""
        described: DescribeLogDirsResponse = await self.ask(broker, ApiKey.DESCRIBE_LOG_DIRS, topics=None)
        return {
            one.log_dir: any(
                partition.partition_index == PARTITION and not partition.is_future_key
                for topic in one.topics
                if topic.name == TOPIC
                for partition in topic.partitions
            )
            for one in described.results
        }

    # -- values

    async def resolve(self, value: object) -> Any:  # noqa: ANN401 - a value of any kind, from YAML or a response
        """Replace each ``$name``: by remembered values, ``$topic_id``, ``$leader_epoch``, ``$partition_epoch``, and by
        ``$A.epoch``, the broker epoch of A at the controller. ``$name + 1`` and ``$name - 1`` add to the value."""
        if isinstance(value, str) and value.startswith("$"):
            reference = REFERENCE.fullmatch(value, 1)
            assert reference is not None, "any text matches"
            name, by = reference.groups()
            found = await self._value_of(name)
            if by is None:
                return found
            assert isinstance(found, int), f"${name} is not a number"
            return found + int(by.replace(" ", ""))
        if isinstance(value, dict):
            return {key: await self.resolve(one) for key, one in value.items()}
        if isinstance(value, list):
            return [await self.resolve(one) for one in value]
        return value

    async def _value_of(self, name: str) -> object:
        if name in self.memory:
            return self.memory[name]
        if name == "topic_id":
            return self.topic_id
        if name in ("leader_epoch", "partition_epoch"):
            return (await self.partition())[name]
        broker, _, field = name.partition(".")
        if field == "epoch" and (found := await self.registration(broker)) is not None:
            return found["epoch"]
        raise ScenarioFailed(f"there is no value ${name}")

    # -- looking

    async def observe(self) -> None:
        """Read all replicas of running brokers. Every record must be read once before it may be truncated, for the
        numbers of its epoch."""
        for partition, brokers in self.replicas.items():
            for broker in brokers:
                if broker in self.up:
                    with contextlib.suppress(LabCommandError):  # the broker does not know the topic yet
                        self.tables[partition.on(broker)] = await self._table(broker, partition)
        if self.numbering is not None:
            self.numbering.observe(self.tables.values())

    def wiped(self, broker: str) -> None:
        """Note that the replicas of a stopped broker have lost their data."""
        for partition, brokers in self.replicas.items():
            if broker in brokers:
                self.tables[partition.on(broker)] = Table(log={}, epochs={})
                self.described.pop(partition.on(broker), None)

    async def _table(self, broker: str, partition: Partition) -> Table:
        name = partition.on(broker)
        described = self.described[name] = await self.replica(name)
        records = await self.of_replica(name, "read_log", max=10_000, markers=True)
        at_controller = await self.partition(partition)
        return Table(
            log={int(offset): (str(value), int(epoch)) for offset, value, epoch in records},
            epochs={int(epoch): int(start) for epoch, start in described["epochs"]},
            committed=described["high_watermark"] - 1,
            log_end_offset=described["log_end_offset"],
            in_isr=node_id(broker) in at_controller["isr"],
            state=(described["fetcher"] or {}).get("state"),
        )

    def shown(self, replica: str) -> Table:
        """Return the last state of a replica, in the document's numbers."""
        table = self.tables.get(replica, Table())
        return table if self.numbering is None else self.numbering.apply(table)

    def epoch_name(self, epoch: int) -> str:
        """Return a leader epoch of the run as the document writes it."""
        if self.numbering is None:
            return f"LE-{epoch}"
        known = self.numbering.numbers.get(epoch)
        return f"leader epoch {epoch} of this run" if known is None else f"LE-{known}"

    def segment_name(self, source: Fields) -> str:
        """Return a remote segment as the document calls it. ``source``: its id as Kafka writes it, and its offsets."""
        bounds = f"seg-{source['start_offset']}-{source['end_offset']}"
        segment = from_text(source["id"])
        name = self.segments.name_of(segment)
        return bounds if name == str(segment) else f"{bounds} ({name})"

    async def until(self, what: str, condition: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until ``condition`` returns None. Raises ScenarioFailed with its last result after LIMIT."""
        clock = self.driver.runtime.clock
        began = clock.monotonic()
        while (missing := await _tried(condition)) is not None:
            waited = clock.monotonic() - began
            if waited > LIMIT:
                raise ScenarioFailed(f"{what}: after {LIMIT:g} s {missing}")
            await clock.sleep(min(max(waited * PATIENCE, PAUSE), LONGEST_PAUSE))

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


async def _tried(condition: Callable[[], Awaitable[str | None]]) -> str | None:
    """Treat a node that cannot be asked yet like a condition that does not hold."""
    try:
        return await condition()
    except LabCommandError as error:
        return str(error)
