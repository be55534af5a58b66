"""A shard's log appends under its own leader epochs alone."""

from __future__ import annotations

import pytest

from broker.groups.offsets_log import PartitionOffsetsLog
from protocol.errors import ErrorCode, KafkaError
from protocol.types import LeaderEpoch
from tests.unit.broker.fixtures import ME, Bench, batch, led_by


def test_what_was_decided_in_an_earlier_leader_epoch_is_not_appended_in_the_next(bench: Bench) -> None:
    """The partition leads on in a new epoch, of which the shard has not heard: what it decides may be out of date."""
    partition = bench.led("__consumer_offsets")
    log = PartitionOffsetsLog(partition, LeaderEpoch(0), bench.clock, 1000)
    assert log.append(bytes(batch(b"x"))) == log.end == 1
    partition.become(led_by(ME, leader_epoch=1))
    with pytest.raises(KafkaError) as refused:
        log.append(bytes(batch(b"y")))
    assert (refused.value.code, log.end) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
    log.go_on(LeaderEpoch(1))
    assert log.append(bytes(batch(b"y"))) == 2
