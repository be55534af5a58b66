"""ApiVersions by hand, beside kio's schema."""

from __future__ import annotations

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.requests import messages
from milena.protocol.schemas.api_versions import (
    ApiVersionsAnswers,
    ApiVersionsRequest,
    ClientSoftware,
    decode_api_versions_request,
    decode_api_versions_response,
    encode_api_versions_request,
    error_body,
)
from milena.protocol.schemas.registry import Role, VersionRange, advertised
from milena.protocol.schemas.undecodable import DecodeError

FEATURES = {"metadata.version": VersionRange(7, 30), "transaction.version": VersionRange(0, 2)}


def answers() -> ApiVersionsAnswers:
    made = ApiVersionsAnswers(Role.BROKER, FEATURES)
    made.set_finalized({"metadata.version": 30, "transaction.version": 0}, epoch=42)
    return made


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("role", Role)
def test_every_version_lists_what_the_role_serves(role: Role, version: int) -> None:
    body = ApiVersionsAnswers(role, FEATURES).body(version)
    response = messages.decode_response(ApiKey.API_VERSIONS, version, body)
    assert response.error_code == 0
    assert {api.api_key: (api.min_version, api.max_version) for api in response.api_keys} == advertised(role)
    assert messages.encode(response) == body
    assert decode_api_versions_response(version, body).keys == advertised(role)


def test_features_come_with_version_3_and_those_from_level_0_with_version_4() -> None:
    assert not hasattr(messages.decode_response(ApiKey.API_VERSIONS, 2, answers().body(2)), "supported_features")
    for version, expected in ((3, ["metadata.version"]), (4, ["metadata.version", "transaction.version"])):
        response = messages.decode_response(ApiKey.API_VERSIONS, version, answers().body(version))
        assert [feature.name for feature in response.supported_features] == expected
        assert response.finalized_features_epoch == 42
        (finalized,) = response.finalized_features
        assert (finalized.name, finalized.min_version_level, finalized.max_version_level) == (
            "metadata.version",
            30,
            30,
        )


def test_the_answer_changes_with_the_finalized_features() -> None:
    made = answers()
    before = made.body(4)
    made.set_finalized({"metadata.version": 30, "transaction.version": 2}, epoch=50)
    read = decode_api_versions_response(4, made.body(4))
    assert made.body(4) != before
    assert (read.finalized, read.finalized_epoch) == ({"metadata.version": 30, "transaction.version": 2}, 50)
    assert read.supported == FEATURES


@pytest.mark.parametrize("version", [6, 99, -1])
def test_an_unknown_version_is_answered_in_version_0_with_the_range_of_this_api_alone(version: int) -> None:
    body = answers().body(version)
    assert body == bytes.fromhex("0023 00000001 0012 0000 0005")
    read = decode_api_versions_response(version, body)
    assert (read.error_code, read.keys) == (ErrorCode.UNSUPPORTED_VERSION, {18: (0, 5)})


@pytest.mark.parametrize("version", range(6))
def test_a_refusal_has_the_form_of_its_version(version: int) -> None:
    body = error_body(version, ErrorCode.INVALID_REQUEST)
    assert messages.decode_response(ApiKey.API_VERSIONS, version, body).error_code == ErrorCode.INVALID_REQUEST
    assert decode_api_versions_response(version, body).error_code == ErrorCode.INVALID_REQUEST


def test_requests_carry_the_client_software_from_version_3_on_and_the_intended_node_from_version_5_on() -> None:
    request = ApiVersionsRequest(ClientSoftware("milena", "0.1"), "cluster", 7)
    for version in range(6):
        data = encode_api_versions_request(version, request)
        named = {"client_software_name": "milena", "client_software_version": "0.1"}
        intended = {"cluster_id": "cluster", "node_id": 7} if version >= 5 else {}
        assert data == messages.encode_request(ApiKey.API_VERSIONS, version, **named, **intended)
        assert decode_api_versions_request(version, data) == ApiVersionsRequest(
            request.software if version >= 3 else None, *(("cluster", 7) if version >= 5 else ())
        )
    with_tag = encode_api_versions_request(4, request)[:-1] + b"\x01\x00\x02hi"
    assert decode_api_versions_request(4, with_tag) == ApiVersionsRequest(request.software)
    assert decode_api_versions_request(0, b"more") == ApiVersionsRequest()
    with pytest.raises(DecodeError):
        decode_api_versions_request(3, b"\x05")


@pytest.mark.parametrize(
    ("cluster", "node", "broker", "controller"),
    [
        (None, -1, None, None),
        ("c", 1, None, None),
        ("c", 2, ErrorCode.REBOOTSTRAP_REQUIRED, None),
        ("d", 1, ErrorCode.REBOOTSTRAP_REQUIRED, None),
        ("c", -1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_broker_refuses_clients_that_mean_another_node_and_a_controller_does_not(
    cluster: str | None, node: int, broker: ErrorCode | None, controller: ErrorCode | None
) -> None:
    request = ApiVersionsRequest(ClientSoftware("a", "1"), cluster, node)
    assert ApiVersionsAnswers(Role.BROKER, FEATURES, identity=lambda: ("c", 1)).refusal(request) is broker
    assert ApiVersionsAnswers(Role.CONTROLLER, FEATURES).refusal(request) is controller


@pytest.mark.parametrize(
    ("name", "version", "valid"),
    [
        ("librdkafka", "2.6.0", True),
        ("apache-kafka-java", "4.3.1", True),
        ("a", "1", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a.", "1", False),
        ("a b", "1", False),
        ("a\n", "1", False),
    ],
)
def test_names_of_software_are_letters_and_digits_with_dots_and_hyphens_inside(
    name: str, version: str, valid: bool
) -> None:
    assert ClientSoftware(name, version).valid is valid
