"""What the figures should be, and a table of what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Row = tuple[str, str, str, str, str, str]


class Goal(NamedTuple):
    """``ratio`` is Milena's figure through Kafka's; ``absolute`` is for Milena's alone."""

    about: str
    ratio: float | None = None
    absolute: float | None = None
    more_is_better: bool = False


GOALS: Mapping[str, Goal] = {
    "ready_s": Goal("three brokers, exec to ready, s", 1 / 8, 1.0),
    "first_write_s": Goal("exec to first acknowledged write, s"),
    "single_node_listens_s": Goal("one node, exec to listening, s", None, 0.15),
    "idle_memory_mib": Goal("idle broker, resident MiB", 1 / 6, 40),
    "idle_cpu_percent": Goal("idle broker, % of a core", 1.0),
    "produce_p50_ms": Goal("produce acks=1, p50 ms", 1.0, 0.20),
    "produce_p99_ms": Goal("produce acks=1, p99 ms", 1.0, 0.5),
    "end_to_end_p50_ms": Goal("end to end, p50 ms", 0.7),
    "end_to_end_p99_ms": Goal("end to end, p99 ms"),
    "produce_mb_s": Goal("ProducerPerformance, MB/s", 1.0, None, more_is_better=True),
    "consume_mb_s": Goal("ConsumerPerformance, MB/s", 1.0, None, more_is_better=True),
    "librdkafka_consume_mb_s": Goal("librdkafka consumer, MB/s", None, None, more_is_better=True),
    "checked_16k_none_mb_s": Goal("produce batches of 160 x 100 bytes, none, MB/s", None, None, more_is_better=True),
    "checked_16k_gzip_mb_s": Goal("produce batches of 160 x 100 bytes, gzip, MB/s", None, None, more_is_better=True),
    "checked_16k_snappy_mb_s": Goal(
        "produce batches of 160 x 100 bytes, snappy, MB/s", None, None, more_is_better=True
    ),
    "checked_16k_lz4_mb_s": Goal("produce batches of 160 x 100 bytes, lz4, MB/s", None, None, more_is_better=True),
    "checked_16k_zstd_mb_s": Goal("produce batches of 160 x 100 bytes, zstd, MB/s", None, None, more_is_better=True),
    "checked_1m_none_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, none, MB/s", None, None, more_is_better=True),
    "checked_1m_gzip_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, gzip, MB/s", None, None, more_is_better=True),
    "checked_1m_snappy_mb_s": Goal(
        "produce batches of 1,000 x 1,000 bytes, snappy, MB/s", None, None, more_is_better=True
    ),
    "checked_1m_lz4_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, lz4, MB/s", None, None, more_is_better=True),
    "checked_1m_zstd_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, zstd, MB/s", None, None, more_is_better=True),
    "loaded_memory_mib": Goal("loaded broker, resident MiB", 1 / 6, 50),
    "replicated_produce_p50_ms": Goal("3 replicas: produce acks=all, p50 ms", 0.8),
    "replicated_produce_p99_ms": Goal("3 replicas: produce acks=all, p99 ms", 0.5),
    "replicated_idle_p50_ms": Goal("beside 1,000 (SHORT: 300) idle replicated partitions, p50 ms"),
    "replicated_idle_growth": Goal("the same through the p50 without them", None, 1.1),
    "replicated_busy_p99_ms": Goal("beside 10 MB/s of other load, p99 ms", None, 3.0),
    "replicated_end_to_end_p50_ms": Goal("3 replicas: end to end, p50 ms"),
    "replicated_end_to_end_p99_ms": Goal("3 replicas: end to end, p99 ms"),
    "replicated_six_mb_s": Goal("ProducerPerformance acks=all, 6 partitions, MB/s", 1.5, None, more_is_better=True),
    "replicated_one_mb_s": Goal("ProducerPerformance acks=all, 1 partition, MB/s", 1.5, None, more_is_better=True),
    "replicated_memory_mib": Goal("broker under that load, resident MiB", None, 60),
    "wiped_follower_mb_s": Goal("a wiped follower copies, MB/s", 1.0, None, more_is_better=True),
    "leader_killed_s": Goal("kill -9 of a leader to the next acknowledged write, s", 1.0, 8.95),
    "create_1000_partitions_s": Goal("1,000 partitions created and led, s", None, 1.0),
    "partitions_memory_mib": Goal("1,000 partitions on one broker, added MiB", None, 20),
    "create_many_s": Goal("10,000 partitions (SHORT: 2,000) created and led, s"),
    "restart_many_s": Goal("the same, restart until all are led, s"),
    "many_memory_mib": Goal("the same, resident MiB of their broker"),
    "tier_consume_cold_mb_s": Goal("tier: ConsumerPerformance, cold index cache, MB/s", 1.5, None, more_is_better=True),
    "tier_consume_warm_mb_s": Goal("the same with a warm index cache, MB/s", 1.5, None, more_is_better=True),
    "tier_consume_share": Goal("the same through that of local segments", None, 0.8, more_is_better=True),
    "tier_copied_s": Goal("tier: 300 MB copied and locally deleted beside 10 MB/s, s", 1.0),
    "tier_copy_produce_p99_ms": Goal("produce acks=all meanwhile, p99 ms"),
    "tier_copy_produce_growth": Goal("the same through the p99 before", None, 2),
    "tier_read_produce_p99_ms": Goal("tier: produce acks=all beside a consumer of it, p99 ms"),
    "tier_read_produce_growth": Goal("the same through the p99 before", None, 2),
    "tier_read_fetch_p99_ms": Goal("local fetch beside that consumer, p99 ms"),
    "tier_read_fetch_growth": Goal("the same through the p99 before", None, 2),
    "tier_follower_s": Goal("empty follower of 1,000 remote segments and 20 MB joins the ISR, s", None, 2),
    "remote_segments_mib": Goal("10,000 remote segments, MiB", None, 10),
    "remote_look_up_us": Goal("the same, a look-up by (epoch, offset), us", None, 5),
    "remote_snapshot_s": Goal("100,000 remote segments from their snapshot, s", None, 5),
}


