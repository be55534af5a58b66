"""A read with a condition returns the rows that Spark selects from all rows by evaluating the condition itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from milena.pipeline import PUSHDOWN, register
from tests.pipeline.made_tiers import TIME, MadeTier, run

ZONE = "spark.sql.session.timeZone"
COUNT = int(os.environ.get("MILENA_CONDITIONS", "12"))
COLUMNS = ("topic", "partition", "offset")
ODD = [
    "offset in (null, 5)",
    "not (offset in (null, 5))",
    "offset = null or partition = 1",
    "not (offset <=> 5) and offset < 9",
    "offset <=> null",
    "topic is not null and not (topic = 'orders')",
    "not (offset > 3 and partition = 0)",
    "offset > 9.5 and offset < '17'",
    "offset > 9223372036854775807",
    "offset < -5 or partition = 3000000000",
    "offset >= 7 and offset <= 3",
    "timestamp > timestamp'0001-01-01 00:00:00' and timestamp < timestamp'9999-12-30 23:59:59' and offset = 3",
    "timestamp < timestamp'+12000-01-01 00:00:00' and offset = 4",
    "timestamp > timestamp'-4000-01-01 00:00:00' and offset = 5",
    "timestamp >= timestamp'+12000-01-01 00:00:00'",
    "timestamp = timestamp'2023-11-14 22:13:25Z'",
    "timestamp >= timestamp_ntz'2023-11-14 22:13:55'",
    "timestamp >= timestamp'2023-11-14 22:13:50.000001Z' and timestamp <= timestamp'2023-11-14 22:13:52Z'",
    "to_date(timestamp) = date'2023-11-14' and offset in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 100)",
    "topic in ('orders', null) and partition in (1, 7)",
    "topic like 'ord%' and key = X'6B33'",
    "key is null",
]


def conditions(random: Random, count: int) -> Iterator[str]:
    for _ in range(count):
        yield _condition(random, 2)


def _condition(random: Random, depth: int) -> str:
    if depth and random.random() < 0.7:
        kind = random.choice(["and", "and", "and", "or", "not"])
        if kind == "not":
            return f"not ({_condition(random, depth - 1)})"
        return f"({_condition(random, depth - 1)}) {kind} ({_condition(random, depth - 1)})"
    column = random.choice(["topic", "partition", "offset", "timestamp"])
    if random.random() < 0.25:
        values = ", ".join(_value(random, column) for _ in range(random.randint(1, 4)))
        return f"{column} {random.choice(['in', 'not in'])} ({values})"
    return f"{column} {random.choice(['=', '<=>', '!=', '<', '<=', '>', '>='])} {_value(random, column)}"


def _value(random: Random, column: str) -> str:
    if random.random() < 0.1:
        return "null"
    if column == "topic":
        return random.choice(["'orders'", "'others'", "'p'"])
    if column == "partition":
        return str(random.randint(-1, 2))
    if column == "offset":
        return str(random.randint(-2, 45))
    zone = random.choice(["Z", "", "+02:00"])
    second = random.randint(10, 59)
    return f"timestamp'2023-11-14 22:13:{second}{random.choice(['', '.5'])}{zone}'"


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> MadeTier:
    made = MadeTier(tmp_path_factory.mktemp("filtered") / "tier")
    for topic in ("orders", "others"):
        for number in range(2):
            for first in (0, 15, 30):
                made.add(run(first, first + 15, by=4), topic=topic, number=number)
    return made


def reading(spark: SparkSession, tier: MadeTier, **options: str) -> DataFrame:
    return spark.read.format("milena").options(subscribePattern="o.*", **options).load(str(tier.folder))


def places(frame: DataFrame) -> set[tuple[object, ...]]:
    rows = frame.select(*COLUMNS).collect()
    assert len({tuple(row) for row in rows}) == len(rows)
    return {tuple(row) for row in rows}


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_read_with_a_condition_equals_a_filtered_read_without_one(
    spark: SparkSession, tier: MadeTier, zone: str
) -> None:
    assert TIME == 1_700_000_000_000  # 2023-11-14 22:13:20 UTC, the timestamp of offset 0
    session = register(spark.newSession())
    session.conf.set(ZONE, zone)
    frame = reading(session, tier)
    every = [*ODD, *conditions(Random(zone), COUNT)]
    wanted = frame.select(*COLUMNS, "timestamp", "key")
    whole = session.createDataFrame(wanted.collect(), wanted.schema)
    evaluated = whole.select(*COLUMNS, *(expr(one).alias(str(at)) for at, one in enumerate(every))).collect()
    wrong = []
    for at, one in enumerate(every):
        expected = {tuple(row[name] for name in COLUMNS) for row in evaluated if row[str(at)]}
        found = places(frame.where(one))
        if found != expected:
            wrong.append(f"{one}: {sorted(found ^ expected)[:5]}")
    assert not wrong


def test_reads_can_be_joined_cached_and_run_in_two_sessions_at_once(spark: SparkSession, tier: MadeTier) -> None:
    frame = reading(spark, tier)
    low, high = frame.where("offset < 20 and topic = 'orders'"), frame.where("offset >= 15 and partition = 1")
    both = low.alias("a").join(high.alias("b"), ["topic", "offset"])
    assert places(both.select("topic", "a.partition", "offset")) == {
        ("orders", number, at) for number in range(2) for at in range(15, 20)
    }
    kept = frame.where("partition = 0").cache()
    try:
        assert kept.count() == 90
        assert kept.where("offset = 3").count() == 2 and frame.where("offset = 3").count() == 4
    finally:
        kept.unpersist()
    mine, theirs = reading(spark, tier), reading(register(spark.newSession()), tier)
    assert mine.where("offset > 40").count() == theirs.where("offset > 40").count() == 16


def test_a_query_without_a_condition_returns_all_rows_after_one_with_a_condition(
    spark: SparkSession, tier: MadeTier
) -> None:
    # Spark 4.2 plans a Python source with filters only once for all queries of a load, with the filters of one query.
    for pushdown in ("true", "false"):
        session = register(spark.newSession())
        session.conf.set(PUSHDOWN, pushdown)
        frame = reading(session, tier)
        assert (frame.where("offset > 40").count(), frame.count()) == (16, 180)
        parts = [frame.where("partition = 0 and offset < 10"), frame.where("partition = 1 and offset < 5")]
        assert parts[0].union(parts[1]).count() == 30


def test_the_source_applies_conditions_if_an_option_requests_it(spark: SparkSession, tier: MadeTier) -> None:
    session = register(spark.newSession())
    session.conf.set(PUSHDOWN, "true")
    found = {
        one: places(reading(session, tier, pushFilters="true").where(one))
        for one in ("offset > 40", "not (offset > 2) and partition = 1", "topic = 'orders' and offset in (7, null)")
    }
    assert [len(rows) for rows in found.values()] == [16, 6, 2]


def test_a_cached_read_does_not_show_later_records(spark: SparkSession, tmp_path: Path) -> None:
    made = MadeTier(tmp_path / "tier")
    made.add(run(0, 10), topic="orders")
    frame = reading(spark, made)
    kept = frame.persist()
    assert kept.count() == 10
    made.add(run(10, 15), topic="orders")
    assert kept.count() == 10
    kept.unpersist()
    assert reading(spark, made).count() == 15
