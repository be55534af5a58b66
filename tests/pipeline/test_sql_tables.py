"""Tables of Spark SQL whose records are in a tier."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from milena.pipeline.errors import PipelineError
from milena.pipeline.source import MilenaDataSource
from milena.pipeline.sql_tables import kept_options, options_of_new_table
from tests.pipeline.made_tiers import MadeTier, run


@pytest.fixture
def tier(made: MadeTier) -> str:
    made.add(run(0, 100))
    made.add(run(0, 50), number=1)
    return str(made.folder)


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with no tables."""
    yield spark
    for one in spark.catalog.listTables():
        if not one.isTemporary:
            spark.sql(f"DROP TABLE {one.name}")


def count(session: SparkSession, query: str) -> int:
    row = session.sql(query).first()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(
    "definition",
    [
        "OPTIONS (tier '{tier}', subscribePattern 'ord.*')",
        "OPTIONS (subscribe 'orders') LOCATION '{tier}'",
        "OPTIONS (path '{tier}', subscribe 'orders') TBLPROPERTIES ('made' = 'here') COMMENT 'of a test'",
    ],
)
def test_a_table_is_read_by_queries_and_streams_and_dropped_without_its_records(
    session: SparkSession, tier: str, tmp_path: Path, definition: str
) -> None:
    session.sql(f"CREATE TABLE t USING milena {definition.format(tier=tier)}")
    assert count(session, "SELECT count(*) FROM t") == 150
    assert count(session, "SELECT count(*) FROM t JOIN t u USING (partition, offset) WHERE t.offset >= 90") == 10
    ending = """'{"orders": {"0": 5, "1": 6}}'"""
    assert count(session, f"SELECT count(*) FROM t WITH (endingOffsets = {ending})") == 11
    stream = session.readStream.option("startingOffsets", "earliest").table("t").select("offset")
    writing = stream.writeStream.format("parquet").option("path", str(tmp_path / "out")).trigger(availableNow=True)
    assert writing.option("checkpointLocation", str(tmp_path / "marks")).start().awaitTermination(100)
    assert session.read.parquet(str(tmp_path / "out")).count() == 150
    before = sorted(Path(tier).rglob("*"))
    session.sql("DROP TABLE t")
    assert sorted(Path(tier).rglob("*")) == before


def test_a_table_with_a_list_of_columns_is_an_error_that_says_what_to_do(session: SparkSession, tier: str) -> None:
    session.sql(f"CREATE TABLE t (offset BIGINT) USING milena OPTIONS (tier '{tier}', subscribe 'orders')")
    with pytest.raises(PySparkException, match="leave the list out, option columns chooses columns"):
        session.sql("SELECT * FROM t").collect()
    session.sql("DROP TABLE t")
    session.sql(f"CREATE TABLE t USING milena OPTIONS (tier '{tier}', subscribe 'orders', columns 'offset,key')")
    assert session.table("t").columns == ["offset", "key"]


def test_credentials_are_not_kept_in_a_table() -> None:
    given = {"provider": "milena", "owner": "o", "option.tier": "s3://b/t", "tier": "s3://b/t", "option.subscribe": "a"}
    assert options_of_new_table(given) == {"tier": "s3://b/t", "subscribe": "a"}
    with pytest.raises(PipelineError, match=r"option storageOptions: .*CREATE TEMPORARY VIEW"):
        options_of_new_table(given | {"option.storageoptions": "{}"})


def test_the_schema_of_a_query_has_no_options() -> None:
    given = {"tier": "/t", "subscribe": "a"}
    assert options_of_new_table(given) is None
    schema = MilenaDataSource(given).schema()
    assert isinstance(schema, StructType) and kept_options(schema) == {}
