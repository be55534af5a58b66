"""The source in a Spark session, as users have it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count
from pyspark.sql.functions import max as greatest

from milena.pipeline import register
from milena.pipeline.session import check_jdk
from tests.pipeline.made_tiers import TIME, MadeTier, run


def test_a_stock_session_reads_once_the_format_is_registered(spark: SparkSession, made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(100, 250))
    stock = spark.newSession()
    stock.conf.unset("spark.sql.python.filterPushdown.enabled")
    frame = register(register(stock)).read.format("milena").option("subscribe", "orders").load(str(made.folder))
    assert frame.select(count("*"), greatest("offset")).first() == (250, 249)
    late = frame.where((col("offset") >= 40) & (col("timestamp") >= time_of(240))).select("offset")
    assert [row.offset for row in late.collect()] == list(range(240, 250))
    assert frame.where("key = 'k3' and partition = 0 and topic in ('orders', 'x')").count() == 25


def time_of(offset: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(TIME / 1000 + offset))


def test_a_schema_chooses_columns_and_a_wrong_one_is_named(spark: SparkSession, made: MadeTier) -> None:
    made.add(run(0, 10))
    reading = spark.read.format("milena").option("tier", str(made.folder)).option("subscribe", "orders")
    assert reading.schema("offset long, value binary").load().first() == (0, bytearray(b"v0"))
    with pytest.raises(PySparkException, match="column value is of type binary, not string: use cast"):
        reading.schema("value string").load().collect()


def test_errors_name_option_and_object_also_through_spark(spark: SparkSession, made: MadeTier) -> None:
    segment = made.add(run(0, 10))
    reading = spark.read.format("milena").option("tier", str(made.folder))
    with pytest.raises(PySparkException, match="there is no topic nothing; there are orders"):
        reading.option("subscribe", "nothing").load().collect()
    frame = reading.option("subscribe", "orders").load()
    data = bytearray(made.log(segment).read_bytes())
    data[-1] ^= 1
    made.log(segment).write_bytes(data)
    with pytest.raises(PySparkException, match=r"orders-0-.*\.log, at offset 0: .*checksum"):
        frame.collect()


def test_without_a_jdk_a_one_line_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ValueError, match="install JDK 17 or 21"):
        check_jdk()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"JAVA_HOME=.* has no bin/java"):
        check_jdk()
