"""Fetch (key 1), versions 4-18, from partitions led here.

Records leave as ranges of the log's files, never through Python. A fetch is answered at once when it has enough, an
error or a divergence; otherwise it waits for ``min_bytes`` or its time. Bounds: the high watermark, the last stable
offset for readers of committed records, the log end for replicas.

A follower's fetch tells how far it has come: that moves the high watermark and the ISR before anything waits. Followers
and consumers below v11 are served by the leader alone, other consumers by any replica.
KIPs: 74 (limits), 98 (aborted transactions), 227 (sessions), 320 (epochs), 392 (nearer replicas, v11), 516 (topic ids,
v13), 595 (divergence, v12), 903 (replica state, v15), 951 (current leader, v16).
"""

from __future__ import annotations

from collections.abc import Coroutine, Hashable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from milena.broker.metadata.leader_hints import LeaderHints
from milena.broker.reading.fetching import CONSUMER, Fetch, FetchLimits
from milena.broker.reading.found import Found
from milena.broker.reading.large_fetch import LargeFetch, with_session
from milena.broker.replica.expected_followers import FetchesOf
from milena.broker.replica.fetch_sessions import NO_SESSION, FetchPlan, Key, Wanted
from milena.node.api import RequestContext
from milena.node.serving.sliced_work import DECODED, Place
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.fetch_request import (
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    decode_fetch_request_in_steps,
)
from milena.protocol.requests.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchedPartition,
    FetchedTopic,
    encode_fetch_response,
    encode_fetch_response_in_steps,
)
from milena.protocol.requests.frames import Part
from milena.protocol.requests.leaders import NodeEndpoint
from milena.protocol.schemas.steps import Pace, Steps, at_once
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
    from milena.node.serving.sliced_work import SlicedWork

RAW: Final = True
FEW: Final = 1_000
"""Topics and partitions of a request that is handled in the step of the loop in which it comes."""

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
    @property
    def sliced_work(self) -> SlicedWork: ...


def handle(node: Needs, ctx: RequestContext, body: memoryview) -> Coroutine[object, object, None] | None:
    try:
        request = decode_fetch_request(ctx.version, body, FEW)
    except TooManyElements:
        if not node.sliced_work.hold(len(body)):
            ctx.disconnect(f"{node.sliced_work.held} bytes of requests wait to be handled")
            return None
        ctx.hold()
        return _in_slices(node, ctx, bytes(body))
    wanted = [_want(name, topic_id, asked) for name, topic_id, partitions in request.topics for asked in partitions]
    plan = _plan(node, ctx, request, wanted)
    if plan is None:
        return None
    limits, now_ms = _limits(node, ctx, request), node.replication.now_ms()
    _visit(node, ctx, plan, limits, now_ms)
    fetch = Fetch(node.partitions, plan, limits, partial(_answer, node, ctx, plan, limits), ctx, now_ms=now_ms)
    node.purgatory.hold()
    try:
        watch = fetch.begin()
        if watch is not None:
            _wait(node, ctx, fetch, limits, watch)
    finally:
        node.purgatory.release()
    return None


async def _in_slices(node: Needs, ctx: RequestContext, body: bytes) -> None:
    """A request for many partitions, while what follows on the connection waits."""
    work = node.sliced_work
    with ExitStack() as held:
        held.callback(work.drop, len(body))
        async with work.place(DECODED * len(body)) as place:
            request, wanted = await place.result(_read(ctx.version, body))
            held.close()
            await _in_place(node, ctx, place, request, wanted)


async def _in_place(
    node: Needs, ctx: RequestContext, place: Place, request: FetchRequest, wanted: list[Wanted]
) -> None:
    plan = _plan(node, ctx, request, wanted)
    if plan is None:
        return
    limits, now_ms = _limits(node, ctx, request), node.replication.now_ms()
    _visit(node, ctx, plan, limits, now_ms)
    plan = with_session(plan, now_ms)
    fetch = LargeFetch(node.partitions, plan, limits, partial(_answer, node, ctx, plan, limits), ctx, now_ms=now_ms)
    try:
        found = await fetch.run(place, partial(_wait, node, ctx, fetch, limits))
    finally:
        if plan.session is not None and plan.session_id == NO_SESSION:
            plan.session.close()
    if not ctx.closed and not fetch.from_tier(found):
        parts = await place.result(_encoded(node, ctx, plan, limits, found))
        if not ctx.closed:
            ctx.respond(parts)


