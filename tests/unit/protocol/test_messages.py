"""Messages over kio's classes: equal to kio where kio is right, and right where it is not."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader

from milena.protocol.api_keys import ApiKey
from milena.protocol.cooperative import ELEMENTS_PER_YIELD, YieldBudget, run_now
from milena.protocol.limits import max_elements
from milena.protocol.requests import messages
from milena.protocol.schemas.primitives import Reader, Writer
from milena.protocol.schemas.registry import REGISTRY, Api
from milena.protocol.schemas.structs import codec
from milena.protocol.schemas.undecodable import DecodeError, TooManyElements
from tests.unit.protocol.kio_samples import kio_bytes, kio_class, kio_versions, noisy_bytes, sample

HUGE_COUNT = b"\xff\xff\xff\xff\x07"


def in_steps(cls: Any, data: bytes) -> tuple[object, bytes]:
    """A message that was read with pauses, and its bytes, written with pauses."""
    struct = codec(cls)
    message = run_now(struct.read_cooperatively(Reader(data), YieldBudget()))
    writer = Writer()
    run_now(struct.write_cooperatively(writer, message, YieldBudget()))
    return message, bytes(writer)


@pytest.mark.parametrize("api", REGISTRY.values(), ids=lambda api: api.key.name)
def test_every_version_of_every_message_is_read_and_written_as_kio_does(api: Api) -> None:
    for version in kio_versions(api):
        for kind, decode in (("request", messages.decode_request), ("response", messages.decode_response)):
            cls = kio_class(api.key, version, kind)
            rnd = random.Random(f"{api.key} {version} {kind}")
            for _ in range(5):
                original = sample(cls, rnd)
                data = kio_bytes(original)
                ours = decode(api.key, version, data)
                assert type(ours) is cls
                assert messages.encode(ours) == data
                assert in_steps(cls, data) == (ours, data)
                assert entity_reader(cls)(messages.encode(ours), 0)[0] == entity_reader(cls)(data, 0)[0]


NEWER_THAN_KIO: list[tuple[ApiKey, int, str, dict[str, Any], str]] = [
    (
        ApiKey.API_VERSIONS,
        5,
        "request",
        {"client_software_name": "milena", "client_software_version": "0.1", "cluster_id": "cluster", "node_id": 7},
        "076d696c656e6104302e3108636c75737465720000000700",
    ),
    (
        ApiKey.API_VERSIONS,
        5,
        "request",
        {"client_software_name": "milena", "client_software_version": "0.1"},
        "076d696c656e6104302e3100ffffffff00",
    ),
    (ApiKey.DELETE_GROUPS, 3, "request", {"groups_names": ["a", "b"]}, "030261026200"),
    (
        ApiKey.DELETE_GROUPS,
        3,
        "response",
        {
            "throttle_time_ms": 5,
            "results": [
                {"group_id": "a", "error_code": 134, "error_message": "why"},
                {"group_id": "b", "error_code": 0},
            ],
        },
        "000000050302610086047768790002620000000000",
    ),
    (ApiKey.UNREGISTER_CONTROLLER, 0, "request", {"controller_id": 3000}, "00000bb800"),
    (
        ApiKey.UNREGISTER_CONTROLLER,
        0,
        "response",
        {"throttle_time_ms": 1, "error_code": 136, "error_message": "no"},
        "000000010088036e6f00",
    ),
]
"""Messages that kio lacks, and the bytes that Kafka 4.4.0 writes for them."""


@pytest.mark.parametrize(("key", "version", "kind", "fields", "expected"), NEWER_THAN_KIO)
def test_messages_that_kio_lacks_have_kafkas_bytes(
    key: ApiKey, version: int, kind: str, fields: dict[str, Any], expected: str
) -> None:
    encode = messages.encode_request if kind == "request" else messages.encode_response
    decode = messages.decode_request if kind == "request" else messages.decode_response
    assert encode(key, version, **fields).hex() == expected
    assert messages.encode(decode(key, version, bytes.fromhex(expected))).hex() == expected


@pytest.mark.parametrize("api", REGISTRY.values(), ids=lambda api: api.key.name)
def test_a_message_of_defaults_can_be_built_in_every_version_and_read_back(api: Api) -> None:
    for version in kio_versions(api):
        request = messages.build_request(api.key, version)
        assert messages.decode_request(api.key, version, messages.encode(request)) == request
        response = messages.build_response(api.key, version)
        assert messages.encode(response) == messages.encode_response(api.key, version)


def test_a_response_is_built_from_nested_plain_data_under_kafkas_names() -> None:
    data = messages.encode_response(
        ApiKey.CREATE_TOPICS,
        7,
        throttle_time_ms=12,
        topics=[
            {"name": "a", "topic_id": UUID(int=9), "error_code": 36, "error_message": "there already"},
            {"name": "b", "num_partitions": 3, "configs": [{"name": "k", "value": "v"}]},
        ],
    )
    response = messages.decode_response(ApiKey.CREATE_TOPICS, 7, data)
    assert response.throttle_time == 12
    assert messages.get(response, "throttle_time_ms", None) == 12
    first, second = response.topics
    assert (first.name, first.topic_id, first.error_code) == ("a", UUID(int=9), 36)
    assert (second.topic_id, second.error_code, second.error_message) == (None, 0, None)
    assert (second.num_partitions, second.replication_factor) == (3, -1)
    assert second.configs[0].value == "v"
    assert messages.encode_response(ApiKey.CREATE_TOPICS, 7, throttle_time=12, topics=response.topics) == data


@pytest.mark.parametrize("letter", ["a", "\U0001f600"])
@pytest.mark.parametrize("version", [2, 7])
def test_an_error_goes_out_even_where_its_message_quotes_too_much(version: int, letter: str) -> None:
    topics = [{"name": "t", "error_code": 40, "error_message": f"No {letter * 32_767}."}]
    answer = messages.encode_response(ApiKey.CREATE_TOPICS, version, topics=topics)
    (topic,) = messages.decode_response(ApiKey.CREATE_TOPICS, version, answer).topics
    assert topic.error_message.startswith(f"No {letter * 8_000}") and topic.error_message.endswith("...")


def test_a_field_of_another_version_is_dropped_and_one_of_no_version_is_an_error() -> None:
    modern = {"name": "t", "topic_id": UUID(int=1), "partitions": []}
    old = messages.build_response(ApiKey.METADATA, 1, topics=[modern], cluster_id="c", throttle_time_ms=1)
    assert not hasattr(old, "cluster_id")
    assert old.topics[0].name == "t"
    with pytest.raises(TypeError, match="MetadataResponseTopic has no field 'partition_count'"):
        messages.encode_response(ApiKey.METADATA, 12, topics=[{"name": "t", "partition_count": 1}])


def test_a_field_of_another_struct_is_an_error() -> None:
    with pytest.raises(TypeError, match="AlterPartitionResponse has no field 'isr', in no version"):
        messages.encode_response(ApiKey.ALTER_PARTITION, 3, isr=1)
    with pytest.raises(TypeError, match="MetadataResponse has no field 'isr_nodes', in no version"):
        messages.build_response(ApiKey.METADATA, 12, isr_nodes=[])


def test_which_fields_a_version_of_a_response_has() -> None:
    assert messages.response_has(ApiKey.METADATA, 1, "controller_id")
    assert not messages.response_has(ApiKey.METADATA, 1, "cluster_id")
    messages.encode_response(ApiKey.METADATA, 1, cluster_id="dropped")
    assert not messages.response_has(ApiKey.METADATA, 1, "cluster_id")


def test_get_reads_what_an_old_version_lacks() -> None:
    request = messages.build_request(ApiKey.JOIN_GROUP, 0, group_id="g", session_timeout_ms=6_000)
    assert messages.get(request, "session_timeout_ms", 0) == 6_000
    assert messages.get(request, "rebalance_timeout_ms", -1) == -1
    assert messages.get(request, "group_instance_id", None) is None


@pytest.mark.parametrize(
    "api", [api for api in REGISTRY.values() if api.flexible is not None], ids=lambda api: api.key.name
)
def test_unknown_tagged_fields_are_skipped_at_every_level_of_every_message(api: Api) -> None:
    assert api.flexible is not None
    for version in kio_versions(api):
        if version < api.flexible:
            continue
        for kind, decode in (("request", messages.decode_request), ("response", messages.decode_response)):
            cls = kio_class(api.key, version, kind)
            rnd = random.Random(f"{api.key} {version} {kind}")
            for _ in range(3):
                original = sample(cls, rnd)
                noisy = noisy_bytes(original)
                assert decode(api.key, version, noisy) == decode(api.key, version, kio_bytes(original))
                with pytest.raises(KeyError):
                    entity_reader(cls)(noisy, 0)


def test_an_unknown_tag_beside_a_known_one_leaves_the_known_one() -> None:
    data = messages.encode_request(ApiKey.BROKER_HEARTBEAT, 2, broker_id=1, offline_log_dirs=[UUID(int=5)])
    assert data[-20] == 1, "one tag, of 17 bytes"
    extended = data[:-20] + b"\x02" + data[-19:] + b"\x63\x01!"
    request = messages.decode_request(ApiKey.BROKER_HEARTBEAT, 2, extended)
    assert request == messages.decode_request(ApiKey.BROKER_HEARTBEAT, 2, data)
    assert request.offline_log_dirs == (UUID(int=5),)


def test_a_known_tag_with_bytes_left_over_is_refused() -> None:
    data = messages.encode_request(ApiKey.BROKER_HEARTBEAT, 2, broker_id=1, offline_log_dirs=[UUID(int=5)])
    longer = data[:-18] + bytes([data[-18] + 1]) + data[-17:] + b"?"
    with pytest.raises(DecodeError, match="left over"):
        messages.decode_request(ApiKey.BROKER_HEARTBEAT, 2, longer)


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12])
def test_missing_bytes_are_refused_and_trailing_ones_behind_a_request_ignored(version: int) -> None:
    data = messages.encode_request(ApiKey.METADATA, version, topics=[{"name": "topic"}])
    request = messages.decode_request(ApiKey.METADATA, version, data)
    assert messages.decode_request(ApiKey.METADATA, version, data + b"\x00") == request
    response = messages.encode_response(ApiKey.METADATA, version)
    with pytest.raises(DecodeError, match="left over"):
        messages.decode_response(ApiKey.METADATA, version, response + b"\x00")
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            messages.decode_request(ApiKey.METADATA, version, data[:size])


def test_an_array_that_claims_more_elements_than_there_are_bytes_is_refused_before_anything_is_allocated() -> None:
    # kio's reader allocates 34 GB here and the process is gone.
    with pytest.raises(DecodeError, match="an array of"):
        messages.decode_request(ApiKey.CREATE_TOPICS, 7, HUGE_COUNT)
    with pytest.raises(DecodeError, match="an array of"):
        messages.decode_request(ApiKey.CREATE_TOPICS, 4, b"\x7f\xff\xff\xff")
    with pytest.raises(DecodeError, match="an array of"):
        messages.decode_request(ApiKey.CREATE_TOPICS, 4, b"\xff\xff\xff\xfe")


def test_random_bytes_are_refused_or_read_but_never_break_the_reader() -> None:
    rnd = random.Random(4)
    for key in (
        ApiKey.METADATA,
        ApiKey.JOIN_GROUP,
        ApiKey.CREATE_TOPICS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.OFFSET_COMMIT,
    ):
        versions = REGISTRY[key].kafka
        for _ in range(500):
            version = rnd.randint(versions.min, versions.max)
            data = bytes(rnd.choice([0, 0, 1, 2, 3, 0x80, 0xFF, rnd.randrange(256)]) for _ in range(rnd.randrange(60)))
            try:
                messages.decode_request(key, version, data)
            except DecodeError:
                continue


def test_null_is_refused_where_the_schema_has_none() -> None:
    with pytest.raises(DecodeError, match="null where an array"):
        messages.decode_request(ApiKey.CREATE_TOPICS, 7, b"\x00" + bytes(6))
    with pytest.raises(TypeError, match="None where an array"):
        messages.encode_request(ApiKey.CREATE_TOPICS, 7, topics=None)


def test_a_nullable_struct_is_there_or_null() -> None:
    without = messages.encode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[])
    assert messages.decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, without).cursor is None
    cursor = {"topic_name": "t", "partition_index": 3}
    with_cursor = messages.encode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=[], cursor=cursor)
    assert messages.decode_request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, with_cursor).cursor.partition_index == 3


def test_times_are_milliseconds_even_where_kio_keeps_seconds() -> None:
    state = {"error_code": 0, "transaction_start_time_ms": 1_700_000_000_123}
    data = messages.encode_response(ApiKey.DESCRIBE_TRANSACTIONS, 0, transaction_states=[state])
    (read,) = messages.decode_response(ApiKey.DESCRIBE_TRANSACTIONS, 0, data).transaction_states
    assert messages.get(read, "transaction_start_time_ms", None) == 1_700_000_000_123
    long = messages.encode_request(ApiKey.OFFSET_COMMIT, 2, group_id="g", retention_time_ms=2**63 - 1)
    assert messages.decode_request(ApiKey.OFFSET_COMMIT, 2, long).retention_time == 2**63 - 1


def test_an_unknown_version_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match="METADATA version 99"):
        messages.decode_request(ApiKey.METADATA, 99, b"")


def test_a_codec_reads_in_the_middle_of_other_bytes() -> None:
    entity = messages.build_request(ApiKey.HEARTBEAT, 0, group_id="g", generation_id=1, member_id="m")
    writer = Writer(b"before")
    cls: Any = type(entity)
    codec(cls).write(writer, entity)
    writer.raw(b"after")
    reader = Reader(bytes(writer), 6)
    assert codec(cls).read(reader) == entity
    assert bytes(reader.rest()) == b"after"


def test_messages_import_neither_hypothesis_nor_kios_serializers() -> None:
    script = (
        "import sys; from milena.protocol.requests import messages; messages.build_request(3, 12); "
        "print('hypothesis' in sys.modules, 'kio.serial' in sys.modules, 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]


@pytest.mark.parametrize("inner", [1, 10, 3 * ELEMENTS_PER_YIELD])
def test_a_long_message_is_read_and_written_with_a_pause_after_each_few_elements(inner: int) -> None:
    topics = [
        {"name": f"t{number}", "partition_indexes": list(range(inner))}
        for number in range(4 * ELEMENTS_PER_YIELD // (1 + inner))
    ]
    elements = len(topics) * (1 + inner)
    body = messages.encode_request(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=topics)
    steps = messages.decode_large_request(ApiKey.OFFSET_FETCH, 7, body)
    assert len(list(steps)) == elements // ELEMENTS_PER_YIELD
    answer = {"topics": [{"name": "t", "partitions": [{"partition_index": index} for index in range(inner)]}] * 7}
    pauses = list(messages.encode_large_response(ApiKey.OFFSET_FETCH, 7, **answer))
    assert len(pauses) == 7 * (1 + inner) // ELEMENTS_PER_YIELD


def test_too_many_elements_are_refused_before_they_are_read_with_pauses() -> None:
    body = messages.encode_request(ApiKey.LIST_GROUPS, 4, states_filter=["x"] * (max_elements(ApiKey.LIST_GROUPS) + 1))
    with pytest.raises(TooManyElements):
        next(messages.decode_large_request(ApiKey.LIST_GROUPS, 4, body))
