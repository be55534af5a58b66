"""The job ``audit`` finds and names defects of a tier."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.audit.checks import FINDINGS, SegmentChecks
from milena.pipeline.jobs.audit.inventory import SEGMENTS, inventory
from milena.pipeline.jobs.audit.job import Audited, audit, changed_rows, units, with_resolved
from milena.pipeline.jobs.rows import as_arrow
from milena.pipeline.jobs.units import not_in_tier
from milena.pipeline.options import SourceOptions, source_options
from tests.pipeline.made_tiers import TIME, Batch, MadeTier, run


def options(made: MadeTier, metadata: Path | None = None) -> SourceOptions:
    more = {} if metadata is None else {"metadata": str(metadata)}
    return source_options({"tier": str(made.folder), "subscribePattern": ".*", **more})


def kinds(frame: DataFrame) -> list[tuple[str, str | None, bool]]:
    return sorted((one.kind, one.topic, one.harmless) for one in frame.collect())


def test_a_tier_without_defects_has_no_findings_and_a_page(spark: SparkSession, made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, 100))
    made.add(run(100, 250))
    made.add(run(0, 30, epoch=3), topic="clicks", number=1, epochs={3: 0})
    done: list[tuple[int, int]] = []
    result = audit(
        spark,
        options(made, made.metadata(tmp_path / "broker")),
        str(tmp_path / "audit"),
        progress=lambda what, part, whole, unit: done.append((part, whole)),
    )
    assert result == Audited(3, 0, str(tmp_path / "audit" / "index.html"))
    assert done[0][0] == 0 and done[-1][0] == done[-1][1] > 0
    topics = spark.read.parquet(str(tmp_path / "audit" / "topics")).orderBy("topic").collect()
    assert [(one.topic, one.segments, one.records, one.unreadBytes) for one in topics] == [
        ("clicks", 1, 30, 0),
        ("orders", 2, 250, 0),
    ]
    assert [one.oldest for one in topics] == [datetime.fromtimestamp(TIME / 1000)] * 2
    page = Path(result.page).read_text()
    assert "<dt>not in the tier</dt><dd>unknown without a broker&#x27;s directory" in page
    assert "No findings in 3 segments" in page
    assert "http:" not in page.partition("<script")[0] and "https:" not in page.partition("<script")[0]


def test_an_inventory_counts_the_offsets_that_are_not_in_the_tier(made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, 100))
    made.replica(tmp_path / "broker", run(100, 130))
    assert inventory(options(made, made.metadata(tmp_path / "broker"))).not_in_tier == {"orders": 30}
    assert not_in_tier(options(made, tmp_path / "broker")) == {"orders": 30}
    assert inventory(options(made)).not_in_tier is None and not_in_tier(options(made)) is None


def test_each_defect_is_named(spark: SparkSession, made: MadeTier, tmp_path: Path) -> None:
    segments = [made.add(run(at, at + 100)) for at in (0, 100, 200, 300)]
    data = bytearray(made.log(segments[0]).read_bytes())
    data[-1] ^= 1
    made.log(segments[0]).write_bytes(data)
    made.remove(segments[1])
    metadata = made.metadata(tmp_path / "broker")
    made.add(run(0, 10), topic="unknown")  # the segment has no metadata
    made.remove(made.add(run(0, 10), topic="never"))  # the segment has neither metadata nor objects
    result = audit(spark, options(made, metadata), str(tmp_path / "audit"), price=2.0)
    assert result.findings == 3
    found = spark.read.parquet(str(tmp_path / "audit" / "findings"))
    assert kinds(found) == [("crc", "orders", False), ("missing", "orders", False), ("orphan", "unknown", False)]
    topics = {one.topic: one for one in spark.read.parquet(str(tmp_path / "audit" / "topics")).collect()}
    assert topics["orders"].unreadBytes == 0
    assert topics["unknown"].unreadBytes == topics["unknown"].bytes > 0
    assert topics["unknown"].unreadCost == pytest.approx(topics["unknown"].bytes * 2.0 / (1 << 30))


def test_gaps_and_foreign_epochs_are_found_without_metadata(
    spark: SparkSession, made: MadeTier, tmp_path: Path
) -> None:
    made.add(run(0, 100))
    made.add(run(150, 200), epochs={0: 0, 2: 150})
    made.add(run(100, 150, epoch=1), epochs={0: 0, 1: 100})  # from another log: the newest has no epoch 1
    result = audit(spark, options(made), str(tmp_path / "audit"))
    found = spark.read.parquet(str(tmp_path / "audit" / "findings"))
    assert ("unreferenced", "orders", False) in kinds(found)
    assert result.findings == found.where("not harmless").count() > 0


def test_an_audit_that_was_interrupted_reads_only_the_remaining_units(
    spark: SparkSession, made: MadeTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milena.pipeline.jobs.audit.job.MAX_BYTES", 1)
    segments = [made.add(run(at, at + 100)) for at in (0, 100, 200)]
    folder, metadata = str(tmp_path / "audit"), made.metadata(tmp_path / "broker")

    def stop(what: str, part: int, whole: int, unit: str) -> None:
        if part:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(spark, options(made, metadata), folder, progress=stop)
    with pytest.raises(
        PipelineError, match=r"contains a job that was started with tier=.*topics=\.\*: use these options"
    ):
        audit(spark, source_options({"tier": str(made.folder), "subscribe": "orders"}), folder)
    damaged = made.log(segments[0])
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")  # this unit has been read already
    parts: list[int] = []
    result = audit(spark, options(made, metadata), folder, progress=lambda what, part, whole, unit: parts.append(part))
    assert (result.segments, result.findings, len(parts)) == (3, 0, 3)
    assert parts[0] > 0
    # The last audit had finished, so a new one reads everything again.
    assert audit(spark, options(made, metadata), folder).findings == 1


def test_changes_of_a_running_cluster_during_the_audit_are_no_defects(spark: SparkSession) -> None:
    def finding(kind: str, partition: int, segment: str | None) -> tuple[object, ...]:
        return kind, "orders", "id", partition, segment, "what", False

    found = spark.createDataFrame(
        [finding("missing", 0, "a"), finding("gap", 0, None), finding("gap", 1, None), finding("crc", 1, "b")], FINDINGS
    )
    changed = spark.createDataFrame([("id", 0, "a")], "topicId string, partition int, segmentId string")
    assert [
        (one.kind, one.partition, one.harmless) for one in with_resolved(found, changed).orderBy("partition").collect()
    ] in (
        [("missing", 0, True), ("gap", 0, True), ("gap", 1, False), ("crc", 1, False)],
        [("gap", 0, True), ("missing", 0, True), ("gap", 1, False), ("crc", 1, False)],
        [("missing", 0, True), ("gap", 0, True), ("crc", 1, False), ("gap", 1, False)],
        [("gap", 0, True), ("missing", 0, True), ("crc", 1, False), ("gap", 1, False)],
    )


def test_segments_that_were_added_removed_or_changed_count_as_moved() -> None:
    def row(one: str, state: str = "COPY_SEGMENT_FINISHED") -> dict[str, object]:
        return {"segmentId": one, "state": state, "size": 5}

    before = [row("same"), row("gone"), row("deleted")]
    after = [row("same"), row("deleted", "DELETE_SEGMENT_STARTED"), row("new")]
    assert [one["segmentId"] for one in changed_rows(before, after)] == ["gone", "deleted", "new"]


def test_units_have_about_the_target_size() -> None:
    rows: list[dict[str, object]] = [{"size": 400 << 20} for _ in range(5)]
    assert [len(one) for one in units(rows)] == [2, 2, 1]
    assert not list(units([]))


def test_a_folder_with_other_files_is_not_touched(spark: SparkSession, made: MadeTier, tmp_path: Path) -> None:
    made.add([Batch(0, 1)])
    (tmp_path / "mine").write_text("something")
    with pytest.raises(PipelineError, match="is not empty and does not contain results of a job"):
        audit(spark, options(made), str(tmp_path))
    assert (tmp_path / "mine").read_text() == "something"


@pytest.mark.parametrize("time", [1_700_000_000_000_000, 1_700_000_000_000_000_000])
def test_timestamps_beyond_all_calendars_do_not_fail_an_audit(
    made: MadeTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: int
) -> None:
    monkeypatch.setattr("tests.pipeline.made_tiers.TIME", time)  # as from a producer that writes micro- or nanoseconds
    segment = made.add(run(0, 30))
    made.events[:] = [replace(one, event_timestamp_ms=time) for one in made.events]
    for chosen_options in (options(made), options(made, made.metadata(tmp_path / "broker"))):
        found = as_arrow(inventory(chosen_options).rows, SEGMENTS)
        (checked,) = SegmentChecks(chosen_options.tier, "", 0)(iter([found]))
        assert checked.column("newest").to_pylist()[0].year == 9999
        (row,) = checked.drop_columns(["metadata"]).to_pylist()
        assert (row["records"], row["found"], row["endOffset"]) == (30, [], segment.end_offset)