def _read(version: int, body: bytes) -> Steps[tuple[FetchRequest, list[Wanted]]]:
    request = yield from decode_fetch_request_in_steps(version, body)
    pace, wanted = Pace(), list[Wanted]()
    for name, topic_id, partitions in request.topics:
        for asked in partitions:
            wanted.append(_want(name, topic_id, asked))
            if pace.is_over(1):
                yield
    return request, wanted


def _plan(node: Needs, ctx: RequestContext, request: FetchRequest, wanted: list[Wanted]) -> FetchPlan | None:
    """None if the request was refused, and answered so."""
    try:
        return node.sessions.plan(
            request.session_id,
            request.session_epoch,
            wanted,
            _forgotten(request),
            privileged=request.replica_id >= 0,
            uses_topic_ids=ctx.version >= _TOPIC_IDS_SINCE,
        )
    except KafkaError as error:
        ctx.respond(encode_fetch_response(ctx.version, (), error.code))
        return None


def _limits(node: Needs, ctx: RequestContext, request: FetchRequest) -> FetchLimits:
    replica = NodeId(request.replica_id)
    follows = replica >= 0
    max_bytes = min(request.max_bytes, node.fetch_max_bytes)
    return FetchLimits(
        max_bytes=max_bytes,
        min_bytes=min(request.min_bytes, max_bytes),
        max_wait_ms=request.max_wait_ms,
        committed=request.isolation_level == _READ_COMMITTED,
        replica=replica,
        replica_epoch=BrokerEpoch(request.replica_epoch),
        only_leader=follows or (replica == CONSUMER and ctx.version < _ANY_REPLICA_SINCE),
        rack="" if follows or not node.selects_replicas else request.rack_id,
        listener=ctx.listener_name,
        throttle=node.quotas.leader if follows and node.quotas.leader.limit is not None else None,
        tier=node.remote_reads,
        refuses=None if ctx.refused is None or ctx.refused.handled else ctx.refused.error_of,
    )


def _wait(node: Needs, ctx: RequestContext, fetch: Fetch, limits: FetchLimits, watch: tuple[Hashable, ...]) -> None:
    """One fetch of a connection waits at a time, as in Kafka: each that waits is looked at with each change, and a
    client may ask for 24 days. It waits as long as its client is there."""
    seconds = limits.max_wait_ms / 1000
    if limits.replica >= 0:
        watch = (*watch, FetchesOf(limits.replica))
        seconds = node.expected_followers.longest_wait(limits.replica, seconds)
    ctx.hold()
    node.purgatory.wait(fetch, watch, seconds, ctx)


def _visit(node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, now_ms: int) -> None:
    """A follower's fetch stands for all of its session's partitions, those at rest too. One of a former incarnation
    stands for none: each partition is looked at, and refuses it. If a rule refuses a partition, that is told, and the
    fetch is no visit of it."""
    session = plan.session
    if session is not None and ctx.refused is not None:
        session.read_all_next()
        return
    if limits.replica < 0 or session is None:
        return
    if node.replication.is_stale(limits.replica, limits.replica_epoch):
        session.read_all_next()
    else:
        session.visits.note(now_ms)


def _want(name: str | None, topic_id: UUID | None, asked: FetchPartition) -> Wanted:
    """One partition of a request, each -1 for "none" gone."""
    return Wanted(
        name,
        topic_id,
        asked.partition,
        asked.fetch_offset,
        asked.max_bytes,
        None if asked.current_leader_epoch < 0 else asked.current_leader_epoch,
        None if asked.last_fetched_epoch < 0 else asked.last_fetched_epoch,
        asked.log_start_offset,
    )


def _forgotten(request: FetchRequest) -> list[Key]:
    return [
        (topic_id if topic_id is not None else name or "", index)
        for name, topic_id, indexes in request.forgotten_topics
        for index in indexes
    ]


def _answer(node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, found: list[Found]) -> None:
    if not ctx.closed:
        topics, endpoints = at_once(_told(node, ctx, plan, limits, found))
        ctx.respond(encode_fetch_response(ctx.version, topics, 0, plan.session_id, 0, endpoints))


