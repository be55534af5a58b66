"""Known differences: a predicate for each, with text from its row in docs/compatibility.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.records.batch import iter_batches
from milena.protocol.records.records import iter_records
from tests.oracle.differential.sequences.script import Batch, Script, Step
from tests.oracle.differential.sides import CLOSED, SILENT, Name


@dataclass(frozen=True)
class Found:
    """One place where the responses to a step differ, and the steps before."""

    step: Step
    kafka: Any
    milena: Any
    line: str
    before: Script

    @property
    def key(self) -> ApiKey:
        return self.step.key

    def codes(self, kafka: int, milena: int) -> bool:
        """Whether it is an error code, with these values."""
        return self.line.endswith(f"error_code: Kafka {int(kafka)}, Milena {int(milena)}")

    def states(self) -> list[tuple[str, str]]:
        """The states of the groups that were described."""
        ours = {one["group_id"]: one["group_state"] for one in self.milena["groups"]}
        return [(one["group_state"], ours[one["group_id"]]) for one in self.kafka["groups"]]


@dataclass(frozen=True)
class Known:
    """``row`` is text of docs/compatibility.md. The script ends at this difference, because the sides may be in
    different states afterwards, unless ``goes_on`` is set."""

    name: str
    covers: Callable[[Found], bool]
    row: str
    goes_on: bool = False


def _batches(step: Step) -> list[Batch]:
    """Return the batches of a Produce request."""
    topics = step.fields.get("topic_data", ())
    found = [one["records"] for topic in topics for one in topic["partition_data"]]
    return [one for one in found if isinstance(one, Batch)]


def _a_forgotten_group(found: Found) -> bool:
    if found.key is ApiKey.DESCRIBE_GROUPS:
        return ("Empty", "Dead") in found.states()
    if found.key is ApiKey.LIST_GROUPS:
        ours = {one["group_id"] for one in found.milena["groups"]}
        return all(
            one.get("group_state", "Empty") == "Empty" or one["group_id"] in ours for one in found.kafka["groups"]
        )
    if found.key is ApiKey.OFFSET_COMMIT and "error_code: Kafka 25, Milena" in found.line:
        return found.codes(25, ErrorCode.ILLEGAL_GENERATION) or found.codes(25, ErrorCode.GROUP_ID_NOT_FOUND)
    return found.key in _OF_EMPTY_GROUPS and any(found.codes(code, ErrorCode.GROUP_ID_NOT_FOUND) for code in (0, 16))


_OF_EMPTY_GROUPS: Final = frozenset({ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE})


def _the_same_times(found: Found) -> bool:
    """Base timestamp and deltas differ, but their sums are equal."""
    if found.key is not ApiKey.FETCH or ".records[" not in found.line:
        return False
    return _times(found.kafka) == _times(found.milena)


def _times(answer: Any) -> list[list[int]]:
    return [
        [
            batch.base_timestamp + record.timestamp_delta
            for batch in iter_batches(part["records"])
            for record in iter_records(batch)
        ]
        for topic in answer["responses"]
        for part in topic["partitions"]
        if part["records"]
    ]


def _odd_in_recompressed(found: Found) -> bool:
    """A timestamp below -1, or a producer without an epoch, in a batch that the broker recompresses: Kafka fails."""
    odd = [
        one
        for one in _batches(found.step)
        if min((0, *one.deltas)) + one.timestamp < -1 or (one.producer != -1 and one.epoch == -1)
    ]
    if odd and found.kafka == CLOSED:
        return bool(found.step.fields["acks"] == 0)
    return bool(odd) and ("error_code: Kafka -1, Milena" in found.line or "base_offset" in found.line)


def _claimed_append_time(found: Found) -> bool:
    """A client's batch with the attribute LogAppendTime, whose records the broker writes again."""
    claims = any(one.append_time for step in found.before for one in _batches(step))
    return claims and found.key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS)


def _order_in_a_session(found: Found) -> bool:
    """The partition of a session that is served if a limit is not enough for all."""
    if found.key is not ApiKey.FETCH or found.step.fields["session_epoch"] <= 0:
        return False
    return any(_is_limited(step) for step in (*found.before, found.step) if step.key is ApiKey.FETCH)


def _is_limited(step: Step) -> bool:
    limits = [part["partition_max_bytes"] for topic in step.fields["topics"] for part in topic["partitions"]]
    return bool(min([step.fields["max_bytes"], *limits]) < _ENOUGH)


_ENOUGH: Final = 1 << 20


