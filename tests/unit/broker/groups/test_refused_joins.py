"""JoinGroup errors before the group is looked up."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from milena.broker.apis import join_group
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode, KafkaError
from tests.unit.broker.fixtures import Bench


class Groups:
    """A coordinator without groups."""

    settings = SimpleNamespace(min_session_ms=6000, max_session_ms=60_000)

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def shard(self, group_id: str) -> None:
        raise KafkaError(self._code)


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize(
    ("group", "session_ms", "code", "member"),
    [
        ("g", 10_000, ErrorCode.NOT_COORDINATOR, ""),
        ("g", 10_000, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ""),
        ("g", 1, ErrorCode.INVALID_SESSION_TIMEOUT, "me"),
        ("", 1, ErrorCode.INVALID_GROUP_ID, "me"),
    ],
)
def test_errors_before_the_group_is_found_have_kafkas_member_id(
    bench: Bench, version: int, group: str, session_ms: int, code: ErrorCode, member: str
) -> None:
    bench.groups = Groups(ErrorCode.NOT_COORDINATOR if member else code)  # type: ignore[attr-defined]
    asked = {
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": 1,
        "member_id": "me",
        "protocol_type": "consumer",
    }
    answer = bench.ask(join_group.handle, ApiKey.JOIN_GROUP, version, group_id=group, protocols=[], **asked)
    assert (answer.error_code, answer.member_id) == (code, member)