def _encoded(
    node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, found: list[Found]
) -> Steps[list[Part]]:
    topics, endpoints = yield from _told(node, ctx, plan, limits, found)
    return (yield from encode_fetch_response_in_steps(ctx.version, topics, 0, plan.session_id, 0, endpoints))


def _told(
    node: Needs, ctx: RequestContext, plan: FetchPlan, limits: FetchLimits, found: list[Found]
) -> Steps[tuple[list[FetchedTopic], tuple[NodeEndpoint, ...]]]:
    """What was found, as far as the session has not told it before."""
    version = ctx.version
    hints: LeaderHints | None = None
    topics: list[FetchedTopic] = []
    results: list[FetchedPartition] = []
    name: str | None = None
    topic_id: UUID | None = None
    pace = Pace()
    for entry in _without_refused(ctx, found):
        wanted = entry.wanted
        if entry.result is None and hints is None and version >= _LEADER_SINCE:
            hints = LeaderHints(node.image, ctx.listener_name)
        fetched = _fetched(entry, version, limits, hints)
        if (
            limits.throttle is not None
            and entry.size
            and entry.partition
            and limits.throttle.throttles(entry.partition)
        ):
            limits.throttle.record(entry.size)
        if pace.is_over(1):
            yield
        if not _is_news(plan, limits, entry, fetched):
            continue
        if not topics or wanted.topic != name or wanted.topic_id != topic_id:
            name, topic_id, results = wanted.topic, wanted.topic_id, []
            topics.append((name, topic_id, results))
        results.append(fetched)
    endpoints: tuple[NodeEndpoint, ...] = () if hints is None or limits.replica >= 0 else hints.endpoints()
    return topics, endpoints


def _without_refused(ctx: RequestContext, found: list[Found]) -> list[Found]:
    """What was found, with errors in the place of what a rule refuses now."""
    refused = ctx.refused
    if refused is None or not refused.handled:
        return found
    errors = [refused.error_of(entry.wanted.topic, entry.wanted.index) for entry in found]
    return [
        Found(entry.wanted, entry.partition, None, error) if error else entry
        for entry, error in zip(found, errors, strict=True)
    ]


def _is_news(plan: FetchPlan, limits: FetchLimits, entry: Found, fetched: FetchedPartition) -> bool:
    session = plan.session
    if session is None:
        return True
    news = plan.selects(
        entry.wanted,
        high_watermark=fetched.high_watermark,
        log_start=fetched.log_start_offset,
        always=bool(entry.size) or entry.is_urgent,
        failed=fetched.error_code != 0,
    )
    if (
        entry.partition is not None
        and entry.is_all_told
        and not entry.is_overtaken
        and plan.is_as_read(entry.wanted)
        and not entry.partition.may_join(limits.replica)
    ):
        session.read_on_change(entry.wanted, entry.partition)
    elif entry.size:
        session.served(entry.wanted)
    return news


def _fetched(entry: Found, version: int, limits: FetchLimits, hints: LeaderHints | None) -> FetchedPartition:
    wanted, result = entry.wanted, entry.result
    if entry.partition is not None:
        meters = entry.partition.meters
        meters.fetches.value += 1
        if entry.error:
            meters.failed_fetches.value += 1
        elif limits.replica == CONSUMER:
            meters.bytes_out.value += entry.size
    if result is None:
        error = entry.error
        leader = None
        if hints is not None and error in _LEADER_ERRORS:
            leader = hints.leader(wanted.topic, wanted.topic_id, wanted.index)
        if error is ErrorCode.KAFKA_STORAGE_ERROR and version < _STORAGE_ERROR_SINCE:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        # Kafka looks for the topic before it reads, and then its schema's default is an empty list.
        aborted = () if error in _UNKNOWN else None
        return FetchedPartition(wanted.index, error, aborted=aborted, current_leader=leader)
    diverging = result.diverging
    return FetchedPartition(
        wanted.index,
        entry.error,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.slice.part() if result.slice.length else b"",
        None if result.aborted is None else [AbortedTransaction._make(transaction) for transaction in result.aborted],
        -1 if result.nearest is None else result.nearest,
        diverging_epoch=None if diverging is None else EpochEndOffset(*diverging),
    )
