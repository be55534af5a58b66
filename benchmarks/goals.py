"""The goals for the figures, and a table of the results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.forms import COMPILED, PURE

Row = tuple[str, ...]
KAFKA, KFAKE = "kafka", "kfake"
COLUMNS: Mapping[str, str] = {COMPILED: "compiled", PURE: "pure", KAFKA: "Kafka", KFAKE: "kfake"}
"""Titles by peer."""


class Goal(NamedTuple):
    """``ratio``: the goal for Milena's figure divided by Kafka's; ``absolute``: for Milena's own. The others compare
    the compiled flavour with the pure one and with kfake."""

    about: str
    ratio: float | None = None
    absolute: float | None = None
    more_is_better: bool = False
    to_pure: float | None = None
    to_kfake: float | None = None
    above_pure: float | None = None
    compiled: bool = False
    """``absolute`` is for the compiled flavour only."""


def _of_spark(name: str, about: str) -> dict[str, Goal]:
    """The rate of Milena's source divided by that of Spark's connector with Kafka; and with Milena."""
    return {
        f"{name}_mb_s": Goal(f"{about}: source from the tier, Kafka: connector, MB/s", 2, more_is_better=True),
        f"{name}_cpu_ms_mb": Goal("the same, processor time of driver and workers, ms/MB"),
        f"{name}_connector_mb_s": Goal("the connector from Milena's brokers, MB/s"),
        f"{name}_share": Goal("the source through that", None, 2, more_is_better=True, compiled=True),
    }


def _of_transactions(prefix: str, about: str) -> dict[str, Goal]:
    """The figures of transactions of some records in some partitions, and of ProducerPerformance."""
    found = {}
    for partitions in ("1", "10"):
        for records in ("1", "10", "100"):
            name = f"{prefix}_{records}_{partitions}"
            size = f"{about}: transactions of {records} records, {partitions} partitions".replace(
                " 1 records", " 1 record"
            ).replace(" 1 partitions", " 1 partition")
            found[f"{name}_per_s"] = Goal(f"{size}, a second", 2, more_is_better=True)
            found[f"{name}_commit_p50_ms"] = Goal(f"{size}, commit p50 ms", 0.5)
            found[f"{name}_commit_p99_ms"] = Goal(f"{size}, commit p99 ms", 0.5)
    performance = f"{about}: ProducerPerformance, transactions of 100 ms, MB/s"
    return {**found, f"{prefix}_produce_mb_s": Goal(performance, 1.5, more_is_better=True)}


GOALS: Mapping[str, Goal] = {
    "ready_s": Goal("three brokers, exec to ready, s", 1 / 8, 1.0, to_pure=1.05),
    "first_write_s": Goal("exec to first acknowledged write, s"),
    "single_node_listens_s": Goal("one node, exec to listening, s", None, 0.15),
    "idle_memory_mib": Goal("idle broker, resident MiB", 1 / 6, 40, above_pure=3),
    "idle_proportional_mib": Goal("idle broker, shared pages divided among the processes, MiB"),
    "idle_cpu_percent": Goal("idle broker, % of a core", 1.0),
    "produce_p50_ms": Goal("produce acks=1, p50 ms", 1.0, 0.20, to_kfake=1),
    "produce_p99_ms": Goal("produce acks=1, p99 ms", 1.0, 0.5, to_kfake=2),
    "produce_cpu_us": Goal("produce acks=1, broker's CPU per request, us", to_pure=0.55),
    "crowd_produce_cpu_us": Goal("produce acks=1, 200 connections, broker's CPU per request, us", to_pure=0.55),
    "end_to_end_p50_ms": Goal("end to end, p50 ms", 0.7),
    "end_to_end_p99_ms": Goal("end to end, p99 ms"),
    "fan_out_p50_ms": Goal("a record to 10 waiting consumers, p50 ms"),
    "fan_out_p99_ms": Goal("a record to 10 waiting consumers, p99 ms"),
    "fan_out_cpu_us": Goal("a record to 10 waiting consumers, broker's CPU, us", to_pure=0.6),
    "rebalance_s": Goal("500 members of a group rejoin, s"),
    "rebalance_cpu_s": Goal("500 members of a group rejoin, broker's CPU, s"),
    "produce_mb_s": Goal("ProducerPerformance, MB/s", 1.0, None, more_is_better=True),
    "consume_mb_s": Goal("ConsumerPerformance, MB/s", 1.0, None, more_is_better=True),
    "librdkafka_consume_mb_s": Goal("librdkafka consumer, MB/s", None, None, more_is_better=True),
    "checked_16k_none_mb_s": Goal("produce batches of 160 x 100 bytes, none, MB/s", 1.0, None, more_is_better=True),
    "checked_16k_gzip_mb_s": Goal("produce batches of 160 x 100 bytes, gzip, MB/s", 1.0, None, more_is_better=True),
    "checked_16k_snappy_mb_s": Goal("produce batches of 160 x 100 bytes, snappy, MB/s", 1.0, None, more_is_better=True),
    "checked_16k_lz4_mb_s": Goal("produce batches of 160 x 100 bytes, lz4, MB/s", 1.0, None, more_is_better=True),
    "checked_16k_zstd_mb_s": Goal("produce batches of 160 x 100 bytes, zstd, MB/s", 1.0, None, more_is_better=True),
    "checked_1m_none_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, none, MB/s", 1.0, None, more_is_better=True),
    "checked_1m_gzip_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, gzip, MB/s", 1.0, None, more_is_better=True),
    "checked_1m_snappy_mb_s": Goal(
        "produce batches of 1,000 x 1,000 bytes, snappy, MB/s", 1.0, None, more_is_better=True
    ),
    "checked_1m_lz4_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, lz4, MB/s", 1.0, None, more_is_better=True),
    "checked_1m_zstd_mb_s": Goal("produce batches of 1,000 x 1,000 bytes, zstd, MB/s", 1.0, None, more_is_better=True),
    "scan_key_and_value_ns": Goal("scan of records, key and value, ns a record"),
    "scan_all_fields_ns": Goal("scan of records, objects with all fields, ns a record"),
    "scan_check_only_ns": Goal("scan of records, check only, ns a record"),
    "scan_aiokafka_key_and_value_ns": Goal("aiokafka's reader (Cython), key and value, ns a record"),
    "scan_key_and_value_share": Goal("scan of key and value / aiokafka's", None, 1.2, compiled=True),
    "scan_check_only_share": Goal("check only / aiokafka's scan", None, 0.3, compiled=True),
    "loaded_memory_mib": Goal("loaded broker, resident MiB", 1 / 6, 50),
    "replicated_produce_p50_ms": Goal("3 replicas: produce acks=all, p50 ms", 0.6),
    "replicated_produce_p99_ms": Goal("3 replicas: produce acks=all, p99 ms", 0.3),
    "replicated_produce_cpu_us": Goal("3 replicas: produce acks=all, leader's CPU per request, us", to_pure=0.7),
    "replicated_idle_p50_ms": Goal("3 replicas: p50 with 1,000 (SHORT: 300) idle partitions, ms"),
    "replicated_idle_growth": Goal("3 replicas: p50 with idle partitions / p50 without", None, 1.1),
    "replicated_busy_p99_ms": Goal("3 replicas: p99 under 10 MB/s of other load, ms", None, 3.0),
    "replicated_end_to_end_p50_ms": Goal("3 replicas: end to end, p50 ms"),
    "replicated_end_to_end_p99_ms": Goal("3 replicas: end to end, p99 ms"),
    "replicated_six_mb_s": Goal("ProducerPerformance acks=all, 6 partitions, MB/s", 1.5, None, more_is_better=True),
    "replicated_six_cpu_ms_mb": Goal(
        "ProducerPerformance acks=all, 6 partitions, CPU of all brokers, ms/MB", to_pure=0.7
    ),
    "replicated_one_mb_s": Goal("ProducerPerformance acks=all, 1 partition, MB/s", 1.5, None, more_is_better=True),
    "replicated_one_cpu_ms_mb": Goal("ProducerPerformance acks=all, 1 partition, CPU of all brokers, ms/MB"),
    "replicated_memory_mib": Goal("ProducerPerformance acks=all, broker's resident MiB", None, 60),
    "wiped_follower_mb_s": Goal("a wiped follower copies, MB/s", 1.0, None, more_is_better=True),
    "leader_killed_s": Goal("kill -9 of a leader to the next acknowledged write, s", 1.0, 8.95),
    **_of_transactions("transactions", "1 replica"),
    "read_committed_mb_s": Goal("librdkafka consumer, read_committed, MB/s", more_is_better=True),
    "read_committed_share": Goal("the same / read_uncommitted", None, 0.95, more_is_better=True, compiled=True),
    **_of_transactions("replicated_transactions", "3 replicas"),
    "transactional_ids_memory_mib": Goal("broker with 100,000 (SHORT: 20,000) transactional ids, resident MiB", 1 / 5),
    "transactional_ids_added_mib": Goal("the same, added by them, MiB"),
    "transactional_ids_s": Goal("the same, InitProducerId of all of them over one connection, s"),
    "create_1000_partitions_s": Goal("1,000 partitions created and led, s", None, 1.0),
    "partitions_memory_mib": Goal("1,000 partitions on one broker, added MiB", None, 20),
    "reset_ms": Goal("3 brokers: reset with 10 topics of 20 partitions, 4 groups, ms", None, 50),
    "reset_replicated_ms": Goal("3 brokers: the same with 3 replicas, ms", None, 50),
    "reset_thousand_ms": Goal("3 brokers: reset with 10 topics of 100 partitions, 4 groups, ms"),
    "snapshot_ms": Goal("3 brokers: snapshot of 10 topics of 20 partitions, 4 groups, ms"),
    "restore_ms": Goal("3 brokers: that snapshot restored (Kafka: folders copied and started again), ms", None, 500),
    "create_many_s": Goal("10,000 partitions (SHORT: 2,000) created and led, s"),
    "restart_many_s": Goal("10,000 partitions (SHORT: 2,000), restart until all are led, s"),
    "many_memory_mib": Goal("10,000 partitions (SHORT: 2,000), broker's resident MiB"),
    "cleaned_mb_s": Goal("a log of 1 GB (SHORT: 100 MB) compacted to a tenth, MB/s", 1.0, None, more_is_better=True),
    "cleaning_produce_p99_ms": Goal("produce acks=all during compaction, p99 ms"),
    "cleaning_produce_growth": Goal("p99 during compaction / p99 before", None, 2),
    "cleaner_memory_mib": Goal("cleaner process, peak resident MiB"),
    "tier_cleaned_mb_s": Goal("tier: that log compacted in the tier, MB/s"),
    "tier_cleaning_produce_p99_ms": Goal("tier: produce acks=all during compaction in the tier, p99 ms"),
    "tier_cleaning_produce_growth": Goal("tier: p99 during compaction in the tier / p99 before", None, 2),
    "tier_cleaner_memory_mib": Goal("tier: cleaner process, peak resident MiB"),
    "tier_consume_cold_mb_s": Goal("tier: ConsumerPerformance, cold index cache, MB/s", 1.5, None, more_is_better=True),
    "tier_consume_warm_mb_s": Goal("tier: ConsumerPerformance, warm index cache, MB/s", 1.5, None, more_is_better=True),
    "tier_consume_share": Goal(
        "tier: ConsumerPerformance from the tier / from local segments", None, 0.8, more_is_better=True
    ),
    "tier_copied_s": Goal("tier: 300 MB copied and locally deleted under 10 MB/s, s", 1.0),
    "tier_copy_produce_p99_ms": Goal("tier: produce acks=all during the copy, p99 ms"),
    "tier_copy_produce_growth": Goal("tier: p99 during the copy / p99 before", None, 2),
    "tier_read_produce_p99_ms": Goal("tier: produce acks=all while a consumer reads the tier, p99 ms"),
    "tier_read_produce_growth": Goal("tier: that p99 / p99 before", None, 2),
    "tier_read_fetch_p99_ms": Goal("tier: local fetch while a consumer reads the tier, p99 ms"),
    "tier_read_fetch_growth": Goal("tier: p99 of that fetch / p99 before", None, 2),
    **_of_spark("spark", "Spark on local[2]"),
    "spark_rows_s": Goal("the same, rows a second"),
    "spark_memory_mib": Goal("the same, most resident MiB of driver and workers"),
    "spark_made_mb_s": Goal("Spark with a source in Python that reads nothing, MB/s"),
    "spark_made_cpu_ms_mb": Goal("the same, processor time, ms/MB"),
    "spark_connector_memory_mib": Goal("the connector from Milena, most resident MiB of the driver"),
    **_of_spark("spark_one_core", "Spark on local[1]"),
    **_of_spark("spark_gzip", "Spark on local[2], gzip"),
    **_of_spark("spark_snappy", "Spark on local[2], snappy"),
    **_of_spark("spark_lz4", "Spark on local[2], lz4"),
    **_of_spark("spark_zstd", "Spark on local[2], zstd"),
    "history_check_s": Goal("20 million (SHORT: 0.2) operations judged in one process, s a million", None, 60),
    "history_check_cpu_s": Goal("the same, processor time a million, s"),
    "history_check_memory_mib": Goal("the same, most resident MiB"),
    "console_1000_scroll_task_ms": Goal("console, 1,000 partitions, scrolling: longest task, ms", None, 100),
    "console_10000_first_view_s": Goal("console, 10,000 partitions: first view, s", None, 3),
    "console_10000_update_task_ms": Goal("console, 10,000 partitions, updates: longest task, ms", None, 250),
    "pages_1000_steps_task_ms": Goal("page of a scenario, 1,000 steps, arrow keys: longest task, ms", None, 100),
    "pages_10000_lines_task_ms": Goal("page of a run, 10,000 lines, arrow keys: longest task, ms", None, 100),
    "tier_follower_s": Goal("empty follower of 1,000 remote segments and 20 MB joins the ISR, s", None, 2),
    "remote_segments_mib": Goal("10,000 remote segments, MiB", None, 10),
    "remote_look_up_us": Goal("10,000 remote segments, look-up by (epoch, offset), us", None, 5),
    "remote_snapshot_s": Goal("100,000 remote segments from their snapshot, s", None, 5),
}


def rows(results: Mapping[str, Mapping[str, float]], names: Collection[str] = GOALS) -> list[Row]:
    """Return a head and the measured figures of ``names``, with Milena's ratios to Kafka and to the pure build.

    Milena's figure is that of the compiled build if it was measured, and the goals are for that build.
    """
    there = [name for name in COLUMNS if name in results]
    own = there[0]
    found = []
    for name, goal in GOALS.items():
        if name not in names:
            continue
        values = {column: results[column][name] for column in there if name in results[column]}
        if values:
            found.append(_row(goal, values, own, there))
    beside = ["to pure"] if own == COMPILED else []
    return [("figure", *(COLUMNS[name] for name in there), "to Kafka", *beside, "goal", ""), *found]


def report(results: Mapping[str, Mapping[str, float]]) -> str:
    """Align the rows in columns."""
    table = rows(results)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)


def _row(goal: Goal, values: Mapping[str, float], own: str, there: Sequence[str]) -> Row:
    wishes, kept = [], []
    for wish, met in _judged(goal, values, own):
        wishes.append(wish)
        kept += [] if met is None else [met]
    verdict = "" if not kept else "met" if all(kept) else "missed"
    shown = [f"{values[name]:.3g}" if name in values else "-" for name in there]
    ratios = [_ratio(values, own, name) for name in ([KAFKA, PURE] if own == COMPILED else [KAFKA])]
    written = ["-" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
    return goal.about, *shown, *written, ", ".join(wishes), verdict if own in values else "not measured"


def _judged(goal: Goal, values: Mapping[str, float], own: str) -> Iterator[tuple[str, bool | None]]:
    """Return the goal and whether it is met; None if it was not measured."""
    sign = ">=" if goal.more_is_better else "<="
    mine = values.get(own)

    def holds(found: float | None, limit: float) -> bool | None:
        return None if found is None else found >= limit if goal.more_is_better else found <= limit

    for name, limit in ((KAFKA, goal.ratio), (PURE, goal.to_pure), (KFAKE, goal.to_kfake)):
        if limit is not None and not (name == PURE and own == PURE):
            whose = "" if name == KAFKA else f" {name}"
            yield f"{sign} {limit:.3g} x{whose}", holds(_ratio(values, own, name), limit)
    if goal.above_pure is not None and own != PURE:
        more = None if mine is None or PURE not in values else mine - values[PURE]
        yield f"<= pure + {goal.above_pure:g}", holds(more, goal.above_pure)
    if goal.absolute is not None and not (goal.compiled and own == PURE):
        yield f"{sign} {goal.absolute:g}", holds(mine, goal.absolute)


def _ratio(values: Mapping[str, float], own: str, other: str) -> float | None:
    return values[own] / values[other] if own in values and values.get(other) else None
