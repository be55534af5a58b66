"""A broker's parts over real files, without a network: partitions, handlers, and clients that see bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from milena.broker.metadata.answer_cache import AnswerCache
from milena.broker.replica.expected_followers import ExpectedFollowers
from milena.broker.replica.fetch_sessions import FetchSessions
from milena.broker.replica.isr_proposals import AlteredIsr, IsrProposal
from milena.broker.replica.meters import BrokerMeters, IsrMeters
from milena.broker.replica.partition import Partition
from milena.broker.replica.partitions import PartitionSet
from milena.broker.replica.replication import Replication
from milena.broker.replica.replication_quotas import ReplicationQuotas
from milena.broker.transactions.verification import Done, Operation
from milena.broker.waiting.purgatory import Purgatory
from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.node.api import Caller, RequestContext, RequestMeters, ServedApi
from milena.node.metadata.image import BrokerImage, ListenerImage, MetadataImage, PartitionImage, TopicImage
from milena.node.metrics import Counter, Metrics
from milena.node.request_meters import RequestErrors, RequestTimes
from milena.node.serving.cooperative_requests import CooperativeRequests
from milena.node.serving.scheduler import Scheduler
from milena.protocol import cooperative
from milena.protocol.errors import ErrorCode
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests import messages
from milena.protocol.requests.headers import RequestHeader, parse_response_header
from milena.protocol.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicPartition
from milena.runtime.containment import Containment
from milena.runtime.files import RealDisk
from milena.runtime.network import FileRange
from milena.runtime.randomness import Randomness
from milena.runtime.tasks import Tasks
from milena.storage.log.loading import open_alone
from tests.unit.broker.hand_clock import HandClock

ME = NodeId(1)
OTHER = NodeId(2)


def batch(*values: bytes, timestamp: int = 1_000, **options: Any) -> memoryview:
    """A client's batch of records."""
    records = [Record(at, 0, None, value, ()) for at, value in enumerate(values)]
    return memoryview(bytearray(build_batch(records, base_timestamp=timestamp, **options)))


@dataclass
class Answers:
    """Captures the response of a handler."""

    closed: bool = False
    reason: str | None = None
    answered_contexts: list[RequestContext] = field(default_factory=list)
    held: bool = False
    """Whether later requests of the connection wait."""

    def answered(self, ctx: RequestContext) -> None:
        self.answered_contexts.append(ctx)

    def hold(self, ctx: RequestContext) -> None:
        self.held = True

    def release(self, ctx: RequestContext) -> None:
        self.held = False

    def close(self, reason: str) -> None:
        self.closed = True
        self.reason = reason


class Started:
    """Starts tasks and stores the last one."""

    task: asyncio.Task[object] | None = None

    def attempt(self, work: Coroutine[Any, Any, object], *, name: str) -> None:
        self.task = asyncio.ensure_future(work)


class AtOnce:
    """Runs the remaining work of a request without yields."""

    def resume(self, ctx: RequestContext, work: cooperative.Cooperative[None]) -> None:
        cooperative.run_now(work)

    def wait(self, ctx: RequestContext, size: int) -> bool:
        return True

    def proceed(self, ctx: RequestContext, work: cooperative.Cooperative[None], size: int) -> None:
        cooperative.run_now(work)


class Request:
    """One request that is passed to a handler, and its response."""

    def __init__(self, key: int, version: int, *, client_id: str = "test", listener: str = "PLAINTEXT") -> None:
        self.key, self.version = key, version
        self.answers = Answers()
        api = ServedApi(
            "Test",
            lambda *_: None,
            True,
            None,
            RequestMeters(Counter(), RequestTimes(), RequestErrors(Metrics(), "Test")),
        )
        header = RequestHeader(key, version, 7, client_id)
        self.ctx = RequestContext(header, api, Caller(listener, "127.0.0.1"), self.answers, 0.0)
        self.ctx.driver = AtOnce()

    @property
    def answered(self) -> bool:
        return self.ctx.answered

    @property
    def body(self) -> bytes:
        assert self.ctx.parts, "no answer"
        frame = b"".join(
            part.handle.pread(part.length, part.position) if isinstance(part, FileRange) else bytes(part)
            for part in self.ctx.parts
        )
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, body = parse_response_header(self.key, self.version, frame[4:])
        assert correlation_id == 7
        return bytes(body)

    @property
    def response(self) -> Any:
        return messages.decode_response(self.key, self.version, self.body)


