"""Fetch (key 1), versions 4-18, for followers and consumers.

Records are sent as ranges of the log's files, without a copy in Python. A fetch is answered at once if there are
``min_bytes``, an error or a diverging epoch; otherwise it waits for one of these, at most ``max_wait_ms``. Consumers
read up to the high watermark, with read_committed up to the last stable offset, followers up to the log end offset.

A follower's fetch offset is applied to the high watermark and the ISR before the fetch waits. Followers, and consumers
below v11, must fetch from the leader; other consumers may fetch from any replica.
KIPs: 74 (limits), 98 (aborted transactions), 227 (sessions), 320 (epochs), 392 (fetch from followers, v11), 405 (tier,
OFFSET_MOVED_TO_TIERED_STORAGE, v14), 516 (topic ids, v13), 595 (diverging epoch, v12), 903 (replica state, v15), 951
(current leader, v16).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from milena.broker.metadata.leader_hints import LeaderHints
from milena.broker.reading.fetching import CONSUMER, Fetch, FetchLimits
from milena.broker.reading.partition_read import PartitionRead
from milena.broker.replica.expected_followers import FollowerFetches
from milena.broker.replica.fetch_sessions import FetchPlan, Key, RequestedPartition
from milena.node.api import RequestContext
from milena.protocol.cooperative import ELEMENTS_PER_YIELD, Cooperative, YieldBudget
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.fetch_request import (
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    decode_large_fetch_request,
)
from milena.protocol.requests.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchedPartition,
    FetchedTopic,
    encode_fetch_response,
)
from milena.protocol.requests.leaders import NodeEndpoint
from milena.protocol.schemas.undecodable import TooManyElements
from milena.protocol.types import BrokerEpoch, NodeId

if TYPE_CHECKING:
    from milena.broker.reading.remote_reads import RemoteReads
    from milena.broker.replica.expected_followers import ExpectedFollowers
    from milena.broker.replica.fetch_sessions import FetchSessions
    from milena.broker.replica.partitions import PartitionSet
    from milena.broker.replica.replication import Replication
    from milena.broker.replica.replication_quotas import ReplicationQuotas
    from milena.broker.waiting.purgatory import Purgatory
    from milena.node.metadata.image import MetadataImage

RAW: Final = True
MAX_IMMEDIATE_ELEMENTS: Final = 1_000
"""The maximum number of topics and partitions in a request that is decoded when it arrives. A larger one waits for a
slot first."""

_READ_COMMITTED: Final = 1
_TOPIC_IDS_SINCE: Final = 13
_STORAGE_ERROR_SINCE: Final = 6
_LEADER_SINCE: Final = 16
_ANY_REPLICA_SINCE: Final = 11
_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_LEADER_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Needs(Protocol):
    """What this handler uses of its broker."""

    @property
    def expected_followers(self) -> ExpectedFollowers: ...
    @property
    def fetch_max_bytes(self) -> int: ...
    @property
    def image(self) -> MetadataImage: ...
    @property
    def partitions(self) -> PartitionSet: ...
    @property
    def purgatory(self) -> Purgatory: ...
    @property
    def quotas(self) -> ReplicationQuotas: ...
    @property
    def remote_reads(self) -> RemoteReads | None: ...
    @property
    def replication(self) -> Replication: ...
    @property
    def selects_replicas(self) -> bool: ...
    @property
    def sessions(self) -> FetchSessions: ...


def handle(node: Needs, ctx: RequestContext, body: memoryview) -> Cooperative[None]:
    try:
        request = decode_fetch_request(ctx.version, body, MAX_IMMEDIATE_ELEMENTS)
    except TooManyElements:
        return _handle_large(node, ctx, bytes(body))
    requested = [
        _requested_partition(name, topic_id, fields)
        for name, topic_id, partitions in request.topics
        for fields in partitions
    ]
    return _fetch(node, ctx, request, requested)


def _handle_large(node: Needs, ctx: RequestContext, body: bytes) -> Cooperative[None]:
    """Handle a request for many partitions, in a slot of the scheduler."""
    yield  # the scheduler waits for a slot
    request = yield from decode_large_fetch_request(ctx.version, body)
    requested: list[RequestedPartition] = []
    for name, topic_id, partitions in request.topics:
        for fields in partitions:
            requested.append(_requested_partition(name, topic_id, fields))
            if not len(requested) % ELEMENTS_PER_YIELD:
                yield
    yield  # the first pass is a step of its own
    if not ctx.closed:
        yield from _fetch(node, ctx, request, requested)


def _fetch(
    node: Needs, ctx: RequestContext, request: FetchRequest, requested: list[RequestedPartition]
) -> Cooperative[None]:
    """Read, then respond or wait for more records."""
    ctx.set_origin(follower=request.replica_id >= 0)
    plan = _plan(node, ctx, request, requested)
    if plan is None:
        return
    limits, now_ms = _limits(node, ctx, request), node.replication.now_ms()
    _note_session_fetch(node, ctx, plan, limits, now_ms)
    done = partial(_resume_with_response, node, ctx, plan, limits)
    fetch = Fetch(node.partitions, plan, limits, done, ctx, ctx.resume, now_ms=now_ms)
    work, purgatory = fetch.run(), node.purgatory
    while True:
        # A follower's progress completes other operations: after this one waits, or is answered.
        purgatory.hold()
        try:
            next(work)
        except StopIteration as end:
            if end.value is not None:
                _wait(node, ctx, fetch, limits, end.value)
            return
        except Exception:
            plan.close()
            raise
        finally:
            purgatory.release()
        yield
        if ctx.closed:
            plan.close()
            return


def _plan(
    node: Needs, ctx: RequestContext, request: FetchRequest, requested: list[RequestedPartition]
) -> FetchPlan | None:
    """Return the plan of the fetch session; None if the request was answered with an error."""
    try:
        return node.sessions.plan(
            request.session_id,
            request.session_epoch,
            requested,
            _forgotten(request),
            privileged=request.replica_id >= 0,
            uses_topic_ids=ctx.version >= _TOPIC_IDS_SINCE,
        )
    except KafkaError as error:
        ctx.note_error(error.code)
        ctx.respond(encode_fetch_response(ctx.version, (), error.code))
        return None


def _limits(node: Needs, ctx: RequestContext, request: FetchRequest) -> FetchLimits:
    replica = NodeId(request.replica_id)
    is_follower = replica >= 0
    max_bytes = min(request.max_bytes, node.fetch_max_bytes)
    return FetchLimits(
        max_bytes=max_bytes,
        min_bytes=min(request.min_bytes, max_bytes),
        max_wait_ms=request.max_wait_ms,
        committed=request.isolation_level == _READ_COMMITTED,
        replica=replica,
        replica_epoch=BrokerEpoch(request.replica_epoch),
        only_leader=is_follower or (replica == CONSUMER and ctx.version < _ANY_REPLICA_SINCE),
        rack="" if is_follower or not node.selects_replicas else request.rack_id,
        listener=ctx.listener_name,
        throttle=node.quotas.leader if is_follower and node.quotas.leader.limit is not None else None,
        tier=node.remote_reads,
        refusal_of=None if ctx.refused is None or ctx.refused.handled else ctx.refused.error_of,
    )


def _wait(node: Needs, ctx: RequestContext, fetch: Fetch, limits: FetchLimits, watch: tuple[Hashable, ...]) -> None:
    """Let the fetch wait in the purgatory for changes of ``watch``. Later requests of the connection are not handled
    until it is answered, as in Kafka, so that one connection cannot have many waiting fetches."""
    seconds = limits.max_wait_ms / 1000
    if limits.replica >= 0:
        watch = (*watch, FollowerFetches(limits.replica))
        seconds = node.expected_followers.longest_wait(limits.replica, seconds)
    ctx.hold()
    node.purgatory.wait(fetch, watch, seconds, ctx)


def _note_session_fetch(node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, now_ms: int) -> None:
    """Note the time of a follower's fetch, which counts as progress for all partitions of its session.

    It does not count if the fetch has a stale broker epoch: then all partitions are read, and each returns the error.
    Nor if a fault rule refuses partitions: then all are read, and those not refused record their progress themselves.
    """
    session = plan.session
    if session is not None and ctx.refused is not None:
        session.read_all_next()
        return
    if limits.replica < 0 or session is None:
        return
    if node.replication.is_stale(limits.replica, limits.replica_epoch):
        session.read_all_next()
    else:
        session.fetch_times.note(now_ms)


def _requested_partition(name: str | None, topic_id: UUID | None, fields: FetchPartition) -> RequestedPartition:
    """Convert one partition of a request; epoch -1 becomes None."""
    return RequestedPartition(
        name,
        topic_id,
        fields.partition,
        fields.fetch_offset,
        fields.max_bytes,
        None if fields.current_leader_epoch < 0 else fields.current_leader_epoch,
        None if fields.last_fetched_epoch < 0 else fields.last_fetched_epoch,
        fields.log_start_offset,
    )


def _forgotten(request: FetchRequest) -> list[Key]:
    return [
        (topic_id if topic_id is not None else name or "", index)
        for name, topic_id, indexes in request.forgotten_topics
        for index in indexes
    ]


def _resume_with_response(
    node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, results: list[PartitionRead]
) -> None:
    ctx.resume(_respond(node, ctx, plan, limits, results))


def _respond(
    node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, results: list[PartitionRead]
) -> Cooperative[None]:
    """Respond with the results, unless the client has disconnected."""
    if not ctx.closed:
        topics, endpoints = yield from _build_topics(node, ctx, plan, limits, results)
        if len(results) > ELEMENTS_PER_YIELD:
            yield  # the encoding is a step of its own
        if not ctx.closed:
            ctx.respond(encode_fetch_response(ctx.version, topics, 0, plan.session_id, 0, endpoints))
    plan.close()


def _build_topics(
    node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, reads: list[PartitionRead]
) -> Cooperative[tuple[list[FetchedTopic], tuple[NodeEndpoint, ...]]]:
    """Return the topics of the response and the endpoints of leaders. An incremental response has only changed
    partitions. Also counts a follower's bytes for its quota."""
    version = ctx.version
    hints: LeaderHints | None = None
    topics: list[FetchedTopic] = []
    results: list[FetchedPartition] = []
    name: str | None = None
    topic_id: UUID | None = None
    budget = YieldBudget()
    for entry in _with_refusals(ctx, reads):
        requested = entry.requested
        if entry.result is None and hints is None and version >= _LEADER_SINCE:
            hints = LeaderHints(node.image, ctx.listener_name)
        fetched = _fetched(entry, version, limits, hints)
        if fetched.error_code:
            ctx.note_error(fetched.error_code)
        if (
            limits.throttle is not None
            and entry.size
            and entry.partition
            and limits.throttle.throttles(entry.partition)
        ):
            limits.throttle.record(entry.size)
        if budget.spend(1):
            yield
        if not _includes(plan, limits, entry, fetched):
            continue
        if not topics or requested.topic != name or requested.topic_id != topic_id:
            name, topic_id, results = requested.topic, requested.topic_id, []
            topics.append((name, topic_id, results))
        results.append(fetched)
    endpoints: tuple[NodeEndpoint, ...] = () if hints is None or limits.replica >= 0 else hints.endpoints()
    return topics, endpoints


