"""A rule that refuses one partition, and the answer for the others."""

from __future__ import annotations

from milena.node.rules.rule_partitions import merged
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages


def topic(*partitions: tuple[int, int]) -> dict[str, object]:
    return {"name": "t", "partitions": [{"partition_index": index, "error_code": code} for index, code in partitions]}


def test_all_partitions_of_a_topic_that_stands_twice_are_answered() -> None:
    refused = int(ErrorCode.NOT_COORDINATOR)
    answer = messages.build_response(ApiKey.OFFSET_COMMIT, 9, topics=[topic((0, 0)), topic((1, 0))])
    errors = messages.build_response(ApiKey.OFFSET_COMMIT, 9, topics=[topic((2, refused))])
    (merged_topic,) = merged(ApiKey.OFFSET_COMMIT, answer, errors).topics
    assert [(one.partition_index, int(one.error_code)) for one in merged_topic.partitions] == [
        (0, 0),
        (1, 0),
        (2, refused),
    ]