def _sizes_of_the_library(found: Found) -> bool:
    """The number of batches within a size limit, if each side has compressed them itself."""
    again = any("compression.type" in repr(step.fields) for step in found.before)
    return again and found.key is ApiKey.FETCH and _is_limited(found.step) and ".records" in found.line


def _group_of_refused_offsets(found: Found) -> bool:
    """A group that was created by an OffsetCommit whose offsets were all refused."""
    refused = any(step.key is ApiKey.OFFSET_COMMIT and "Long(" in repr(step.fields) for step in found.before)
    if not refused or found.key not in (ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS):
        return False
    return found.key is ApiKey.LIST_GROUPS or any(theirs == "Dead" != ours for theirs, ours in found.states())


def _leader_after_the_leader(found: Found) -> bool:
    """The new group leader after the leader has left: in Kafka the first member in a hash map."""
    left = any(step.key in (ApiKey.LEAVE_GROUP, ApiKey.JOIN_GROUP) for step in found.before)
    return found.key is ApiKey.JOIN_GROUP and left and found.line.startswith((".leader:", ".members: "))


def _sync_of_one_who_left(found: Found) -> bool:
    """A SyncGroup that waits while its member is removed: Kafka never answers it."""
    left = any(step.key is ApiKey.LEAVE_GROUP for step in found.before)
    return found.key is ApiKey.SYNC_GROUP and found.kafka == SILENT and left


def _pending_left(found: Found) -> bool:
    """A pending member, which only got its id, has left: Kafka begins a rebalance then."""
    pending: set[Any] = set()
    for step in found.before:
        if step.key is ApiKey.JOIN_GROUP:
            pending.discard(step.fields["member_id"])
            pending |= {Name(step.learns)} if step.learns else set()
        named = [one["member_id"] for one in step.fields.get("members", ())] or [step.fields.get("member_id")]
        if step.key is ApiKey.LEAVE_GROUP and pending & {one for one in named if isinstance(one, Name)}:
            return found.key in _OF_GROUPS
    return False


_OF_GROUPS: Final = frozenset({
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_COMMIT,
    ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS,
})  # fmt: skip


def _news_in_a_session(found: Found) -> bool:
    """Partitions in the request for which only the leader epoch is new."""
    if found.key is not ApiKey.FETCH or found.step.fields["session_epoch"] <= 0 or not isinstance(found.milena, dict):
        return False
    more = set(_partitions(found.milena)) - set(_partitions(found.kafka))
    named = {part["partition"] for topic in found.step.fields["topics"] for part in topic["partitions"]}
    return bool(more) and {partition for _, partition in more} <= named


def _partitions(answer: Any) -> list[tuple[str, int]]:
    return [
        (str(topic.get("topic", topic.get("topic_id"))), part["partition_index"])
        for topic in answer["responses"]
        for part in topic["partitions"]
    ]


def _damage_of_one(found: Found) -> bool:
    """Kafka reads the first batch of each partition before anything else. If one is unreadable, all partitions fail."""
    if any(_damaged(step) and step.fields["acks"] == 0 and len(_batches(step)) > 1 for step in found.before):
        return found.key in _OF_LOGS
    damaged = _damaged(found.step)
    return damaged and found.key is ApiKey.PRODUCE and "error_code: Kafka 2, Milena" in found.line


def _damaged(step: Step) -> bool:
    return any(one.changed or one.cut for one in _batches(step))


_OF_LOGS: Final = frozenset({
    ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_PRODUCERS, ApiKey.PRODUCE,
    ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_LOG_DIRS,
})  # fmt: skip


def _pending_and_static(found: Found) -> bool:
    """A JoinGroup with an instance id, and with a member id that was assigned to a dynamic member."""
    fields = found.step.fields
    if found.key is ApiKey.JOIN_GROUP and fields["member_id"] != "" and fields["group_instance_id"] is not None:
        return bool(found.kafka["error_code"] == ErrorCode.UNKNOWN_SERVER_ERROR)
    return False


