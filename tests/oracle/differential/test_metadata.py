"""ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster, DescribeQuorum, ListConfigResources."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from protocol.api_keys import ApiKey
from tests.oracle.differential.pair import Pair, versions

NO_TOPIC_ID = UUID(int=0)
UNKNOWN_ID = UUID(int=77)
SOFTWARE = {"client_software_name": "differ", "client_software_version": "1.0"}


def named(*names: str | None) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": NO_TOPIC_ID} for name in names]


@pytest.mark.parametrize("version", [*versions(ApiKey.API_VERSIONS), 5, 99])
def test_api_versions(pair: Pair, version: int) -> None:
    if version > 4:
        pair.send_raw(ApiKey.API_VERSIONS, version, b"")
        answers = pair.receive(ApiKey.API_VERSIONS, 0)
    else:
        answers = pair.ask(ApiKey.API_VERSIONS, version, **SOFTWARE)
    ranges = [{one["api_key"]: one for one in answer["api_keys"]} for answer in answers.both]
    assert all(ranges[0][key] == one for key, one in ranges[1].items())
    answers.check("ApiVersions", ignore={"api_keys", "finalized_features_epoch"})


@pytest.mark.parametrize("name", ["", " ", "-x", "x-", "a_b", "x" * 300, "ä"])
def test_client_software_name(pair: Pair, name: str) -> None:
    for version in (3, 4):
        answers = pair.ask(ApiKey.API_VERSIONS, version, client_software_name=name, client_software_version="1.0")
        answers.check("ApiVersions", ignore={"api_keys", "finalized_features_epoch"})
        answers = pair.ask(ApiKey.API_VERSIONS, version, client_software_name="x", client_software_version=name)
        answers.check("ApiVersions", ignore={"api_keys", "finalized_features_epoch"})


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
class TestMetadata:
    def test_topics_by_name(self, pair: Pair, topic: str, version: int) -> None:
        pair.create(topic, partitions=3)
        for names in ([topic], [topic, "nowhere"], ["nowhere", topic, topic], ["", ".", "..", "a b", "x" * 250, topic]):
            pair.same(ApiKey.METADATA, version, topics=named(*names), allow_auto_topic_creation=version < 4)
        asked: dict[str, Any] = {
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }
        pair.same(ApiKey.METADATA, version, topics=named(topic), allow_auto_topic_creation=False, **asked)

    def test_no_topics(self, pair: Pair, version: int) -> None:
        pair.same(ApiKey.METADATA, version, topics=[] if version else named("__consumer_offsets"))

    def test_all_topics(self, pair: Pair, topic: str, version: int) -> None:
        pair.create(topic)
        answers = pair.ask(ApiKey.METADATA, version, topics=None if version else [], allow_auto_topic_creation=False)
        for answer in answers.both:
            answer["topics"] = [one for one in answer["topics"] if one["name"] in (topic, "__consumer_offsets")]
        answers.check("Metadata of all topics")

    def test_topic_ids(self, pair: Pair, topic: str, version: int) -> None:
        topic_id = pair.create(topic)
        if version < 10:
            return
        for asked in (
            [{"name": None, "topic_id": topic_id}],
            [{"name": topic, "topic_id": topic_id}],
            [{"name": "other", "topic_id": topic_id}],
            [{"name": None, "topic_id": UNKNOWN_ID}],
            [{"name": None, "topic_id": NO_TOPIC_ID}],
            [{"name": topic, "topic_id": NO_TOPIC_ID}, {"name": None, "topic_id": topic_id}],
            [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": UNKNOWN_ID}],
            [{"name": "", "topic_id": topic_id}],
        ):
            pair.same(ApiKey.METADATA, version, topics=asked, allow_auto_topic_creation=False)