def _with_refusals(ctx: RequestContext, reads: list[PartitionRead]) -> list[PartitionRead]:
    """Replace the results of partitions that a fault rule refuses by its errors."""
    refused = ctx.refused
    if refused is None or not refused.handled:
        return reads
    errors = [refused.error_of(entry.requested.topic, entry.requested.index) for entry in reads]
    return [
        PartitionRead(entry.requested, entry.partition, None, error) if error else entry
        for entry, error in zip(reads, errors, strict=True)
    ]


def _includes(plan: FetchPlan, limits: FetchLimits, entry: PartitionRead, fetched: FetchedPartition) -> bool:
    """Return whether the response includes this partition, and decide when the session reads it again: after a change,
    or with the next fetch, after the other partitions if it had records."""
    session = plan.session
    if session is None:
        return True
    included = plan.includes(
        entry.requested,
        high_watermark=fetched.high_watermark,
        log_start=fetched.log_start_offset,
        always=bool(entry.size) or entry.is_urgent,
        failed=fetched.error_code != 0,
    )
    # A follower outside of the ISR is read with each fetch, because each may let it join.
    if (
        entry.partition is not None
        and entry.has_everything
        and not entry.high_watermark_has_moved
        and plan.is_unchanged_since_read(entry.requested)
        and not entry.partition.may_join_isr(limits.replica)
    ):
        session.read_on_change(entry.requested, entry.partition)
    elif entry.size:
        session.move_to_end(entry.requested)
    return included


