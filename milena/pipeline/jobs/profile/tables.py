"""The tables of a profile, computed from records: functions from DataFrame to DataFrame. Each unit of work gives a part
of each table; the parts are merged at the end."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from milena.pipeline.jobs.rows import LAST_MS

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
"""The columns of the source that a profile reads."""
MAX_KEYS: Final = 1000
"""The maximum number of keys of a topic that are kept for a unit."""
KEY_BYTES: Final = 64
"""The maximum number of bytes of a key that are kept, to show it."""
PARTITIONS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("records", LongType()),
        StructField("keyBytes", LongType()),
        StructField("valueBytes", LongType()),
        StructField("largest", LongType()),
        StructField("nullKeys", LongType()),
        StructField("nullValues", LongType()),
        StructField("firstOffset", LongType()),
        StructField("lastOffset", LongType()),
        StructField("first", TimestampType()),
        StructField("last", TimestampType()),
        StructField("backwards", LongType()),
        StructField("latest", LongType()),
        StructField("sizes", BinaryType()),
        StructField("keys", BinaryType()),
        StructField("lateness", BinaryType()),
    ]
)
"""PARTITIONS: one row per partition and unit. ``largest``: bytes of key and value of the largest record; ``first`` and
``last``: timestamps; ``backwards``: the number of records whose timestamp is lower than one before them in their
partition and unit; ``latest``: the largest such difference, in ms; ``sizes`` and ``lateness``: KLL sketches of bytes
and ms; ``keys``: an HLL sketch."""
RATES: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("time", TimestampType()),
        StructField("records", LongType()),
        StructField("bytes", LongType()),
    ]
)
"""RATES: one row per topic, unit and interval of STEP seconds, by the records' timestamps."""
KEYS: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("key", BinaryType()),
        StructField("length", IntegerType()),
        StructField("hash", LongType()),
        StructField("records", LongType()),
        StructField("bytes", LongType()),
        StructField("passed", LongType()),
    ]
)
"""KEYS: the keys of a topic with the most records in a unit. ``key``: its first KEY_BYTES bytes. ``passed``: the
maximum number of records of a key that is not in the table; 0 if all keys are."""
STEP: Final = 60
"""The width of an interval of ``rates``, in seconds."""


def sized(records: DataFrame) -> DataFrame:
    """Return records without their values: with sizes, keys cut to KEY_BYTES, and timestamps of at most LAST_MS."""
    return records.select(
        "topic",
        "partition",
        "offset",
        f.least("timestamp", f.timestamp_millis(f.lit(LAST_MS))).alias("timestamp"),
        f.substring("key", 1, KEY_BYTES).alias("key"),
        f.octet_length("key").alias("length"),
        f.xxhash64("key").alias("hash"),
        f.octet_length("value").alias("valueLength"),
        (f.coalesce(f.octet_length("key"), f.lit(0)) + f.coalesce(f.octet_length("value"), f.lit(0)))
        .cast("long")
        .alias("size"),
    )


def late(records: DataFrame) -> DataFrame:
    """Return ``sized`` records with the column ``late``: by how many ms the timestamp is below the highest timestamp
    before it in the partition."""
    rows = "rows between unbounded preceding and 1 preceding"
    before = f"max(timestamp) over (partition by topic, partition order by offset {rows})"
    behind = f.expr(f"unix_millis({before}) - unix_millis(timestamp)")
    return records.withColumn("late", f.greatest(f.coalesce(behind, f.lit(0)), f.lit(0)).cast("long"))


def by_partition(records: DataFrame) -> DataFrame:
    """Return PARTITIONS for records with the column ``late``."""
    made = records.groupBy("topic", "partition").agg(
        f.count("*").alias("records"),
        _sum("length").alias("keyBytes"),
        _sum("valueLength").alias("valueBytes"),
        f.max("size").alias("largest"),
        f.count_if(f.col("length").isNull()).alias("nullKeys"),
        f.count_if(f.col("valueLength").isNull()).alias("nullValues"),
        f.min("offset").alias("firstOffset"),
        f.max("offset").alias("lastOffset"),
        f.min("timestamp").alias("first"),
        f.max("timestamp").alias("last"),
        f.count_if(f.col("late") > 0).alias("backwards"),
        f.max("late").alias("latest"),
        f.kll_sketch_agg_bigint("size").alias("sizes"),
        f.hll_sketch_agg(f.when(f.col("length").isNotNull(), f.col("hash"))).alias("keys"),
        f.kll_sketch_agg_bigint("late").alias("lateness"),
    )
    return made.select(*PARTITIONS.fieldNames())


def _sum(name: str) -> Column:
    return f.coalesce(f.sum(f.col(name).cast("long")), f.lit(0))


