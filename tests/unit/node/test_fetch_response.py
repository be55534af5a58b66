"""What an observer makes of a leader's answers: the epoch rules first, then what is in them."""

from __future__ import annotations

import pytest

from milena.node.metadata.fetch_response import (
    Diverged,
    FetchRefused,
    NeedsSnapshot,
    NewLeader,
    Outcome,
    Quorum,
    Records,
    StaleAnswer,
    decide,
)
from milena.node.metadata.snapshots import MetadataSnapshotId
from milena.protocol.errors import ErrorCode
from milena.protocol.requests.fetch import EpochEndOffset, FetchedPartition, FetchResponse
from milena.protocol.requests.fetch import SnapshotId as WireSnapshotId
from milena.protocol.requests.leaders import CurrentLeader, NodeEndpoint
from milena.protocol.types import METADATA_TOPIC, METADATA_TOPIC_ID, LeaderEpoch, NodeId, Offset

KNOWN = Quorum(NodeId(1), LeaderEpoch(5))
FROM_LEADER = FetchedPartition(0, high_watermark=9, current_leader=CurrentLeader(1, 5), records=b"abc")


def answer(partition: FetchedPartition, *, endpoints: tuple[NodeEndpoint, ...] = ()) -> FetchResponse:
    return FetchResponse([(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])], node_endpoints=endpoints)


def test_records_of_the_known_leader_are_taken() -> None:
    assert decide(KNOWN, answer(FROM_LEADER)) == Records(memoryview(b"abc"), Offset(9))
    assert decide(KNOWN, answer(FROM_LEADER._replace(records=None))) == Records(memoryview(b""), Offset(9))


@pytest.mark.parametrize("leader", [CurrentLeader(1, 4), CurrentLeader(-1, -1), None])
def test_nothing_of_a_lower_epoch_counts(leader: CurrentLeader | None) -> None:
    outcome = decide(KNOWN, answer(FROM_LEADER._replace(current_leader=leader, error_code=6)))
    assert isinstance(outcome, StaleAnswer)


def test_of_an_answer_in_a_higher_epoch_only_the_new_leader_is_used() -> None:
    endpoints = (NodeEndpoint(2, "h2", 9), NodeEndpoint(3, "h3", 10))
    outcome = decide(KNOWN, answer(FROM_LEADER._replace(current_leader=CurrentLeader(3, 6)), endpoints=endpoints))
    assert outcome == NewLeader(Quorum(NodeId(3), LeaderEpoch(6)), ("h3", 10))


def test_an_epoch_without_a_leader_is_known_too() -> None:
    outcome = decide(KNOWN, answer(FROM_LEADER._replace(current_leader=CurrentLeader(-1, 6))))
    assert outcome == NewLeader(Quorum(None, LeaderEpoch(6)), None)


def test_the_leader_of_our_epoch_may_become_known() -> None:
    outcome = decide(Quorum(None, LeaderEpoch(5)), answer(FROM_LEADER))
    assert outcome == NewLeader(KNOWN, None)


@pytest.mark.parametrize(
    ("partition", "outcome"),
    [
        (
            FROM_LEADER._replace(error_code=int(ErrorCode.BROKER_NOT_AVAILABLE)),
            FetchRefused(ErrorCode.BROKER_NOT_AVAILABLE),
        ),
        (
            FROM_LEADER._replace(diverging_epoch=EpochEndOffset(4, 7)),
            Diverged(epoch=LeaderEpoch(4), end_offset=Offset(7)),
        ),
        (
            FROM_LEADER._replace(snapshot_id=WireSnapshotId(70, 4)),
            NeedsSnapshot(MetadataSnapshotId(Offset(70), LeaderEpoch(4))),
        ),
    ],
)
def test_errors_divergence_and_snapshots(partition: FetchedPartition, outcome: Outcome) -> None:
    assert decide(KNOWN, answer(partition)) == outcome


@pytest.mark.parametrize(
    "response",
    [
        FetchResponse([], error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID)),
        FetchResponse([]),
        answer(FROM_LEADER._replace(partition=1)),
        FetchResponse([(METADATA_TOPIC, METADATA_TOPIC_ID, [FROM_LEADER, FROM_LEADER])]),
    ],
)
def test_answers_about_something_else_are_refused(response: FetchResponse) -> None:
    assert isinstance(decide(KNOWN, response), FetchRefused)