def _fetched(entry: PartitionRead, version: int, limits: FetchLimits, hints: LeaderHints | None) -> FetchedPartition:
    requested, result = entry.requested, entry.result
    if entry.partition is not None:
        meters = entry.partition.meters
        meters.fetches.value += 1
        if entry.error:
            meters.failed_fetches.value += 1
        elif limits.replica == CONSUMER:
            meters.bytes_out.value += entry.size
        else:
            meters.replication_bytes_out.value += entry.size
    if result is None:
        error = entry.error
        leader = None
        if hints is not None and error in _LEADER_ERRORS:
            leader = hints.leader(requested.topic, requested.topic_id, requested.index)
        if error is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_SINCE:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # As in Kafka, where an unknown topic is found before the read, and the field keeps its default.
        aborted = () if error in _UNKNOWN else None
        return FetchedPartition(requested.index, error, aborted=aborted, current_leader=leader)
    diverging = result.diverging
    return FetchedPartition(
        requested.index,
        entry.error,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.slice.part() if result.slice.length else b"",
        None if result.aborted is None else [AbortedTransaction._make(transaction) for transaction in result.aborted],
        -1 if result.preferred_replica is None else result.preferred_replica,
        diverging_epoch=None if diverging is None else EpochEndOffset(*diverging),
    )