def by_time(records: DataFrame) -> DataFrame:
    """Return RATES for ``sized`` records."""
    step = f.timestamp_seconds(f.floor(f.unix_seconds("timestamp") / STEP) * STEP)
    return records.groupBy("topic", step.alias("time")).agg(f.count("*").alias("records"), f.sum("size").alias("bytes"))


def by_key(records: DataFrame) -> DataFrame:
    """Return KEYS for ``sized`` records."""
    named = records.where("length is not null")
    counted = named.groupBy("topic", "key", "length", "hash").agg(
        f.count("*").alias("records"), f.sum("size").alias("bytes")
    )
    place = f.expr("row_number() over (partition by topic order by records desc, hash)")
    ranked = counted.withColumn("place", place).where(f.col("place") <= MAX_KEYS + 1)
    passed = f.expr(f"coalesce(max(case when place > {MAX_KEYS} then records end) over (partition by topic), 0)")
    kept = ranked.withColumn("passed", passed).where(f.col("place") <= MAX_KEYS)
    return kept.select(*KEYS.fieldNames())


def partitions(parts: DataFrame) -> DataFrame:
    """Return one row for each partition from PARTITIONS of all units, with quantiles in place of sketches."""
    made = parts.groupBy("topic", "partition").agg(
        *(f.sum(name).alias(name) for name in ("records", "keyBytes", "valueBytes")),
        f.max("largest").alias("largest"),
        *(f.sum(name).alias(name) for name in ("nullKeys", "nullValues")),
        f.min("firstOffset").alias("firstOffset"),
        f.max("lastOffset").alias("lastOffset"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.sum("backwards").alias("backwards"),
        f.max("latest").alias("latest"),
        f.kll_merge_agg_bigint("sizes").alias("sizes"),
        f.hll_union_agg("keys").alias("keys"),
        f.kll_merge_agg_bigint("lateness").alias("lateness"),
    )
    return _resolved(made)


def topics(parts: DataFrame) -> DataFrame:
    """Return one row for each topic from PARTITIONS of all units. ``skew``: the number of records of the largest
    partition, divided by the mean."""
    of_partitions = parts.groupBy("topic", "partition").agg(f.sum("records").alias("records"))
    skew = of_partitions.groupBy("topic").agg(
        f.count("*").alias("partitions"), (f.max("records") / f.avg("records")).alias("skew")
    )
    made = parts.groupBy("topic").agg(
        *(f.sum(name).alias(name) for name in ("records", "keyBytes", "valueBytes")),
        f.max("largest").alias("largest"),
        *(f.sum(name).alias(name) for name in ("nullKeys", "nullValues")),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
        f.sum("backwards").alias("backwards"),
        f.max("latest").alias("latest"),
        f.kll_merge_agg_bigint("sizes").alias("sizes"),
        f.hll_union_agg("keys").alias("keys"),
        f.kll_merge_agg_bigint("lateness").alias("lateness"),
    )
    return _resolved(made).join(skew, "topic")


def _resolved(made: DataFrame) -> DataFrame:
    for name in ("sizes", "lateness"):
        for text, rank in (("50", 0.5), ("99", 0.99)):
            quantile = f.kll_sketch_get_quantile_bigint(name, f.lit(rank))
            made = made.withColumn(f"{name}{text}", quantile)
    return made.withColumn("distinctKeys", f.hll_sketch_estimate("keys")).drop("sizes", "keys", "lateness")


def rates(parts: DataFrame) -> DataFrame:
    """Return the merged RATES of all units."""
    made = parts.groupBy("topic", "time").agg(f.sum("records").alias("records"), f.sum("bytes").alias("bytes"))
    return made.select(*RATES.fieldNames())


def keys(parts: DataFrame) -> DataFrame:
    """Return the most frequent keys of each topic from KEYS of all units. ``records``: the number of records counted,
    which may be too low by at most ``missed``."""
    bound = parts.groupBy("topic", "unit").agg(f.max("passed").alias("passed"))
    bound = bound.groupBy("topic").agg(f.sum("passed").alias("whole"))
    made = parts.groupBy("topic", "key", "length", "hash").agg(
        f.sum("records").alias("records"), f.sum("bytes").alias("bytes"), f.sum("passed").alias("counted")
    )
    made = made.join(bound, "topic").withColumn("missed", f.col("whole") - f.col("counted"))
    place = f.expr("row_number() over (partition by topic order by records desc, hash)")
    ranked = made.withColumn("place", place).where(f.col("place") <= MAX_KEYS)
    return ranked.select("topic", "key", "length", "records", "bytes", "missed", "place")
