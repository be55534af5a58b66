"""A node with kafka.version serves and lists what that release of Kafka does."""

from __future__ import annotations

import pytest

from milena.protocol.api_keys import ApiKey
from milena.protocol.errors import ErrorCode
from milena.protocol.features import RANGES, ranges
from milena.protocol.schemas.api_versions import ApiVersionsAnswers, decode_api_versions_response
from milena.protocol.schemas.registry import REGISTRY, Role, VersionRange, advertised, served
from milena.releases import ABSENT, NEWEST, RELEASES, differences

FEATURES = {"metadata.version": VersionRange(7, 30)}


def served_by_controller(release: str) -> dict[int, VersionRange]:
    return {int(key): versions for key, versions in served(Role.CONTROLLER, release).items()}


@pytest.mark.parametrize("role", Role)
def test_the_newest_release_has_all_that_is_served(role: Role) -> None:
    assert served(role) == served(role, NEWEST)
    assert not any(differences(NEWEST, kind) for kind in ("api", "feature", "broker", "topic", "former"))
    assert ranges(NEWEST) == RANGES


def test_an_earlier_release_serves_its_own_versions() -> None:
    broker, controller = served(Role.BROKER, "4.0"), served(Role.CONTROLLER, "4.0")
    assert (broker[ApiKey.FETCH], controller[ApiKey.FETCH]) == (VersionRange(4, 17), VersionRange(4, 17))
    assert broker[ApiKey.JOIN_GROUP] == VersionRange(2, 9)
    assert controller[ApiKey.BROKER_HEARTBEAT] == VersionRange(0, 1)
    assert ApiKey.UNREGISTER_CONTROLLER in served(Role.BROKER)
    for release in RELEASES[:-1]:
        assert ApiKey.UNREGISTER_CONTROLLER not in served(Role.BROKER, release) | served(Role.CONTROLLER, release)
        assert served(Role.BROKER, release)[ApiKey.API_VERSIONS].max == 4
    assert (advertised(Role.BROKER, "4.0")[ApiKey.PRODUCE], broker[ApiKey.PRODUCE]) == ((0, 12), (3, 12))


@pytest.mark.parametrize("release", RELEASES)
def test_no_release_serves_more_than_the_newest(release: str) -> None:
    for role in Role:
        newest = served(role)
        for key, (low, high) in served(role, release).items():
            assert newest[key].includes(low)
            assert newest[key].includes(high)


@pytest.mark.parametrize("release", RELEASES[:-1])
def test_the_table_names_known_apis_and_features(release: str) -> None:
    for name, text in differences(release, "api").items():
        low, _, high = text.partition("-")
        newest = REGISTRY[ApiKey[name]].kafka
        assert text == ABSENT or (newest.includes(int(high or low)) or name == "PRODUCE")
    assert differences(release, "feature").keys() <= RANGES.keys()


def test_levels_of_features_are_those_of_the_release() -> None:
    levels = [ranges(release)["metadata.version"] for release in RELEASES]
    assert levels == [(7, 25), (7, 27), (7, 29), (7, 30), (7, 33)]
    assert [ranges(release)["share.version"] for release in RELEASES] == [(0, 0), (0, 1), (0, 1), (0, 1), (0, 2)]


def test_api_versions_of_an_earlier_release_ends_at_its_version() -> None:
    made = ApiVersionsAnswers(Role.BROKER, FEATURES, release="4.3")
    assert decode_api_versions_response(4, made.body(4)).keys == advertised(Role.BROKER, "4.3")
    refused = decode_api_versions_response(5, made.body(5))
    assert (refused.error_code, refused.keys) == (ErrorCode.UNSUPPORTED_VERSION, {ApiKey.API_VERSIONS: (0, 4)})


def test_apis_that_are_forwarded_are_listed_as_far_as_the_controller_serves_them() -> None:
    """Kafka's ``ApiVersionsResponse.intersectForwardableApis``."""
    of_controller: dict[int, VersionRange] = {}
    made = ApiVersionsAnswers(Role.BROKER, FEATURES, controller=lambda: of_controller)
    assert decode_api_versions_response(4, made.body(4)).keys == advertised(Role.BROKER)
    of_controller = served_by_controller("4.0") | {ApiKey.CREATE_TOPICS: VersionRange(9, 9)}
    listed = decode_api_versions_response(4, made.body(4)).keys
    assert ApiKey.UNREGISTER_CONTROLLER not in listed
    assert ApiKey.CREATE_TOPICS not in listed
    assert listed[ApiKey.ALTER_PARTITION_REASSIGNMENTS] == VersionRange(0, 0)
    assert listed[ApiKey.FETCH] == served(Role.BROKER)[ApiKey.FETCH]
    of_controller = served_by_controller(NEWEST)
    assert decode_api_versions_response(4, made.body(4)).keys == advertised(Role.BROKER)
