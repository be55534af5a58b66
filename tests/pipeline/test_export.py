"""The job ``export`` writes each record once, wherever it is interrupted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from milena.pipeline.errors import DataLoss, PipelineError
from milena.pipeline.jobs.export.commits import DATA, STAGING, Export
from milena.pipeline.jobs.export.decoding import decoded
from milena.pipeline.jobs.export.formats import Form
from milena.pipeline.jobs.export.job import export
from milena.pipeline.jobs.units import Unit
from tests.pipeline.made_tiers import MadeTier, run

PLAIN = {"key": "bytes:", "value": "bytes:"}
UNIT = Unit({("orders", 0): (0, 10)}, 100)
NEXT = Unit({("orders", 0): (10, 20)}, 100)


def staged(table: Export, *names: str) -> None:
    for name in names:
        path = Path(table.path(STAGING, name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def files(table: Export) -> list[str]:
    return sorted(str(one.relative_to(table.path(DATA))) for one in Path(table.path(DATA)).rglob("*.parquet"))


def test_each_run_exports_the_new_records_once(
    spark: SparkSession, made: MadeTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milena.pipeline.jobs.export.job.UNIT_BYTES", 3000)
    made.add(run(0, 100))
    made.add(run(100, 200))
    place, chosen, folder = {"tier": str(made.folder)}, {"subscribe": "orders"}, str(tmp_path / "table")
    string = Form.of("string")

    def stop(what: str, done: int, whole: int, unit: str) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(spark, place, chosen, folder, value=string, progress=stop)
    part = export(spark, place, chosen, folder, value=string)
    assert 0 < part.offsets < 200
    made.add(run(200, 230))
    result = export(spark, place, chosen, folder, value=string)
    assert result.offsets == 30
    table = spark.read.parquet(result.table)
    assert table.agg(f.count("*"), f.countDistinct("offset"), f.min("offset"), f.max("offset")).first() == (
        230,
        230,
        0,
        229,
    )
    row = table.where("offset = 205").first()
    assert row is not None
    assert (row.value, bytes(row.key), row.valueBytes, row.topic) == ("v205", b"k5", None, "orders")
    assert export(spark, place, chosen, folder, value=string).offsets == 0
    with pytest.raises(PipelineError, match="is an export with value=string:, not bytes:"):
        export(spark, place, chosen, folder)


def test_values_that_do_not_fit_the_format_are_exported_as_bytes(spark: SparkSession) -> None:
    rows = [
        ("t", 0, 0, None, 0, b"k", b'{"id":7,"name":"x"}', None),
        ("t", 0, 1, None, 0, b"\xff", b"no document", None),
        ("t", 0, 2, None, 0, None, None, None),
        ("t", 0, 3, None, 0, b"k", b'{"id":"seven"}', None),
        ("t", 0, 4, None, 0, b"k", b"{}", None),
    ]
    schema = (
        "topic string, partition int, offset long, timestamp timestamp, timestampType int, key binary, value binary,"
    )
    frame = spark.createDataFrame(rows, f"{schema} headers array<struct<key:string,value:binary>>")
    found = decoded(frame, Form.of("string"), Form.of("json:id INT, name STRING")).orderBy("offset").collect()
    values = [None if one.value is None else tuple(one.value) for one in found]
    assert values == [(7, "x"), None, None, None, (None, None)]
    assert [one.valueBytes and bytes(one.valueBytes) for one in found] == [
        *(None, b"no document", None, b'{"id":"seven"}', None),
    ]
    assert [one.key for one in found] == ["k", None, None, "k", "k"]
    assert [one.keyBytes and bytes(one.keyBytes) for one in found] == [None, b"\xff", None, None, None]
    with pytest.raises(PipelineError, match="json:no schema at all"):
        decoded(frame, Form(), Form.of("json:no schema at all"))
    with pytest.raises(PipelineError, match="neither bytes nor string nor json:SCHEMA"):
        Form.of("avro")


def test_a_job_interrupted_before_its_commit_has_exported_nothing(tmp_path: Path) -> None:
    table = Export.opened(str(tmp_path / "t"), PLAIN)
    staged(table, "topic=orders/a.parquet")
    again = Export.opened(str(tmp_path / "t"), PLAIN)
    assert (again.commits, again.position.ends, files(again)) == (0, {}, [])
    assert not os.path.exists(again.path(STAGING))


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_job_interrupted_after_its_commit_moves_its_remaining_files_in_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    table = Export.opened(str(tmp_path / "t"), PLAIN)
    staged(table, "topic=orders/a.parquet", "topic=orders/b.parquet", "_SUCCESS")
    left = [moved]
    real = os.replace

    def replace(source: str, to: str) -> None:
        if source.endswith(".parquet"):
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        real(source, to)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", replace)
        table.commit(UNIT)
        raise KeyboardInterrupt
    again = Export.opened(str(tmp_path / "t"), PLAIN)
    assert (again.commits, again.position.ends) == (1, {("orders", 0): 10})
    assert files(again) == ["topic=orders/00000000-00000.parquet", "topic=orders/00000000-00001.parquet"]
    staged(again, "topic=orders/c.parquet")
    again.commit(NEXT)
    assert len(files(again)) == 3 and again.position.ends == {("orders", 0): 20}


def test_two_jobs_do_not_commit_the_same_unit(tmp_path: Path) -> None:
    one, other = (Export.opened(str(tmp_path / "t"), PLAIN) for _ in range(2))
    one.commit(UNIT)
    with pytest.raises(PipelineError, match="has written commit 0 in the meantime"):
        other.commit(UNIT)
    path = Path(one.path("commits", "1.json"))
    path.write_text(json.dumps({**UNIT.plain(), "moves": {}}))
    with pytest.raises(PipelineError, match=r"commit 1 .* has offsets that an earlier commit has"):
        Export.opened(str(tmp_path / "t"), PLAIN)


def test_next_offsets_that_are_not_there_any_more_are_a_loss(
    spark: SparkSession, made: MadeTier, tmp_path: Path
) -> None:
    place, chosen, folder = {"tier": str(made.folder)}, {"subscribe": "orders"}, str(tmp_path / "table")
    first = made.add(run(0, 10))
    export(spark, place, chosen, folder)
    made.remove(first)
    made.add(run(50, 60))
    with pytest.raises(DataLoss, match="orders-0: offset 10 comes next, and 50 to 59 are there"):
        export(spark, place, chosen, folder)