def _no_room(found: Found) -> bool:
    """A member that a full group has refused. The others need not wait for it; Kafka's wait until the next event."""
    if sum(step.key is ApiKey.JOIN_GROUP for step in found.before) < _FULL:
        return False
    if found.key is ApiKey.DESCRIBE_GROUPS:
        return any(theirs == "PreparingRebalance" != ours for theirs, ours in found.states())
    return found.key in _OF_GROUPS and (
        found.kafka == SILENT or found.codes(ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    )


_FULL: Final = 4
"""Number of joins that fill a group; ``group.max.size`` is 3."""


def _listed_twice(found: Found) -> bool:
    """A protocol that a JoinGroup lists twice: Kafka never answers it, and the group is blocked."""
    joins = [step.fields for step in (*found.before, found.step) if step.key is ApiKey.JOIN_GROUP]
    twice = [one for one in joins if len({name["name"] for name in one["protocols"]}) < len(one["protocols"])]
    return bool(twice) and found.key in _OF_GROUPS


def _wrong_records(found: Found) -> bool:
    """Invalid records for which Kafka has no error code."""
    wrong = any(one.codec and (one.body is not None or one.changed) for one in _batches(found.step))
    return (
        wrong and found.key is ApiKey.PRODUCE and found.codes(ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD)
    )


def _cursor_beyond_all(found: Found) -> bool:
    """Kafka's next cursor is the sum of this index and the limit, which overflows 32 bits."""
    if found.key is not ApiKey.DESCRIBE_TOPIC_PARTITIONS or found.step.fields["cursor"] is None:
        return False
    index = found.step.fields["cursor"]["partition_index"]
    return bool(index > _BEYOND) and found.line.startswith((".next_cursor", ".topics: "))


def _verified_before(found: Found) -> bool:
    """A batch of a producer after a verification in which the coordinator did not know this producer."""
    if found.key is not ApiKey.PRODUCE or not found.codes(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE):
        return False
    known = {
        (step.fields["transactional_id"], step.learns)
        for step in found.before
        if step.key is ApiKey.INIT_PRODUCER_ID
        and 0 < step.fields["transaction_timeout_ms"] <= _LONGEST_MS
        and (step.fields.get("producer_id", -1) == -1) == (step.fields.get("producer_epoch", -1) == -1)
    }  # what is refused gives no producer
    producers = {_producer_of(one, known) for one in _batches(found.step)}
    return any(
        one.transactional
        and _producer_of(one, known) in producers
        and (step.fields["transactional_id"], _producer_of(one, known)) not in known
        for step in found.before
        for one in _batches(step)
    )


_LONGEST_MS: Final = 900_000
"""``transaction.max.timeout.ms``."""


def _producer_of(batch: Batch, known: set[tuple[str, str]]) -> str:
    """Return the name of a batch's producer; all unknown ones have the same id."""
    name = batch.producer.of if isinstance(batch.producer, Name) else str(batch.producer)
    return name if name in {learnt for _, learnt in known} else "unknown"


def _markers_so_far(found: Found) -> bool:
    """The partitions of a transaction that ends, some of which have the marker already."""
    if found.key is not ApiKey.DESCRIBE_TRANSACTIONS or ".topics" not in found.line:
        return False
    return any(one["transaction_state"].startswith("Prepare") for one in found.kafka["transaction_states"])


_BEYOND: Final = (1 << 31) - 1 - 2_000
"""The largest index without overflow: 2**31 minus the largest number of partitions in one response."""

KNOWN: Final[Sequence[Known]] = (
    Known("a forgotten group", _a_forgotten_group, "A group that never had a member or an offset becomes Dead"),
    Known("base of recompressed times", _the_same_times, "keeps its base timestamp", goes_on=True),
    Known("odd recompressed batches", _odd_in_recompressed, "timestamp below -1"),
    Known("claimed append time", _claimed_append_time, "claims LogAppendTime"),
    Known("order in a session", _order_in_a_session, "moves to the end of the session's order"),
    Known("compressed sizes", _sizes_of_the_library, "If the broker compresses records itself"),
    Known("news in a session", _news_in_a_session, "changes only the leader epoch"),
    Known("damage of one batch", _damage_of_one, "fails only its own partition"),
    Known(
        "a group of refused offsets",
        _group_of_refused_offsets,
        "A group that a refused OffsetCommit has created",
    ),
    Known("the next leader", _leader_after_the_leader, "After the leader of a group has left"),
    Known("a sync of one who left", _sync_of_one_who_left, "The SyncGroup of a member that leaves"),
    Known("a pending member left", _pending_left, "A member that leaves before it has joined"),
    Known("pending and static", _pending_and_static, "A member that has just been given its id"),
    Known("no room", _no_room, "A member that a full group refuses"),
    Known("a protocol twice", _listed_twice, "A JoinGroup that lists a protocol twice"),
    Known("wrong records", _wrong_records, "Invalid records in a batch are INVALID_RECORD", goes_on=True),
    Known("an unknown producer", _verified_before, "a coordinator that does not know the producer"),
    Known("markers so far", _markers_so_far, "while its markers are written", goes_on=True),
    Known("a cursor beyond all", _cursor_beyond_all, "A cursor of DescribeTopicPartitions", goes_on=True),
)