def rows(results: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """A head and the figures that were measured: Milena's beside Kafka's, with the ratio and the goal."""
    milena, kafka = results["milena"], results.get("kafka", {})
    measured = [(goal, milena.get(name), kafka.get(name)) for name, goal in GOALS.items()]
    found = [_row(*figure) for figure in measured if figure[1:] != (None, None)]
    return [("figure", "Milena", "Kafka", "ratio", "goal", ""), *found]


def report(results: Mapping[str, Mapping[str, float]]) -> str:
    """The rows in columns."""
    table = rows(results)
    widths = [max(len(row[column]) for row in table) for column in range(6)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)


def _row(goal: Goal, own: float | None, other: float | None) -> Row:
    ratio = None if not other or own is None else own / other
    wishes, kept = [], []
    if goal.ratio is not None:
        wishes.append(f"{'>=' if goal.more_is_better else '<='} {goal.ratio:.3g} x")
        if ratio is not None:
            kept.append(ratio >= goal.ratio if goal.more_is_better else ratio <= goal.ratio)
    if goal.absolute is not None:
        wishes.append(f"{'>=' if goal.more_is_better else '<='} {goal.absolute:g}")
        kept.append(own is not None and (own >= goal.absolute if goal.more_is_better else own <= goal.absolute))
    verdict = "" if not kept else "met" if all(kept) else "missed"
    if own is None:
        verdict = "not measured"
    shown = ("-" if other is None else f"{other:.3g}", "-" if ratio is None else f"{ratio:.2f}")
    return goal.about, "-" if own is None else f"{own:.3g}", *shown, ", ".join(wishes), verdict
