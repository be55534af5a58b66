"""Metadata, DescribeTopicPartitions, DescribeCluster, ListConfigResources."""

from __future__ import annotations

from typing import Any

import pytest

from milena.broker.apis import describe_cluster, describe_topic_partitions, list_config_resources, metadata
from milena.broker.metadata.metadata_view import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import ELEMENTS_PER_YIELD, run_now
from milena.protocol.errors import ErrorCode, KafkaError
from milena.protocol.requests import messages
from milena.protocol.types import ZERO_UUID
from tests.unit.broker.fixtures import ME, OTHER, Bench, Request, led_by


def ask(bench: Bench, version: int, listener: str = "PLAINTEXT", **fields: Any) -> Any:
    request = Request(ApiKey.METADATA, version, listener=listener)
    bench.serve(request, metadata.handle, messages.encode_request(ApiKey.METADATA, version, **fields))
    return request.response


def names(*topics: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in topics]


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version_lists_all_topics(self, bench: Bench, version: int) -> None:
        bench.topic("b", led_by(ME))
        bench.topic("a", led_by(OTHER), led_by(ME))
        answer = ask(bench, version, topics=[] if version == 0 else None)
        assert [topic.name for topic in answer.topics] == ["a", "b"]
        assert [partition.leader_id for partition in answer.topics[0].partitions] == [OTHER, ME]
        assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
            (ME, "plaintext-1", 9092),
            (OTHER, "plaintext-2", 9092),
        ]
        assert messages.get(answer, "controller_id", ME) in (ME, OTHER)

    def test_an_empty_list_of_topics_returns_no_topics(self, bench: Bench) -> None:
        bench.topic("a", led_by(ME))
        assert ask(bench, 1, topics=[]).topics == ()

    def test_the_listener_of_the_request_decides_the_endpoints(self, bench: Bench) -> None:
        bench.broker(ME, listeners=("PLAINTEXT", "INTERNAL"))
        answer = ask(bench, 9, listener="INTERNAL", topics=None)
        assert [(broker.node_id, broker.host) for broker in answer.brokers] == [(ME, "internal-1")]

    def test_fenced_brokers_are_not_shown_and_their_replicas_are_offline(self, bench: Bench) -> None:
        bench.broker(OTHER, fenced=True)
        bench.topic("t", led_by(ME, replicas=(1, 2)))
        answer = ask(bench, 9, topics=names("t"))
        assert [broker.node_id for broker in answer.brokers] == [ME]
        assert answer.topics[0].partitions[0].offline_replicas == (OTHER,)

    def test_a_partition_without_a_leader_has_an_error(self, bench: Bench) -> None:
        bench.topic("t", led_by(-1, replicas=(1, 2)))
        (partition,) = ask(bench, 9, topics=names("t")).topics[0].partitions
        assert (int(partition.error_code), partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)

    def test_a_leader_without_this_listener_has_its_own_error_from_v6_on(self, bench: Bench) -> None:
        bench.broker(OTHER, listeners=("INTERNAL",))
        bench.topic("t", led_by(OTHER))
        codes = [int(ask(bench, version, topics=names("t")).topics[0].partitions[0].error_code) for version in (5, 6)]
        assert codes == [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LISTENER_NOT_FOUND]

    def test_an_unknown_topic_is_created_if_the_client_allows_it(self, bench: Bench) -> None:
        answer = ask(bench, 9, topics=names("new", "in valid"), allow_auto_topic_creation=True)
        assert {topic.name: int(topic.error_code) for topic in answer.topics} == {
            "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "in valid": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert bench.created == ["new"]
        ask(bench, 9, topics=names("other"), allow_auto_topic_creation=False)
        assert bench.created == ["new"]

    def test_topics_are_found_by_id_from_v12_on(self, bench: Bench) -> None:
        topic = bench.topic("t", led_by(ME))
        unknown = bench.topic("gone", led_by(ME))
        del bench.image.topics_by_id[unknown.id]
        asked = [{"name": None, "topic_id": topic.id}, {"name": None, "topic_id": unknown.id}]
        found, lost = ask(bench, 12, topics=asked).topics
        assert (found.name, found.topic_id) == ("t", topic.id)
        assert (lost.name, lost.topic_id, int(lost.error_code)) == (None, unknown.id, ErrorCode.UNKNOWN_TOPIC_ID)

    def test_names_are_ignored_in_a_request_with_ids(self, bench: Bench) -> None:
        topic = bench.topic("t", led_by(ME))
        bench.topic("u", led_by(ME))
        asked = [{"name": "u", "topic_id": ZERO_UUID}, {"name": None, "topic_id": topic.id}]
        assert [found.name for found in ask(bench, 12, topics=asked).topics] == ["t"]

    def test_a_malformed_request_returns_only_its_topics(self, bench: Bench) -> None:
        topic = bench.topic("t", led_by(ME))
        for name in ("t", None):
            refused = ask(bench, 11, topics=[{"name": name, "topic_id": topic.id}])
            assert (refused.brokers, refused.cluster_id, refused.controller_id) == ((), None, -1)
            assert [(t.name, int(t.error_code)) for t in refused.topics] == [(name or "", ErrorCode.INVALID_REQUEST)]

    def test_authorized_operations_are_returned_if_requested(self, bench: Bench) -> None:
        bench.topic("t", led_by(ME))
        asked: dict[str, Any] = {f"include_{kind}_authorized_operations": True for kind in ("cluster", "topic")}
        answer = ask(bench, 8, topics=names("t"), **asked)
        assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
        assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS == 3576
        assert ask(bench, 8, topics=names("t")).topics[0].topic_authorized_operations == NOT_REQUESTED

    def test_a_response_is_cached_until_the_metadata_change(self, bench: Bench) -> None:
        bench.topic("t", led_by(ME))
        first = ask(bench, 9, topics=None)
        bench.topic("u", led_by(ME))
        assert ask(bench, 9, topics=None) == first
        bench.metadata_answers.clear()
        assert len(ask(bench, 9, topics=None).topics) == 2

    def test_a_response_is_not_cached_if_the_metadata_changed_at_a_yield(self, bench: Bench) -> None:
        for number in range(3):
            bench.topic(f"t{number}", *[led_by(ME)] * ELEMENTS_PER_YIELD)
        node: Any = bench
        body = bytes(messages.encode_request(ApiKey.METADATA, 9, topics=None))
        work = metadata.handle(node, Request(ApiKey.METADATA, 9).ctx, memoryview(body))
        assert work is not None
        next(work)
        del bench.image.topics["t2"]
        bench.metadata_answers.clear()
        run_now(work)
        assert bench.metadata_answers.get((9, "PLAINTEXT", body)) is None

    def test_a_response_with_a_topic_in_creation_is_not_cached(self, bench: Bench) -> None:
        ask(bench, 9, topics=names("new"))
        bench.topic("new", led_by(ME))
        assert int(ask(bench, 9, topics=names("new")).topics[0].error_code) == 0


class TestDescribeTopicPartitions:
    def ask(self, bench: Bench, **fields: Any) -> Any:
        return bench.ask(describe_topic_partitions.handle, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, **fields)

    def test_it_pages_by_partitions_over_topics(self, bench: Bench) -> None:
        bench.topic("a", *[led_by(ME)] * 3)
        bench.topic("b", *[led_by(ME)] * 3)
        pages, cursor = [], None
        while True:
            answer = self.ask(bench, topics=[], response_partition_limit=2, cursor=cursor)
            pages.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
            if answer.next_cursor is None:
                break
            next_cursor = answer.next_cursor
            cursor = {"topic_name": next_cursor.topic_name, "partition_index": next_cursor.partition_index}
        assert pages == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1, 2])]]

    def test_unknown_topics_are_reported_and_a_negative_cursor_is_refused(self, bench: Bench) -> None:
        bench.topic("a", led_by(ME))
        answer = self.ask(bench, topics=names("none", "a"), response_partition_limit=10)
        assert [(t.name, int(t.error_code)) for t in answer.topics] == [
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("a", 0),
        ]
        with pytest.raises(KafkaError):
            self.ask(bench, topics=[], response_partition_limit=1, cursor={"topic_name": "a", "partition_index": -1})

    def test_the_topic_of_the_cursor_is_among_those_that_are_named(self, bench: Bench) -> None:
        bench.topic("b", led_by(ME))
        cursor = {"topic_name": "a", "partition_index": 0}
        assert [t.name for t in self.ask(bench, topics=[], response_partition_limit=1, cursor=cursor).topics] == ["b"]
        with pytest.raises(KafkaError):
            self.ask(bench, topics=names("b"), response_partition_limit=1, cursor=cursor)


