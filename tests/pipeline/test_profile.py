"""The job ``profile`` and its steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from milena.pipeline.jobs.profile import page, tables
from milena.pipeline.jobs.profile.job import profile
from milena.pipeline.jobs.profile.page import shown_key
from milena.pipeline.jobs.units import Unit, planned
from milena.pipeline.options import source_options
from milena.pipeline.position import Position
from tests.pipeline.made_tiers import TIME, MadeTier, run

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RECORDS = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary"


def row(offset: int, seconds: float, key: bytes | None = b"k", value: bytes | None = b"v") -> tuple[object, ...]:
    return "orders", 0, offset, BEGIN + timedelta(seconds=seconds), key, value


def test_steps_count_keys_late_records_and_tombstones(spark: SparkSession) -> None:
    rows = [row(0, 0), row(1, 61, b"other"), row(2, 59.5, None, b"value"), row(3, 62, b"k", None)]
    records = tables.late(tables.sized(spark.createDataFrame(rows, RECORDS))).cache()
    one = tables.topics(tables.by_partition(records)).first()
    assert one is not None
    assert (one.records, one.keyBytes, one.valueBytes, one.largest) == (4, 7, 7, 6)
    assert (one.nullKeys, one.nullValues, one.distinctKeys, one.skew) == (1, 1, 2, 1.0)
    assert (one.backwards, one.latest, one.sizes50) == (1, 1500, 2)
    rates = tables.rates(tables.by_time(records)).orderBy("time").collect()
    assert [(one.records, one.bytes) for one in rates] == [(2, 7), (2, 7)]
    keys = tables.keys(tables.by_key(records).withColumn("unit", f.lit(0))).orderBy("place").collect()
    assert [(bytes(one.key), one.records, one.missed) for one in keys] == [(b"k", 2, 0), (b"other", 1, 0)]


def test_a_key_that_some_units_did_not_keep_has_a_bound_of_missed_records(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MAX_KEYS", 1)

    def unit(number: int, *keys: bytes) -> list[tuple[object, ...]]:
        return [row(number * 100 + at, at, key) for at, key in enumerate(keys)]

    parts = [
        tables.by_key(tables.sized(spark.createDataFrame(rows, RECORDS))).withColumn("unit", f.lit(at))
        for at, rows in enumerate([unit(0, b"a", b"a", b"b"), unit(1, b"b", b"b", b"b", b"a", b"a")])
    ]
    one = tables.keys(parts[0].unionByName(parts[1])).first()
    assert one is not None
    # b has 4 records: 3 were counted, and the unit that did not keep b has at most 1 of it.
    assert (bytes(one.key), one.records, one.missed) == (b"b", 3, 1)


def test_an_interrupted_profile_continues_with_its_plan(
    spark: SparkSession, made: MadeTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milena.pipeline.jobs.profile.job.UNIT_BYTES", 4000)
    made.add(run(0, 100))
    made.add(run(100, 250))
    place, chosen, folder = {"tier": str(made.folder)}, {"subscribePattern": ".*"}, str(tmp_path / "profile")

    def stop(what: str, done: int, whole: int, unit: str) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        profile(spark, place, chosen, folder, progress=stop)
    made.add(run(250, 300))  # this segment is not in the plan
    steps: list[int] = []
    result = profile(spark, place, chosen, folder, progress=lambda what, done, whole, unit: steps.append(done))
    assert result.offsets == 250 and steps[0] > 0
    topic = spark.read.parquet(str(tmp_path / "profile" / "topics")).first()
    assert topic is not None
    assert (topic.records, topic.distinctKeys) == (250, 10)
    assert topic.first == datetime.fromtimestamp(TIME / 1000)
    keys = spark.read.parquet(str(tmp_path / "profile" / "keys"))
    assert keys.agg(f.count("*"), f.sum("records"), f.max("missed")).first() == (10, 250, 0)
    assert "250 records in 1 topic" in Path(result.page).read_text()


def test_minutes_without_records_are_gaps_of_the_page(spark: SparkSession) -> None:
    rows = [("orders", BEGIN + timedelta(minutes=at), 60, 60) for at in (0, 1, 9)]
    rates = spark.createDataFrame(rows, "topic string, time timestamp, records long, bytes long")
    for plot in page._rates(rates, ["orders"]).plots:
        assert [one is None for one in plot.series[0].ys] == [False, False, True, False]


def test_a_plan_is_kept_as_json_and_covers_each_offset_once(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(100, 250))
    made.add(run(0, 10), number=1)
    options = source_options({"tier": str(made.folder), "subscribe": "orders"})
    units = planned(options, Position({("orders", 0): 40}), 2000)
    assert [Unit.of(one.plain()) for one in units] == units and len(units) == 3
    covered = [(place, at) for one in units for place, (first, end) in one.ranges.items() for at in range(first, end)]
    assert sorted(covered) == [(("orders", 0), at) for at in range(40, 250)] + [(("orders", 1), at) for at in range(10)]


def test_printable_keys_are_shown_as_text_and_others_in_hex() -> None:
    assert shown_key(b"order-7", 7) == "order-7"
    assert shown_key(b"\x00\x01", 2) == "0001"
    assert shown_key(b"ab", 70) == "ab…"


def test_a_timestamp_beyond_all_calendars_does_not_fail_a_profile(
    spark: SparkSession, made: MadeTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.add(run(0, 20))
    # The timestamps are those of a producer that writes microseconds.
    monkeypatch.setattr("tests.pipeline.made_tiers.TIME", 1_700_000_000_000_000)
    made.add(run(20, 30))
    result = profile(spark, {"tier": str(made.folder)}, {"subscribe": "orders"}, str(tmp_path / "profile"))
    assert "<dt>not in the tier</dt><dd>unknown without" in Path(result.page).read_text()
    assert result.offsets == 30 and "30 records in 1 topic" in Path(result.page).read_text()
