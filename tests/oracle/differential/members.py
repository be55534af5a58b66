"""Requests of group members, sent to both sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from milena.protocol.api_keys import ApiKey
from tests.oracle.differential.pair import Answers, Pair
from tests.oracle.differential.sides import Name

RANGE: Final = [{"name": "range", "metadata": b"\0\1\0\0\0\0\xff\xff\xff\xff"}]
NEW: Final = {"member_id": "", "group_instance_id": None}


def offsets_of(partitions: Iterable[tuple[int, int]], metadata: str | None) -> list[dict[str, Any]]:
    """Partitions with their offsets, as OffsetCommit and TxnOffsetCommit have them."""
    return [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": 4,
            "committed_metadata": metadata,
        }
        for index, offset in partitions
    ]


def join(pair: Pair, version: int, group: str, **fields: Any) -> Answers:
    pair.send(ApiKey.JOIN_GROUP, version, **joining(group, **fields))
    return pair.receive(ApiKey.JOIN_GROUP, version).check(f"JoinGroup v{version} {fields}")


def joining(group: str, **fields: Any) -> dict[str, Any]:
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer",
        "protocols": RANGE, "reason": None, **NEW, **fields,
    }  # fmt: skip


def sync(pair: Pair, version: int, group: str, **fields: Any) -> Answers:
    asked: dict[str, Any] = {
        "group_id": group, "generation_id": 1, "protocol_type": "consumer", "protocol_name": "range", "assignments": [],
        **NEW, **fields,
    }  # fmt: skip
    return pair.same(ApiKey.SYNC_GROUP, version, **asked)


def heartbeat(pair: Pair, version: int, group: str, **fields: Any) -> Answers:
    asked: dict[str, Any] = {"group_id": group, "generation_id": 1, **NEW, **fields}
    return pair.same(ApiKey.HEARTBEAT, version, **asked)


def member_of(answers: Answers, name: str = "member") -> Name:
    return answers.learn(name, lambda answer: answer["member_id"])


def enter(pair: Pair, group: str, name: str = "member", version: int = 9, **fields: Any) -> Name:
    """Join as the only member, with a second request if the first returns MEMBER_ID_REQUIRED."""
    first = join(pair, version, group, **fields)
    member = member_of(first, name)
    if version < 4 or fields.get("group_instance_id"):
        return member
    assert {answer["error_code"] for answer in first.both} == {79}
    second = join(pair, version, group, **{**fields, "member_id": member})
    return member_of(second, name)


def settle(pair: Pair, group: str, member: Name, generation: int = 1) -> None:
    """Complete the rebalance: the only member sends its assignment with SyncGroup."""
    share = [{"member_id": member, "assignment": b"mine"}]
    sync(pair, 5, group, member_id=member, generation_id=generation, assignments=share)
