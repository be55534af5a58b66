"""ApiVersions, Metadata, DescribeTopicPartitions, DescribeCluster, DescribeQuorum, ListConfigResources."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from tests.oracle.differential.pair import Pair, versions
from tests.oracle.differential.sides import Line

NO_TOPIC_ID = UUID(int=0)
UNKNOWN_ID = UUID(int=77)
CHANGING = {"api_keys", "supported_features", "finalized_features_epoch"}
SOFTWARE = {"client_software_name": "differ", "client_software_version": "1.0"}


def named(*names: str | None) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": NO_TOPIC_ID} for name in names]


@pytest.mark.parametrize("version", [*versions(ApiKey.API_VERSIONS), 6, 99])
def test_api_versions(pair: Pair, version: int) -> None:
    """The responses are equal except for features that Milena does not support, which it does not list."""
    if version > 5:
        pair.send_raw(ApiKey.API_VERSIONS, version, b"")
        answers = pair.receive(ApiKey.API_VERSIONS, 0)
    else:
        answers = pair.ask(ApiKey.API_VERSIONS, version, **SOFTWARE)
    ranges = [{one["api_key"]: one for one in answer["api_keys"]} for answer in answers.both]
    assert all(ranges[0][key] == one for key, one in ranges[1].items())
    features = [{one["name"]: one for one in answer.get("supported_features", [])} for answer in answers.both]
    assert all(features[0][name] == one for name, one in features[1].items())
    answers.check("ApiVersions", CHANGING)


@pytest.mark.parametrize(
    ("intended", "code"),
    [
        ({"cluster_id": "another", "node_id": 1}, ErrorCode.REBOOTSTRAP_REQUIRED),
        ({"cluster_id": "", "node_id": 1}, ErrorCode.REBOOTSTRAP_REQUIRED),
        ({"cluster_id": "another"}, ErrorCode.INVALID_REQUEST),
        ({"node_id": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_clients_that_mean_another_cluster(pair: Pair, intended: dict[str, Any], code: ErrorCode) -> None:
    answers = pair.ask(ApiKey.API_VERSIONS, 5, **SOFTWARE, **intended)
    assert [answer["error_code"] for answer in answers.both] == [code, code]


@pytest.mark.parametrize("node", ["own", 0, -1, -2, 2**31 - 1])
@pytest.mark.parametrize("cluster", ["own", "another", None])
def test_clients_that_name_a_cluster_and_a_node(pair: Pair, cluster: str | None, node: int | str) -> None:
    found = []
    for side in pair.sides:
        line = Line(side)
        intended = {
            "cluster_id": side.cluster_id if cluster == "own" else cluster,
            "node_id": side.node_id if node == "own" else node,
        }
        line.send(ApiKey.API_VERSIONS, 5, messages.encode_request(ApiKey.API_VERSIONS, 5, **SOFTWARE, **intended))
        found.append(line.receive(ApiKey.API_VERSIONS, 5)["error_code"])
        line.close()
    assert found[0] == found[1]
    assert (found[0] == ErrorCode.NONE) == ((cluster, node) in (("own", "own"), (None, -1)))


def test_api_versions_that_are_cut_or_longer(pair: Pair) -> None:
    whole = messages.encode_request(ApiKey.API_VERSIONS, 5, **SOFTWARE, cluster_id="c", node_id=1)
    damaged = [whole[:size] for size in range(len(whole))] + [
        whole + b"\0",
        whole[:-1] + b"\1\0\2hi",
        whole[:-1] + b"\1",
    ]
    for body in damaged:
        pair.send_raw(ApiKey.API_VERSIONS, 5, body)
        pair.receive(ApiKey.API_VERSIONS, 5).check(f"ApiVersions v5 {body.hex()}", CHANGING)


def test_unregistering_controllers(pair: Pair) -> None:
    for controller in (77, 0, -1, 2**31 - 1):
        pair.same(ApiKey.UNREGISTER_CONTROLLER, 0, controller_id=controller)
    codes = []
    for side, own in zip(pair.sides, (1, 100), strict=True):
        line = Line(side)
        body = messages.encode_request(ApiKey.UNREGISTER_CONTROLLER, 0, controller_id=own)
        line.send(ApiKey.UNREGISTER_CONTROLLER, 0, body)
        answer = line.receive(ApiKey.UNREGISTER_CONTROLLER, 0)
        codes.append((answer["error_code"], answer["error_message"]))
        line.close()
    assert codes == [(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")] * 2
    for body in (b"", b"\0\0\0", b"\0\0\0\x4d", b"\0\0\0\x4d\0\0", b"\0\0\0\x4d\1\0\1x"):
        pair.send_raw(ApiKey.UNREGISTER_CONTROLLER, 0, body)
        pair.receive(ApiKey.UNREGISTER_CONTROLLER, 0).check(f"UnregisterController {body.hex()}")


@pytest.mark.parametrize("name", ["", " ", "-x", "x-", "a_b", "x" * 300, "ä"])
def test_client_software_name(pair: Pair, name: str) -> None:
    for version in (3, 4):
        answers = pair.ask(ApiKey.API_VERSIONS, version, client_software_name=name, client_software_version="1.0")
        answers.check("ApiVersions", CHANGING)
        answers = pair.ask(ApiKey.API_VERSIONS, version, client_software_name="x", client_software_version=name)
        answers.check("ApiVersions", CHANGING)


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
class TestMetadata:
    def test_topics_by_name(self, pair: Pair, topic: str, version: int) -> None:
        pair.create(topic, partitions=3)
        other = f"{topic}-other"
        for names in ([topic], [other, topic, topic], ["", ".", "..", "a b", "x" * 250, topic]):
            pair.same(ApiKey.METADATA, version, topics=named(*names), allow_auto_topic_creation=version < 4)
        asked: dict[str, Any] = {
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }
        for names in ([topic], [other], ["a b", topic, other]) if version >= 8 else ([topic],):
            pair.same(ApiKey.METADATA, version, topics=named(*names), allow_auto_topic_creation=version < 4, **asked)

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
        pair.create(f"{topic}-other")
        if version < 10:
            return
        for asked in (
            [{"name": None, "topic_id": topic_id}],
            [{"name": topic, "topic_id": topic_id}],
            [{"name": "other", "topic_id": topic_id}],
            [{"name": None, "topic_id": UNKNOWN_ID}],
            [{"name": topic, "topic_id": NO_TOPIC_ID}, {"name": None, "topic_id": topic_id}],
            [{"name": f"{topic}-other", "topic_id": NO_TOPIC_ID}, {"name": None, "topic_id": topic_id}],
            [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": UNKNOWN_ID}],
            [{"name": "", "topic_id": topic_id}],
        ):
            pair.same(ApiKey.METADATA, version, topics=asked, allow_auto_topic_creation=False)


def test_auto_creation(pair: Pair, topic: str) -> None:
    for version in (1, 4, 9, 12):
        name = f"{topic}-{version}"
        pair.same(ApiKey.METADATA, version, topics=named(name, "a b"), allow_auto_topic_creation=True)
        pair.until_led(name, 0, 1)
        pair.same(ApiKey.METADATA, version, topics=named(name), allow_auto_topic_creation=True)
    colliding = topic.replace("-", ".") + ".x"
    pair.create(colliding)
    pair.same(ApiKey.METADATA, 9, topics=named(colliding.replace(".", "_")), allow_auto_topic_creation=True)


def test_describe_topic_partitions(pair: Pair, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "cab"]
    for name in names:
        pair.create(name, partitions=3)

    def ask(*topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        start = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        wanted = [{"name": name} for name in topics]
        pair.same(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=wanted, response_partition_limit=limit, cursor=start)

    ask(*names)
    ask(names[0], "nowhere")
    ask("a b", names[0])
    ask(names[0], names[0])
    for limit in (1, 2, 3, 4, 5, 8, 9, 10, 0, -1):
        ask(*names, limit=limit)
        ask(*names, limit=limit, cursor=(names[1], 1))
    for cursor in ((names[2], 0), (names[2], 2), (names[2], 3), (names[2], 99), (names[1], -1), ("nowhere", 0)):
        ask(*names, cursor=cursor)
    ask(names[1], cursor=(names[0], 1))
    ask(names[1], names[0], cursor=(names[2], 1))
    ask("nowhere", cursor=("nowhere", 0))
    for limit in (1, 2, 3, 4):
        ask(f"{names[0]}-not", *names, limit=limit)
        ask(f"{names[0]}-not", *names, limit=limit, cursor=(f"{names[0]}-not", 1))
        ask("zzz", *names, limit=limit, cursor=(names[0], 2))
    ask("__consumer_offsets", cursor=("other", 0))
    ask("__consumer_offsets", cursor=("__consumer_offsets", -1))


def test_an_empty_topic_name_fails_in_kafka(pair: Pair) -> None:
    asked: dict[str, Any] = {"topics": [{"name": ""}], "response_partition_limit": 10, "cursor": None}
    answers = pair.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, **asked)
    codes = [answer["topics"][0]["error_code"] for answer in answers.both]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_TOPIC_EXCEPTION]
    nameless = [{"name": None, "topic_id": NO_TOPIC_ID}]
    answers = pair.ask(ApiKey.METADATA, 12, topics=nameless, allow_auto_topic_creation=False)
    codes = [answer["topics"][0]["error_code"] for answer in answers.both]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST]


def test_the_voters_are_static(pair: Pair) -> None:
    update = {"feature": "kraft.version", "max_version_level": 1, "upgrade_type": 1}
    answers = pair.ask(ApiKey.UPDATE_FEATURES, 2, timeout_ms=5000, feature_updates=[update], validate_only=True)
    assert [answer["error_code"] for answer in answers.both] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_describe_cluster(pair: Pair, version: int) -> None:
    for operations in (False, True):
        for kind in (1, 2, 0, 3):
            for fenced in (False, True):
                asked: dict[str, Any] = {
                    "include_cluster_authorized_operations": operations,
                    "include_fenced_brokers": fenced,
                }
                pair.same(ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=kind, **asked)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_QUORUM))
def test_describe_quorum(pair: Pair, version: int) -> None:
    moving = {"leader_id", "leader_epoch", "high_watermark", "replica_id", "log_end_offset", "node_id", "port"}
    moving |= {"replica_directory_id"}
    log = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    answers = pair.ask(ApiKey.DESCRIBE_QUORUM, version, topics=log)
    for answer in answers.both:
        for one in answer["topics"][0]["partitions"]:
            one["observers"] = []
    answers.check("DescribeQuorum", moving)
    for name, index in (("other", 0), ("__cluster_metadata", 1), ("", 0)):
        asked = [{"topic_name": name, "partitions": [{"partition_index": index}]}]
        pair.same(ApiKey.DESCRIBE_QUORUM, version, topics=asked)
    pair.same(ApiKey.DESCRIBE_QUORUM, version, topics=[])
    pair.same(ApiKey.DESCRIBE_QUORUM, version, topics=[*log, {"topic_name": "x", "partitions": []}])


@pytest.mark.parametrize("version", versions(ApiKey.LIST_CONFIG_RESOURCES))
def test_list_config_resources(pair: Pair, topic: str, version: int) -> None:
    pair.create(topic)
    for kinds in ([2], [4], [8], [16], [32], [2, 4], [1], [99], [16, 99], []):
        answers = pair.ask(ApiKey.LIST_CONFIG_RESOURCES, version, resource_types=kinds)
        for answer in answers.both:
            answer["config_resources"] = [
                one
                for one in answer["config_resources"]
                if one.get("resource_type") != 2 or one["resource_name"] == topic
            ]
        answers.check(f"ListConfigResources v{version} {kinds}")


@pytest.mark.parametrize("version", versions(ApiKey.UPDATE_FEATURES))
def test_update_features(pair: Pair, version: int) -> None:
    def ask(*updates: tuple[str, int, int]) -> None:
        wanted = [
            {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind > 1}
            for name, level, kind in updates
        ]
        pair.same(ApiKey.UPDATE_FEATURES, version, timeout_ms=5000, feature_updates=wanted, validate_only=True)

    if version:  # version 0 has no validate_only
        ask(("metadata.version", 30, 1))
        for level in range(30, 36):
            for kind in range(5):
                ask(("metadata.version", level, kind))
        ask(("metadata.version", 29, 1))
        ask(("metadata.version", 29, 2))
        ask(("metadata.version", 29, 3))
        ask(("metadata.version", 7, 2))
        ask(("metadata.version", 6, 3))
        ask(("eligible.leader.replicas.version", 1, 1))
        ask(("eligible.leader.replicas.version", 2, 1))
        ask(("eligible.leader.replicas.version", 0, 2))
        ask(("metadata.version", 30, 0))
        ask(("metadata.version", 30, 7))
        ask(("eligible.leader.replicas.version", 1, 1), ("metadata.version", 31, 1))
        ask(("eligible.leader.replicas.version", 1, 1), ("nothing.such", 1, 1))
    ask(("nothing.such", 1, 1))
    ask(("nothing.such", 0, 2))
    ask(("metadata.version", 0, 2))
    ask(("metadata.version", -1, 1))
    ask(("", 1, 1))
    ask()
