"""Replication quotas: the rate, the throttled replicas, and fetches of throttled followers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milena.broker.replica.partition import Partition
from milena.broker.replica.replication_quotas import Quota, ReplicationQuotas
from milena.config.node_config import NodeConfig, check_dynamic
from milena.config.topic_config import TopicConfig
from milena.config.values import ConfigError
from milena.node.metrics import Metrics
from milena.protocol.types import NodeId
from tests.unit.broker.fixtures import ME, Bench
from tests.unit.broker.follower_fetches import fetch, records, response, result
from tests.unit.broker.hand_clock import HandClock
from tests.unit.broker.leading import append, led

LEADER_RATE = "leader.replication.throttled.rate"


def quota(limit: int | None = 100, *, samples: int = 11, window: float = 1) -> tuple[HandClock, Quota]:
    clock = HandClock()
    made = Quota(clock, samples=samples, window=window)
    made.limit = limit
    return clock, made


class TestTheRate:
    def test_a_young_sample_counts_as_a_whole_window(self) -> None:
        _, made = quota()
        made.record(100)
        assert (made.rate(), made.exceeded) == (100, False)
        made.record(1)
        assert (made.rate(), made.exceeded) == (101, True)

    def test_the_rate_falls_without_traffic_and_is_zero_when_all_samples_are_old(self) -> None:
        clock, made = quota()
        made.record(500)
        clock.advance(4)
        assert (made.rate(), made.exceeded) == (125, True)
        clock.advance(1)
        assert (made.rate(), made.exceeded) == (100, False)
        clock.advance(6)
        assert made.rate() == 0

    def test_the_wait_ends_when_the_rate_reaches_the_limit(self) -> None:
        clock, made = quota()
        made.record(500)
        clock.advance(2)
        assert made.wait(10) == 3 and made.wait(1) == 1
        clock.advance(3)
        assert made.wait(10) == 0 and not made.exceeded

    def test_a_limit_of_zero_allows_no_further_bytes(self) -> None:
        _, made = quota(0)
        assert (made.exceeded, made.wait(1)) == (False, 0)
        made.record(1)
        assert (made.exceeded, made.wait(1)) == (True, 1)

    @given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 1000)), min_size=1, max_size=30))
    def test_the_rate_is_the_bytes_of_the_last_windows_divided_by_their_time(
        self, steps: list[tuple[float, int]]
    ) -> None:
        clock, made = quota(samples=4)
        began: list[tuple[float, int]] = []
        for pause, size in steps:
            clock.advance(pause)
            if not began or clock.now - began[-1][0] >= 1:
                began.append((clock.now, 0))
            began[-1] = began[-1][0], began[-1][1] + size
            made.record(size)
        counted = [one for one in began[-4:] if clock.now - one[0] < 4]
        assert made.rate() == sum(size for _, size in counted) / max(clock.now - counted[0][0], 1)


@pytest.mark.parametrize(
    ("named", "throttled"), [("", False), ("*", True), (f"0:{ME}", True), (f"1:{ME}", False), ("0:2,1:3", False)]
)
def test_throttled_replicas_are_named_by_partition_and_broker(bench: Bench, named: str, throttled: bool) -> None:
    partition = led(bench)
    throttle(bench, partition, limit=1, named=named)
    assert bench.quotas.leader.throttles(partition) is throttled
    assert not bench.quotas.follower.throttles(partition)


def test_limits_come_only_from_the_dynamic_configuration() -> None:
    config = NodeConfig.of()
    made = ReplicationQuotas(HandClock(), config, Metrics())
    assert limits(made) == (None, None, None)
    made.update(config.with_dynamic(default={LEADER_RATE: "5", "follower.replication.throttled.rate": "6"}, broker={}))
    assert limits(made) == (5, 6, None)
    moves = {"replica.alter.log.dirs.io.max.bytes.per.second": "8"}
    made.update(config.with_dynamic(default={LEADER_RATE: "5"}, broker={LEADER_RATE: "7"} | moves))
    assert limits(made) == (7, None, 8)
    with pytest.raises(ConfigError, match="at least 0"):
        check_dynamic({LEADER_RATE: "-1"}, per_broker=True)


def limits(quotas: ReplicationQuotas) -> tuple[int | None, int | None, int | None]:
    return quotas.leader.limit, quotas.follower.limit, quotas.moves.limit


def throttle(bench: Bench, partition: Partition, *, limit: int, named: str = "*") -> None:
    bench.quotas.leader.limit = limit
    overrides = {"leader.replication.throttled.replicas": named} if named else {}
    partition.online_log.update_config(TopicConfig.effective(bench.config, overrides))


class TestALeader:
    def test_withholds_records_from_an_out_of_sync_follower(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition, 3)
        throttle(bench, partition, limit=10)
        assert records(result(fetch(bench, 0, node=3, wait=0)))
        held = result(fetch(bench, 1, node=3, wait=0))
        assert not held.records and held.error_code == 0
        assert partition.leader_state is not None
        assert partition.leader_state.followers[NodeId(3)].log_end == 1, "its progress counts all the same"

    def test_lets_a_throttled_fetch_wait_for_its_maximum(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition)
        throttle(bench, partition, limit=10)
        bench.quotas.leader.record(1000)
        waiting = fetch(bench, 0, node=3, wait=500)
        append(partition)
        assert not waiting.answered
        bench.clock.advance(1)
        assert not result(waiting).records

    def test_continues_when_the_rate_is_below_the_limit(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition)
        throttle(bench, partition, limit=10)
        bench.quotas.leader.record(20)
        first = response(fetch(bench, 0, node=3, session=(0, 0), wait=0))
        assert not result_of(first)
        bench.clock.advance(3)
        assert result_of(response(fetch(bench, None, node=3, session=(first.session_id, 1), wait=0)))

    def test_never_throttles_in_sync_replicas_but_counts_their_bytes(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition, 2)
        throttle(bench, partition, limit=10)
        assert records(result(fetch(bench, 0, node=2, wait=0)))
        assert bench.quotas.leader.exceeded
        assert records(result(fetch(bench, 1, node=2, wait=0)))
        assert not result(fetch(bench, 0, node=3, wait=0)).records

    def test_never_throttles_consumers(self, bench: Bench) -> None:
        partition = led(bench, (1,))
        append(partition)
        partition.online_log.set_high_watermark(partition.online_log.log_end_offset)
        throttle(bench, partition, limit=10)
        bench.quotas.leader.record(1000)
        assert records(result(fetch(bench, 0, node=-1, wait=0)))

    def test_does_not_throttle_other_partitions(self, bench: Bench) -> None:
        partition = led(bench, (1, 2))
        append(partition)
        throttle(bench, partition, limit=10, named="1:1")
        bench.quotas.leader.record(1000)
        assert records(result(fetch(bench, 0, node=3, wait=0)))


def result_of(answer: object) -> bytes:
    """The records of the only partition; empty without one."""
    topics = answer.topics  # type: ignore[attr-defined]
    return b"".join(bytes(one.records or b"") for _, _, partitions in topics for one in partitions)
