"""A leader of the metadata log as an observer meets it, and observers, in the simulated world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from milena.config.node_config import NodeConfig
from milena.config.topic_config import TopicConfig
from milena.lab.world.world import World
from milena.node.api import Answer, ApiTable, RequestContext
from milena.node.metadata.loader import MetadataLoader
from milena.node.metadata.observer import Observer, ObserverOptions
from milena.node.metadata.snapshot_keeper import SnapshotKeeper, SnapshotPolicy
from milena.node.metadata.snapshots import MetadataSnapshotId, SnapshotStore, snapshot_batches
from milena.node.metrics import Metrics
from milena.node.rules.rules import Rules
from milena.node.serving.server import Server, ServerLimits
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.metadata_records import FeatureLevelRecord, MetadataRecord, TopicRecord, encode_record
from milena.protocol.records.batch import BatchView, iter_batches
from milena.protocol.records.control_records import LeaderChange, control_batch
from milena.protocol.records.records import Record, build_batch
from milena.protocol.requests.fetch import (
    EpochEndOffset,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_response,
)
from milena.protocol.requests.fetch import SnapshotId as WireSnapshotId
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.schemas.registry import Role
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID, LeaderEpoch, NodeId, Offset
from milena.runtime.context import Runtime
from milena.storage.log.loading import open_alone
from milena.storage.log.unified_log import UnifiedLog
from tests.unit.node.peers import PACKAGE, Endpoint

PORT = 9093
FOLDER = "/data/__cluster_metadata-0"


def feature(name: str, level: int = 1) -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=level)


@dataclass
class Leader:
    """Node ``id`` at host ``c<id>``. Its log is a list of whole batches; ``log_start`` and ``snapshot`` cut it."""

    id: int
    epoch: int = 1
    leader: int | None = None
    """Who leads, where it is not this node."""
    cluster_id: str = "cluster"
    batches: list[bytes] = field(default_factory=list)
    high_watermark: int = -1
    log_start: int = 0
    snapshot: tuple[MetadataSnapshotId, bytes] | None = None
    newest_fetch: int = 18
    cut_bytes: int = 0
    """Leave away so many bytes of the end of each answer's records."""
    piece_bytes: int = 1 << 20
    fetches: list[FetchRequest] = field(default_factory=list)
    _waiting: list[tuple[RequestContext, FetchRequest]] = field(default_factory=list)
    _server: Server | None = None

    @property
    def log_end(self) -> int:
        return BatchView(memoryview(self.batches[-1])).next_offset if self.batches else self.log_start

    @property
    def versions(self) -> dict[ApiKey, tuple[int, int]]:
        return {ApiKey.FETCH: (4, self.newest_fetch), ApiKey.FETCH_SNAPSHOT: (0, 1), ApiKey.API_VERSIONS: (0, 4)}

    newest_api_versions = 4
    features: ClassVar[dict[str, int]] = {}
    features_epoch = -1

    def append(self, *records: MetadataRecord, commit: bool = True) -> None:
        """One batch; with ``commit`` it counts as committed."""
        encoded = [Record(n, 0, None, encode_record(record)) for n, record in enumerate(records)]
        self._add(
            build_batch(encoded, base_offset=Offset(self.log_end), base_timestamp=7, leader_epoch=self._epoch()), commit
        )

    def begin(self, epoch: int | None = None, *, commit: bool = True) -> None:
        """Become the leader: LEADER_CHANGE."""
        self.epoch = self.epoch if epoch is None else epoch
        self.leader = None
        change = LeaderChange(leader_id=self.id)
        self._add(
            control_batch([change], timestamp=7, base_offset=Offset(self.log_end), leader_epoch=self._epoch()), commit
        )

    def commit(self) -> None:
        self.high_watermark = self.log_end
        self._wake()

    def take_snapshot(self, records: Sequence[MetadataRecord]) -> MetadataSnapshotId:
        """A snapshot of ``records`` that stands for all of the log, which is dropped."""
        taken = MetadataSnapshotId(Offset(self.log_end), self._epoch())
        data = b"".join(snapshot_batches(records, self._epoch(), metadata_version=30, last_timestamp=7, now_ms=8))
        self.snapshot = (taken, data)
        self.log_start = self.log_end
        self.batches.clear()
        return taken

    async def start(self, runtime: Runtime) -> None:
        apis = {ApiKey.FETCH: "raw", ApiKey.FETCH_SNAPSHOT: "cold", ApiKey.API_VERSIONS: "versions"}
        self._server = Server(
            runtime,
            self,
            node_id=self.id,
            role=Role.CONTROLLER,
            endpoints=[Endpoint("CONTROLLER", f"c{self.id}", PORT)],
            apis=ApiTable(PACKAGE, apis),
            limits=ServerLimits(),
            metrics=Metrics(),
            rules=Rules(runtime.clock),
        )
        await self._server.start()

    def _epoch(self) -> LeaderEpoch:
        return LeaderEpoch(self.epoch)

    def _add(self, batch: bytes, commit: bool) -> None:
        self.batches.append(batch)
        if commit:
            self.high_watermark = self.log_end
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for ctx, request in waiting:
            self._answer(ctx, request)

    def raw(self, ctx: RequestContext, body: memoryview) -> None:
        request = decode_fetch_request(ctx.version, body)
        self.fetches.append(request)
        wanted = request.topics[0][2][0]
        known = wanted.high_watermark if ctx.version >= 18 else 2**63 - 1
        nothing_new = FetchedPartition(0, high_watermark=self.high_watermark, log_start_offset=self.log_start)
        if self._partition(wanted)._replace(current_leader=None) == nothing_new and known >= self.high_watermark:
            self._waiting.append((ctx, request))
            assert self._server is not None
            self._server.runtime.clock.call_later(request.max_wait_ms / 1000, lambda: self._expire(ctx, request))
        else:
            self._answer(ctx, request)

    def _expire(self, ctx: RequestContext, request: FetchRequest) -> None:
        if (ctx, request) in self._waiting:
            self._waiting.remove((ctx, request))
            self._answer(ctx, request)

    def _check(self, wanted: FetchPartition) -> ErrorCode | None:
        if wanted.current_leader_epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if wanted.current_leader_epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return None if self.leader is None else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _answer(self, ctx: RequestContext, request: FetchRequest) -> None:
        topic = (METADATA_TOPIC, METADATA_TOPIC_ID, [self._partition(request.topics[0][2][0])])
        error = ErrorCode.NONE
        if request.cluster_id not in (None, self.cluster_id):
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
        leader = self.id if self.leader is None else self.leader
        endpoints = [NodeEndpoint(leader, f"c{leader}", PORT)] if leader >= 0 else []
        ctx.respond(encode_fetch_response(ctx.version, [] if error else [topic], int(error), node_endpoints=endpoints))

    def _partition(self, wanted: FetchPartition) -> FetchedPartition:
        answer = FetchedPartition(
            0,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start,
            current_leader=CurrentLeader(self.id if self.leader is None else self.leader, self.epoch),
        )
        if (error := self._check(wanted)) is not None:
            return answer._replace(error_code=int(error))
        assert wanted.last_fetched_epoch >= 0
        if self.snapshot is not None and wanted.fetch_offset < self.log_start:
            end_offset, epoch = self.snapshot[0].end_offset, self.snapshot[0].epoch
            return answer._replace(snapshot_id=WireSnapshotId(end_offset, epoch))
        diverging = self._end_of(wanted.last_fetched_epoch)
        if diverging.epoch != wanted.last_fetched_epoch or diverging.end_offset < wanted.fetch_offset:
            return answer._replace(diverging_epoch=diverging)
        later = [b for b in self.batches if BatchView(memoryview(b)).last_offset >= wanted.fetch_offset]
        data = b"".join(later)
        return answer._replace(records=data[: len(data) - self.cut_bytes])

    def _end_of(self, epoch: int) -> EpochEndOffset:
        """Where the largest epoch not above ``epoch`` ends here."""
        found = EpochEndOffset(0 if self.snapshot is None else self.snapshot[0].epoch, self.log_start)
        for batch in iter_batches(memoryview(b"".join(self.batches))):
            if batch.leader_epoch <= epoch:
                found = EpochEndOffset(batch.leader_epoch, batch.next_offset)
        return found if found.end_offset else EpochEndOffset(epoch, 0)

    def cold(self, ctx: RequestContext, request: Any) -> Answer:
        wanted = request.topics[0].partitions[0]
        answer: dict[str, Any] = {
            "index": 0,
            "snapshot_id": {"end_offset": wanted.snapshot_id.end_offset, "epoch": wanted.snapshot_id.epoch},
            "current_leader": {"leader_id": self.id, "leader_epoch": self.epoch},
        }
        found = self.snapshot
        if found is None or found[0].end_offset != wanted.snapshot_id.end_offset:
            answer["error_code"] = int(ErrorCode.SNAPSHOT_NOT_FOUND)
            return {"topics": [{"name": METADATA_TOPIC, "partitions": [answer]}]}
        data = found[1]
        piece = data[wanted.position : wanted.position + min(self.piece_bytes, request.max_bytes)]
        answer |= {"size": len(data), "position": wanted.position, "unaligned_records": piece}
        return {"topics": [{"name": METADATA_TOPIC, "partitions": [answer]}]}


