"""Fetch (key 1), versions 4-18, of the metadata log by observers (KIP-595, KIP-630; docs/kafka-semantics.md: Fetches
of observers).

Each response names this leader and its epoch, because Kafka's brokers ignore a response without them; since v17 also
its address. A response without records waits for a commit or until the request's ``max_wait_ms`` is over. Differs from
Kafka: only committed records are returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from milena.controller.log.answer_fetch import (
    Decision,
    Diverging,
    Reject,
    SendRecords,
    SendSnapshot,
    decide,
    only_partition,
)
from milena.node.api import RequestContext
from milena.protocol.limits import MAX_OBSERVED
from milena.protocol.requests.fetch import (
    EpochEndOffset,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    SnapshotId,
    decode_fetch_request,
    encode_fetch_response,
)
from milena.protocol.requests.frames import Part
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID, Offset
from milena.storage.log.unified_log import UnifiedLog

if TYPE_CHECKING:
    from milena.controller.log.followers import Followers
    from milena.controller.log.long_poll import LongPolls
    from milena.controller.log.metadata_log import MetadataLog
    from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
    from milena.runtime.context import Runtime

RAW = True
ENDPOINTS_SINCE: Final = 17
MAX_BYTES: Final = 8 << 20
"""The maximum bytes of records in one response, even if the request allows more."""


class Needs(Protocol):
    """What this handler uses of its controller."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def followers(self) -> Followers: ...
    @property
    def metadata(self) -> MetadataLog: ...
    @property
    def polls(self) -> LongPolls: ...
    @property
    def runtime(self) -> Runtime: ...
    def current_leader(self) -> CurrentLeader: ...
    def leader_endpoints(self, listener_name: str) -> tuple[NodeEndpoint, ...]: ...


def handle(node: Needs, ctx: RequestContext, body: memoryview) -> None:
    request = decode_fetch_request(ctx.version, body, MAX_OBSERVED)
    ctx.set_origin(follower=request.replica_id >= 0)

    def try_answer(now: bool) -> bool:
        return ctx.closed or _try_answer(node, ctx, request, final=now)

    node.polls.wait(max(request.max_wait_ms, 0) / 1000, try_answer, ctx.lost)


def _try_answer(node: Needs, ctx: RequestContext, request: FetchRequest, *, final: bool) -> bool:
    """Answer if there is data or an error, or if ``final``. Return whether the request was answered."""
    metadata = node.metadata
    log = metadata.log
    decision = decide(request, cluster_id=node.cluster_id, epoch=metadata.epoch, log=log, snapshots=metadata.snapshots)
    if isinstance(decision, Reject) and decision.top_level:
        ctx.note_error(decision.code)
        ctx.respond(encode_fetch_response(ctx.version, [], error_code=decision.code))
        return True
    if isinstance(decision, Reject):
        ctx.note_error(decision.code)
    partition = only_partition(request)
    assert partition is not None, "requests for other partitions fail with a top-level error"
    if isinstance(decision, SendRecords):
        _note(node, request, partition)
        news = decision.offset < metadata.high_watermark or partition.high_watermark < metadata.high_watermark
        if not news and not final:
            return False
    endpoints = node.leader_endpoints(ctx.listener_name) if ctx.version >= ENDPOINTS_SINCE else ()
    topic = (METADATA_TOPIC, METADATA_TOPIC_ID, [_partition(node, log, decision, request.max_bytes)])
    ctx.respond(encode_fetch_response(ctx.version, [topic], node_endpoints=endpoints))
    return True


def _partition(node: Needs, log: UnifiedLog, decision: Decision, max_bytes: int) -> FetchedPartition:
    answer = FetchedPartition(
        0,
        high_watermark=-1 if isinstance(decision, Reject) else log.high_watermark,
        log_start_offset=log.log_start_offset,
        current_leader=node.current_leader(),
    )
    match decision:
        case Reject(code):
            return answer._replace(error_code=code)
        case SendSnapshot(snapshot):
            return answer._replace(snapshot_id=SnapshotId(snapshot.end_offset, snapshot.epoch))
        case Diverging(epoch=epoch, end_offset=end_offset):
            return answer._replace(diverging_epoch=EpochEndOffset(epoch, end_offset))
        case SendRecords(offset):
            return answer._replace(records=_records(log, offset, min(max_bytes, MAX_BYTES)))


def _records(log: UnifiedLog, offset: Offset, max_bytes: int) -> Part:
    found = log.read(offset, max_bytes, upper=log.high_watermark, min_one=True)
    return found.part() if found.length else b""


def _note(node: Needs, request: FetchRequest, partition: FetchPartition) -> None:
    node.followers.fetched(
        request.replica_id,
        partition.replica_directory_id,
        Offset(partition.fetch_offset),
        leader_end=node.metadata.high_watermark,
        now_ms=node.runtime.clock.time_ms(),
    )