class TestDescribeCluster:
    def test_fenced_brokers_are_returned_only_if_requested(self, bench: Bench) -> None:
        bench.broker(OTHER, fenced=True)
        plain = bench.ask(describe_cluster.handle, ApiKey.DESCRIBE_CLUSTER, 2)
        assert [(one.broker_id, one.is_fenced) for one in plain.brokers] == [(ME, False)]
        asked = bench.ask(describe_cluster.handle, ApiKey.DESCRIBE_CLUSTER, 2, include_fenced_brokers=True)
        assert [(one.broker_id, one.is_fenced) for one in asked.brokers] == [(ME, False), (OTHER, True)]
        assert (plain.cluster_id, plain.controller_id) == ("test-cluster", ME)

    @pytest.mark.parametrize(
        ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
    )
    def test_other_endpoint_types_are_refused(self, bench: Bench, kind: int, code: ErrorCode) -> None:
        with pytest.raises(KafkaError) as error:
            bench.ask(describe_cluster.handle, ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=kind)
        assert error.value.code is code


def test_config_resources_are_listed_by_type(bench: Bench) -> None:
    bench.topic("t", led_by(ME))
    bench.image.configs[16, "metrics"] = {"interval.ms": "1"}

    def ask(version: int, **fields: Any) -> list[tuple[int, str]]:
        answer = bench.ask(list_config_resources.handle, ApiKey.LIST_CONFIG_RESOURCES, version, **fields)
        return [(messages.get(one, "resource_type", 16), one.resource_name) for one in answer.config_resources]

    assert ask(0) == [(16, "metrics")]
    assert ask(1, resource_types=[2, 4]) == [(2, "t"), (4, "1"), (4, "2")]
    assert ask(1, resource_types=[]) == [(16, "metrics"), (8, "1"), (8, "2"), (4, "1"), (4, "2"), (2, "t")]
    with pytest.raises(KafkaError) as error:
        ask(1, resource_types=[3])
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION
