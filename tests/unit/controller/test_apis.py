"""The controller's APIs over the simulated wire."""

from __future__ import annotations

from socket import gethostname
from typing import Any

import pytest

from milena.controller.server import Controller
from milena.lab.world.world import World, simulate
from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.requests.headers import parse_response_header, request_header
from milena.protocol.schemas.api_versions import decode_api_versions_response
from milena.protocol.schemas.registry import Role, served
from milena.protocol.types import METADATA_TOPIC
from tests.unit.controller.cluster import CLUSTER_ID, directory
from tests.unit.controller.simulated import HOST, PORT, Site, config, scenario

ANONYMOUS = bytes.fromhex("000005557365720a414e4f4e594d4f55530000")
"""User:ANONYMOUS as Kafka serializes it (vector of docs/kafka-semantics.md: Test vectors)."""
METADATA = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
TOPIC = {"name": "t", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}


async def envelope(site: Site, data: bytes, *, principal: bytes = ANONYMOUS, host: bytes = bytes(4)) -> Any:
    return await site.ask(ApiKey.ENVELOPE, request_data=data, request_principal=principal, client_host_address=host)


def test_every_served_api_has_its_module() -> None:
    async def steps(site: Site) -> None:
        for key, versions in served(Role.CONTROLLER).items():
            assert site.controller.server.dispatcher.find(key, versions.max) is not None

    simulate(scenario(steps), seed=1)


@pytest.mark.parametrize(("host", "found_at"), [("", HOST), ("0.0.0.0", HOST), ("[::]", gethostname())])
def test_a_controller_on_all_addresses_is_found_as_the_voter_or_by_the_name_of_its_machine(
    host: str, found_at: str
) -> None:
    async def steps(world: World) -> None:
        runtime = world.machine(HOST).start()
        controller = Controller(runtime, config(listeners=f"CONTROLLER://{host}:{PORT}"))
        assert controller.advertised() == {"CONTROLLER": (found_at, PORT)}

    simulate(steps, seed=1)


def test_api_versions_tell_the_levels_and_the_offset_of_their_last_change() -> None:
    async def steps(site: Site) -> None:
        answers = site.controller.api_versions
        first = decode_api_versions_response(4, answers.body(4))
        assert (first.finalized, first.finalized_epoch) == ({"metadata.version": 33, "transaction.version": 2}, 4)
        assert (first.supported["metadata.version"], first.supported["kraft.version"]) == ((7, 33), (0, 0))
        await site.ask(ApiKey.DESCRIBE_QUORUM, topics=METADATA)
        update = {"feature": "group.version", "max_version_level": 1, "upgrade_type": 1}
        offset = site.controller.state.next_offset
        await site.ask(ApiKey.UPDATE_FEATURES, feature_updates=[update], timeout_ms=100)
        second = decode_api_versions_response(4, answers.body(4))
        assert (second.finalized["group.version"], second.finalized_epoch) == (1, offset)

    simulate(scenario(steps), seed=2)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version(version: int) -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        topic = TOPIC | {"configs": [{"name": "retention.ms", "value": " 5"}]}
        answer = await site.ask(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout_ms=100)
        (created,) = answer.topics
        assert (created.name, created.error_code) == ("t", 0)
        if version >= 5:
            assert (created.num_partitions, created.replication_factor) == (2, 1)
            sources = {config.name: (config.value, config.config_source) for config in created.configs}
            assert sources["retention.ms"] == (" 5", 1), "as it was given"
            assert sources["cleanup.policy"] == ("delete", 5)
            assert sources["max.message.bytes"] == ("2000000", 4)
        if version >= 7:
            assert created.topic_id == site.controller.state.image.topics["t"].id
        again = await site.ask(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout_ms=100)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    simulate(scenario(steps, message_max_bytes=2000000), seed=3)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_in_every_version(version: int) -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        await site.create("t")
        fields: dict[str, Any] = {"topic_names": ["t"]}
        if version >= 6:
            fields = {"topics": [{"name": "t", "topic_id": None}]}
        answer = await site.ask(ApiKey.DELETE_TOPICS, version, timeout_ms=100, **fields)
        assert [(outcome.name, outcome.error_code) for outcome in answer.responses] == [("t", 0)]
        assert not site.controller.state.image.topics

    simulate(scenario(steps), seed=4)


def test_deletion_may_be_forbidden() -> None:
    async def steps(site: Site) -> None:
        for version, code in ((2, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)):
            answer = await site.ask(ApiKey.DELETE_TOPICS, version, topic_names=["t"], timeout_ms=100)
            assert answer.responses[0].error_code == code

    simulate(scenario(steps, delete_topic_enable="false"), seed=5)


def test_configs_are_altered_both_ways_and_described() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        await site.create("t")
        twice = {"resource_type": 2, "resource_name": "u", "configs": []}
        change = {"name": "flush.ms", "config_operation": 0, "value": "7"}
        answer = await site.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            resources=[
                {"resource_type": 2, "resource_name": "t", "configs": [change]},
                twice,
                twice,
                {"resource_type": 77, "resource_name": "t", "configs": [change]},
                {"resource_type": 4, "resource_name": "", "configs": [change | {"config_operation": 9}]},
            ],
        )
        codes = {(r.resource_type, r.resource_name): r.error_code for r in answer.responses}
        assert codes == {
            (2, "t"): 0,
            (2, "u"): ErrorCode.INVALID_REQUEST,
            (77, "t"): ErrorCode.UNSUPPORTED_VERSION,
            (4, ""): ErrorCode.INVALID_REQUEST,
        }
        replacement = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "9"}]}
        only = await site.ask(ApiKey.ALTER_CONFIGS, resources=[replacement], validate_only=True)
        assert only.responses[0].error_code == 0
        assert site.controller.state.image.config(2, "t") == {"flush.ms": "7"}
        await site.ask(ApiKey.ALTER_CONFIGS, resources=[replacement])
        described = await site.ask(
            ApiKey.DESCRIBE_CONFIGS,
            resources=[{"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms", "flush.ms"]}],
        )
        configs = {config.name: (config.value, config.config_source) for config in described.results[0].configs}
        assert configs == {"retention.ms": ("9", 1), "flush.ms": ("9223372036854775807", 5)}

    simulate(scenario(steps), seed=6)


def test_partitions_producer_ids_and_directories_have_their_answers() -> None:
    async def steps(site: Site) -> None:
        epoch = await site.register(1)
        created = await site.create("t")
        grown = await site.ask(
            ApiKey.CREATE_PARTITIONS, topics=[{"name": "t", "count": 3, "assignments": None}], timeout_ms=100
        )
        assert [(r.name, r.error_code) for r in grown.results] == [("t", 0)]
        block = await site.ask(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=1, broker_epoch=epoch)
        assert (block.error_code, block.producer_id_start, block.producer_id_len) == (0, 0, 1000)
        stale = await site.ask(ApiKey.ALLOCATE_PRODUCER_IDS, broker_id=1, broker_epoch=epoch + 1)
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        topics = [{"topic_id": created.topic_id, "partitions": [{"partition_index": n} for n in (0, 9)]}]
        assigned = await site.ask(
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            broker_id=1,
            broker_epoch=epoch,
            directories=[{"id": directory(1), "topics": topics}],
        )
        errors = [p.error_code for p in assigned.directories[0].topics[0].partitions]
        assert errors == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    simulate(scenario(steps), seed=7)