def at_once(answer: Any) -> Any:
    """The response of a handler, which must not wait if it is a coroutine."""
    if answer is None or isinstance(answer, Mapping):
        return answer
    if not isinstance(answer, Coroutine):
        return cooperative.run_now(answer)
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the answer takes more than one step")


class HandProposals:
    """ISR proposals, which the test answers."""

    def __init__(self) -> None:
        self.open: list[IsrProposal] = []

    def start(self, tasks: Tasks) -> None:
        pass

    def submit(self, proposal: IsrProposal) -> bool:
        if any((one.topic_id, one.index) == (proposal.topic_id, proposal.index) for one in self.open):
            return False
        self.open.append(proposal)
        return True

    def members(self) -> dict[int, int]:
        """Node and broker epoch of the only pending proposal."""
        (proposal,) = self.open
        return dict(proposal.members)

    def accept(self) -> None:
        """The oldest proposal."""
        proposal = self.open.pop(0)
        epoch = PartitionEpoch(proposal.partition_epoch + 1)
        isr = tuple(node for node, _ in proposal.members)
        proposal.done(AlteredIsr(leader_epoch=proposal.leader_epoch, partition_epoch=epoch, isr=isr))

    def refuse(self, error: ErrorCode) -> None:
        self.open.pop(0).done(error)


