"""Options of a new cluster, and the small files and books of the controller."""

from __future__ import annotations

from uuid import UUID

import pytest

from milena.config.values import ConfigError
from milena.controller.log.followers import Follower, Followers
from milena.controller.log.formatting import Formatting
from milena.controller.log.quorum_state import (
    CorruptQuorumState,
    QuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from milena.protocol.types import LeaderEpoch, NodeId, Offset

DIRECTORY = UUID(int=5 << 70)


def test_without_options_the_metadata_version_and_the_transaction_version_are_set() -> None:
    assert [(r.name, r.feature_level) for r in Formatting().records()] == [
        ("metadata.version", 33),
        ("transaction.version", 2),
    ]
    assert Formatting.parse().records() == Formatting().records()


@pytest.mark.parametrize(("release", "level"), [("3.9", None), ("4.0-IV1", None), ("4.0-IV2", 2), ("4.4", 2)])
def test_transaction_version_begins_at_2_where_kafka_has_it(release: str, level: int | None) -> None:
    records = Formatting.parse(release_version=release).records()
    assert {record.name: record.feature_level for record in records}.get("transaction.version") == level


def test_a_release_and_features_are_levels() -> None:
    chosen = Formatting.parse(features=["group.version=1", "transaction.version=0"], release_version="4.0")
    assert [(r.name, r.feature_level) for r in chosen.records()] == [("metadata.version", 25), ("group.version", 1)]


def test_the_release_that_a_node_behaves_like_limits_the_levels() -> None:
    assert Formatting.parse(release="4.1").features["metadata.version"] == 27
    assert Formatting.parse(release="4.1", release_version="4.0").features["metadata.version"] == 25
    with pytest.raises(ConfigError, match=r"--release-version 4\.2: kafka\.version is 4\.1"):
        Formatting.parse(release="4.1", release_version="4.2")
    with pytest.raises(ConfigError, match=r"the level must be between 7 and 27"):
        Formatting.parse(release="4.1", features=["metadata.version=28"])


@pytest.mark.parametrize(
    ("features", "release", "message"),
    [
        (["group.version"], None, r"--feature 'group\.version' is not of the form NAME=LEVEL"),
        (["group.version=x"], None, r"is not of the form NAME=LEVEL"),
        (["no.such=1"], None, r"--feature 'no\.such' is unknown; known are metadata\.version"),
        (["group.version=2"], None, r"the level must be between 0 and 1"),
        (["kraft.version=1"], None, r"the voters of this cluster are static"),
        (["metadata.version=30"], "4.3", r"cannot be combined"),
        ([], "2.0", r"--release-version: unknown release version '2\.0'"),
        (["eligible.leader.replicas.version=1"], "3.9", r"needs metadata\.version at 23"),
    ],
)
def test_a_mistake_names_its_option(features: list[str], release: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Formatting.parse(features=features, release_version=release)


def test_the_quorum_state_is_kafkas_json() -> None:
    state = QuorumState(LeaderEpoch(7), NodeId(3), (NodeId(3),))
    data = encode_quorum_state(state)
    assert data == (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":3}],"data_version":0}'
    )
    assert decode_quorum_state(data) == state
    dynamic = (
        b'{"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert decode_quorum_state(dynamic) == QuorumState(LeaderEpoch(2), NodeId(-1), ())


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"leaderId":1,"leaderEpoch":"x"}', b"\xff"])
def test_a_quorum_state_that_is_invalid_is_detected(data: bytes) -> None:
    with pytest.raises(CorruptQuorumState):
        decode_quorum_state(data)


def test_a_follower_has_caught_up_when_it_has_what_the_leader_had_at_its_last_fetch() -> None:
    follower = Follower(NodeId(1), DIRECTORY)
    follower.fetched(Offset(3), leader_end=Offset(10), now_ms=100)
    assert (follower.end_offset, follower.fetched_ms, follower.caught_up_ms) == (3, 100, -1)
    follower.fetched(Offset(10), leader_end=Offset(12), now_ms=200)
    assert (follower.fetched_ms, follower.caught_up_ms) == (200, 100)
    follower.fetched(Offset(12), leader_end=Offset(12), now_ms=300)
    assert follower.caught_up_ms == 300


def test_followers_are_distinguished_by_directory_and_forgotten_after_five_minutes() -> None:
    followers = Followers()
    for node, where, now in ((2, DIRECTORY, 0), (1, DIRECTORY, 10), (1, UUID(int=0), 20), (-1, DIRECTORY, 20)):
        followers.fetched(node, where, Offset(1), leader_end=Offset(1), now_ms=now)
    assert [(f.id, f.directory.int) for f in followers.present(100)] == [(1, 0), (1, DIRECTORY.int), (2, DIRECTORY.int)]
    assert [f.id for f in followers.present(300_005)] == [1, 1]