@dataclass
class Follower:
    """An observer on machine ``b1`` with what it keeps."""

    runtime: Runtime
    log: UnifiedLog
    snapshots: SnapshotStore
    loader: MetadataLoader
    keeper: SnapshotKeeper
    observer: Observer

    @property
    def features(self) -> dict[str, int]:
        return self.loader.image.features


def follow(
    world: World,
    voters: Sequence[int] = (1,),
    *,
    policy: SnapshotPolicy | None = None,
    cluster_id: str | None = "cluster",
) -> Follower:
    """Start an observer, with what its disk has from before."""
    runtime = world.machine("b1").start()
    config = TopicConfig.effective(NodeConfig.of(), {})
    snapshots = SnapshotStore(runtime.disk, FOLDER)
    snapshots.open()
    log = open_alone(runtime.disk, runtime.clock, FOLDER, METADATA_TOPIC, 0, METADATA_TOPIC_ID, config)
    loader = MetadataLoader(log, snapshots, runtime.contained)
    keeper = SnapshotKeeper(runtime, loader, log, snapshots, policy or SnapshotPolicy(), node_id=1)
    options = ObserverOptions(
        node_id=NodeId(1), cluster_id=cluster_id, voters={voter: (f"c{voter}", PORT) for voter in voters}
    )
    observer = Observer(runtime, options, log, snapshots, loader, keeper)
    follower = Follower(runtime, log, snapshots, loader, keeper, observer)
    runtime.new_tasks("observer").spawn(observer.run(), name="run")
    return follower


def topic(name: str, number: int) -> TopicRecord:
    return TopicRecord(name=name, topic_id=UUID(int=number << 64))