def test_heartbeats_and_stale_epochs_over_the_wire() -> None:
    async def steps(site: Site) -> None:
        epoch = await site.register(1)
        beat = await site.beat(1, epoch)
        assert (beat.error_code, beat.is_caught_up, beat.is_fenced) == (0, True, False)
        assert (await site.beat(1, epoch + 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
        await site.controller.runtime.clock.sleep(11)
        assert site.controller.state.image.brokers[1].fenced
        assert not (await site.beat(1, epoch)).is_fenced

    simulate(scenario(steps), seed=8)


def test_acl_requests_that_a_broker_of_kafka_forwards_are_answered() -> None:
    """Kafka's broker forwards them to the controller; Milena's answers them itself."""

    async def steps(site: Site) -> None:
        acl = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:x", "host": "*"}
        acl |= {"operation": 3, "permission_type": 3}
        for key, fields in ((ApiKey.CREATE_ACLS, {"creations": [acl]}), (ApiKey.DELETE_ACLS, {"filters": []})):
            data = request_header(key, 3, 5, "c") + messages.encode_request(key, 3, **fields)
            answer = await envelope(site, data)
            assert answer.error_code == 0
            _, body = parse_response_header(key, 3, memoryview(answer.response_data))
            response = messages.decode_response(key, 3, body)
            if key is ApiKey.CREATE_ACLS:
                assert [one.error_code for one in response.results] == [ErrorCode.SECURITY_DISABLED]

    simulate(scenario(steps), seed=6)


def test_a_forwarded_request_runs_and_its_answer_comes_back_with_its_header() -> None:
    async def steps(site: Site) -> None:
        await site.register(1)
        head = request_header(ApiKey.CREATE_TOPICS, 7, 4711, "app")
        body = messages.encode_request(ApiKey.CREATE_TOPICS, 7, topics=[TOPIC], timeout_ms=100)
        answer = await envelope(site, head + body)
        assert answer.error_code == 0
        correlation, inner = parse_response_header(ApiKey.CREATE_TOPICS, 7, memoryview(answer.response_data))
        created = messages.decode_response(ApiKey.CREATE_TOPICS, 7, inner)
        assert (correlation, created.topics[0].name, created.topics[0].error_code) == (4711, "t", 0)
        assert "t" in site.controller.state.image.topics

    simulate(scenario(steps), seed=9)


def test_what_cannot_be_forwarded_or_read_is_refused() -> None:
    fetch = request_header(ApiKey.FETCH, 17, 1, "app")
    quorum = request_header(ApiKey.DESCRIBE_QUORUM, 2, 1, "app")
    body = messages.encode_request(ApiKey.DESCRIBE_QUORUM, 2, topics=METADATA)

    async def steps(site: Site) -> None:
        assert (await envelope(site, fetch)).error_code == ErrorCode.INVALID_REQUEST
        assert (await envelope(site, b"")).error_code == ErrorCode.INVALID_REQUEST
        assert (await envelope(site, quorum)).error_code == ErrorCode.INVALID_REQUEST
        assert (await envelope(site, quorum + body, host=b"abc")).error_code == ErrorCode.INVALID_REQUEST
        unreadable = await envelope(site, quorum + body, principal=b"\0\0\xff")
        assert unreadable.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
        assert (await envelope(site, quorum + body)).error_code == 0

    simulate(scenario(steps), seed=10)


def test_the_quorum_is_described_with_its_observers() -> None:
    async def steps(site: Site) -> None:
        clock = site.controller.runtime.clock
        await site.fetch(3, node=7)
        await site.fetch(6, node=7)
        answer = await site.ask(ApiKey.DESCRIBE_QUORUM, topics=METADATA)
        partition = answer.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1000, 1, 6)
        assert [voter.replica_id for voter in partition.current_voters] == [1000]
        (observer,) = partition.observers
        assert (observer.replica_id, observer.log_end_offset) == (7, 6)
        assert observer.last_caught_up_timestamp == observer.last_fetch_timestamp > 0
        assert [(n.node_id, [(x.host, x.port) for x in n.listeners]) for n in answer.nodes] == [(1000, [(HOST, PORT)])]
        await clock.sleep(301)
        later = await site.ask(ApiKey.DESCRIBE_QUORUM, topics=METADATA)
        assert not later.topics[0].partitions[0].observers
        other = await site.ask(ApiKey.DESCRIBE_QUORUM, topics=[METADATA[0] | {"topic_name": "t"}])
        assert other.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    simulate(scenario(steps), seed=11)


def test_the_controllers_are_described_to_who_asks_for_them() -> None:
    async def steps(site: Site) -> None:
        answer = await site.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=2)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, 1000)
        assert [(n.broker_id, n.host, n.port) for n in answer.brokers] == [(1000, HOST, PORT)]
        for version, code in ((0, ErrorCode.INVALID_REQUEST), (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE)):
            assert (await site.ask(ApiKey.DESCRIBE_CLUSTER, version)).error_code == code
        unknown = await site.ask(ApiKey.DESCRIBE_CLUSTER, endpoint_type=9)
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    simulate(scenario(steps), seed=12)


def test_features_are_updated_in_every_version() -> None:
    async def steps(site: Site) -> None:
        for version in range(3):
            update = {"feature": "group.version", "max_version_level": version % 2, "upgrade_type": 2 - version % 2}
            if version == 0:
                update = {"feature": "group.version", "max_version_level": 0, "allow_downgrade": True}
            answer = await site.ask(ApiKey.UPDATE_FEATURES, version, feature_updates=[update], timeout_ms=100)
            assert answer.error_code == 0
            assert site.controller.state.image.features.get("group.version", 0) == version % 2
        refused = await site.ask(
            ApiKey.UPDATE_FEATURES,
            feature_updates=[{"feature": "x", "max_version_level": 1, "upgrade_type": 1}],
            timeout_ms=100,
        )
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION

    simulate(scenario(steps), seed=13)
