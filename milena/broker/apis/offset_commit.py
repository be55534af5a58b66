"""OffsetCommit (key 8), versions 2-10: store the offsets of a group.

Versions 2-4 may have a retention time, v6 and later a leader epoch (KIP-320), v7 an instance id; v10 has topic ids
(KIP-848). Each partition's metadata is limited by ``offset.metadata.max.bytes``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milena.broker.groups.group import Group
from milena.broker.groups.offsets import commit_refusal
from milena.broker.groups.requested_offsets import CommitNeeds, RequestedOffsets, group_of_commit
from milena.broker.groups.shard import Shard
from milena.node.api import RequestContext
from milena.protocol.cooperative import Cooperative
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests.messages import get

if TYPE_CHECKING:
    from milena.protocol.apis import OffsetCommitRequest, OffsetCommitResponseFields

DEFAULT_RETENTION: Final = -1
_GROUP_NOT_FOUND_SINCE: Final = 9
_TOPIC_IDS_SINCE: Final = 10


def handle(
    node: CommitNeeds, ctx: RequestContext, request: OffsetCommitRequest
) -> Cooperative[OffsetCommitResponseFields | None]:
    """Topics and partitions that do not exist have their own error, whatever the error of the group is. If there are no
    others, the group is not looked up, as in Kafka's handleOffsetCommitRequest."""
    now_ms = node.runtime.clock.time_ms()
    retention_ms = get(request, "retention_time", DEFAULT_RETENTION)
    commit = RequestedOffsets(
        by_id=ctx.version >= _TOPIC_IDS_SINCE,
        max_metadata=node.config.get_int("offset.metadata.max.bytes"),
        now_ms=now_ms,
        expire_ms=now_ms + retention_ms if retention_ms != DEFAULT_RETENTION else -1,
    )
    yield from commit.read(node.image, request.topics)
    batch = yield from commit.batch(lambda: node.image, request.group_id, node.runtime.clock.time_ms())
    if not commit.existing:
        return {"topics": commit.topics}
    try:
        shard = node.groups.shard_for_offsets(request.group_id)
        group = _committing_group(node, ctx, request, shard)
    except KafkaError as error:
        commit.refuse(error.code)
        return {"topics": commit.topics}

    @ctx.answering
    def committed(error: ErrorCode) -> None:
        commit.refuse(error)
        ctx.respond_fields(topics=commit.topics)

    shard.commit(group, commit.offsets, committed, batch)
    return None


def _committing_group(node: CommitNeeds, ctx: RequestContext, request: OffsetCommitRequest, shard: Shard) -> Group:
    generation = request.generation_id_or_member_epoch
    knows = ctx.version >= _GROUP_NOT_FOUND_SINCE
    group = group_of_commit(shard, request.group_id, generation, knows_not_found=knows)
    refusal = commit_refusal(
        group,
        member_id=request.member_id,
        instance_id=get(request, "group_instance_id", None),
        generation=generation,
        now_ms=node.runtime.clock.time_ms(),
    )
    if refusal is not None:
        raise KafkaError(refusal)
    return group