@dataclass
class OpenVerification:
    """A verification that the test answers."""

    transactional_id: str
    producer: tuple[int, int]
    partitions: list[TopicPartition]
    operation: Operation
    done: Done

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Give all partitions the same result."""
        self.done(dict.fromkeys(self.partitions, error) if error else {})


class HandVerifications:
    """The requests to transaction coordinators, which the test answers."""

    def __init__(self) -> None:
        self.open: list[OpenVerification] = []

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: list[TopicPartition],
        operation: Operation,
        done: Done,
    ) -> None:
        self.open.append(OpenVerification(transactional_id, (producer_id, epoch), partitions, operation, done))

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> OpenVerification:
        """Answer the only one that is open."""
        (verification,) = self.open
        self.open.clear()
        verification.answer(error)
        return verification


class Bench:
    """The parts of a broker that handlers use as ``node``, with a manual clock."""

    def __init__(self, folder: Path) -> None:
        self.node_id = ME
        self.folder = folder
        self.clock = HandClock()
        self.clock.now = 1_700_000_000.0
        self.disk = RealDisk()
        self.config = NodeConfig.of(log_dirs=str(folder))
        self.image = MetadataImage()
        self.contained = Containment(self.clock)
        self.purgatory = Purgatory(self.clock, self.contained)
        self.scheduler = Scheduler(self.clock)
        self.started = Started()
        self.requests = CooperativeRequests(self.scheduler, self.started, self._raise)  # type: ignore[arg-type]
        self.partitions = PartitionSet(lambda: self.image)
        self.metrics = Metrics()
        self.meters = BrokerMeters(self.metrics)
        self.quotas = ReplicationQuotas(self.clock, self.config, self.metrics)
        self.proposals = HandProposals()
        self.replication = Replication(
            ME,
            lambda: self.image,
            self.proposals,
            IsrMeters(self.metrics),
            self.clock,
            lag_ms=30_000,
            broker_epoch=lambda: BrokerEpoch(ME),
        )
        self.expected_followers = ExpectedFollowers(self.clock, self.purgatory, ME)
        random = Randomness(1)
        self.sessions = FetchSessions(self.clock, random, 10)
        self.remote_reads = None
        self.metadata_answers = AnswerCache()
        self.runtime = SimpleNamespace(clock=self.clock, random=random, contained=self.contained, lab=True)
        self.cluster_id = "test-cluster"
        self.fetch_max_bytes = 55 << 20
        self.selects_replicas = False
        self.created: list[str] = []
        self.auto_create = SimpleNamespace(create=self._create)
        self.verifications = HandVerifications()
        self.verification = SimpleNamespace(
            clock=self.clock, coordinators=self.verifications, is_enabled=True, retry_backoff=0.02, retry_max=0.05
        )
        for node in (ME, OTHER):
            self.broker(node)

    def close(self) -> None:
        self.purgatory.close()
        for partition in self.partitions:
            if partition.log is not None:
                partition.log.close()
        self.disk.close()

    def _create(self, names: list[str]) -> bool:
        self.created += names
        return bool(names)

    def broker(self, node: NodeId, *, fenced: bool = False, listeners: tuple[str, ...] = ("PLAINTEXT",)) -> None:
        endpoints = tuple(ListenerImage(name, f"{name.lower()}-{node}", 9092) for name in listeners)
        self.image.brokers[node] = BrokerImage(node, BrokerEpoch(node), UUID(int=node), endpoints, {}, fenced=fenced)

    def topic(self, name: str, *partitions: PartitionImage) -> TopicImage:
        """Add a topic to the image."""
        topic = TopicImage(name, UUID(int=1000 + len(self.image.topics)), dict(enumerate(partitions)))
        self.image.topics[name] = self.image.topics_by_id[topic.id] = topic
        return topic

    def led(self, name: str = "t", *, leader_epoch: int = 0, count: int = 1, **config: object) -> Partition:
        """Create a topic whose partitions have only this replica. Returns the first partition."""
        wanted = led_by(ME, leader_epoch=leader_epoch)
        topic = self.topic(name, *[wanted] * count)
        for index in range(count):
            self.host(topic, index, **config).become(wanted)
        found = self.partitions.find(name, 0)
        assert found is not None
        return found

    def host(self, topic: TopicImage, index: int, **config: object) -> Partition:
        overrides = {key.replace("_", "."): str(value) for key, value in config.items()}
        meters = self.meters.of(topic.name)
        partition = Partition(topic.name, index, topic.id, self.purgatory, meters, self.replication)
        partition.log = open_alone(
            self.disk,
            self.clock,
            str(self.folder / f"{topic.name}-{index}"),
            topic.name,
            index,
            topic.id,
            TopicConfig.effective(self.config, overrides),
        )
        partition.log.context.start_moved = lambda _: partition.changed()
        self.partitions.add(partition)
        return partition

    def _raise(self, ctx: RequestContext, error: Exception) -> None:
        raise error

    def serve(
        self, request: Request, handle: Callable[..., Any], body: bytes | bytearray
    ) -> asyncio.Task[object] | None:
        """Pass a raw request to a handler like the dispatcher. Returns the task of the remaining work, if any."""
        self.started.task = None
        request.ctx.driver = self.requests
        work = handle(self, request.ctx, memoryview(body))
        if work is not None:
            self.requests.start(request.ctx, work, len(body))
        return self.started.task

    def ask(self, handle: Callable[..., Any], key: int, version: int, /, **fields: Any) -> Any:
        """Pass a decoded request to a handler like the dispatcher. Returns the response, encoded and decoded."""
        request = Request(key, version)
        decoded = messages.decode_request(key, version, messages.encode_request(key, version, **fields))
        answer = at_once(handle(self, request.ctx, decoded))
        request.ctx.respond_fields(**answer)
        return request.response


def set_isr(partition: Partition, *nodes: int) -> None:
    """Change the ISR in the registration of the replica only."""
    known = partition.registration
    replicas = tuple({*known.replicas, *nodes})
    image = led_by(ME, replicas=replicas, isr=nodes, leader_epoch=known.leader_epoch)
    known.apply_image(replace(image, partition_epoch=known.partition_epoch))


def led_by(
    leader: NodeId | int,
    *,
    replicas: tuple[int, ...] | None = None,
    leader_epoch: int = 0,
    isr: tuple[int, ...] | None = None,
    partition_epoch: int | None = None,
) -> PartitionImage:
    """A partition image, whose ISR is by default only the leader."""
    nodes = tuple(NodeId(node) for node in replicas or (leader,))
    in_sync = nodes if leader < 0 else (NodeId(leader),)
    if isr is not None:
        in_sync = tuple(map(NodeId, isr))
    epoch = PartitionEpoch(leader_epoch if partition_epoch is None else partition_epoch)
    return PartitionImage(nodes, in_sync, NodeId(leader), LeaderEpoch(leader_epoch), epoch)
