"""The source reads every record of a log in the tier once, in order, for all kinds of segments."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, Not

from milena.pipeline import open_tier, reading
from milena.pipeline.errors import DataLoss, PipelineError
from milena.protocol.records.batch import Codec
from milena.protocol.uuids import to_text
from tests.pipeline.in_process import offsets, reader_of, rows, rows_of, tasks
from tests.pipeline.made_tiers import TIME, Batch, MadeTier, run


def at(offset: int) -> datetime:
    return datetime.fromtimestamp(TIME / 1000 + offset, UTC)


def test_a_record_has_all_its_columns(made: MadeTier) -> None:
    headers = (("one", b"1"), ("two", None))
    segment = made.add(
        [Batch(0, 2, epoch=3, producer=(7, 1, 20), headers=headers), Batch(2, 1, epoch=3)], epochs={3: 0}
    )
    first, second, third = rows(tier=made.folder, includeHeaders="true")
    assert first == {
        "key": b"k0", "value": b"v0", "topic": "orders", "partition": 0, "offset": 0, "timestamp": at(0),
        "timestampType": 0, "headers": [{"key": "one", "value": b"1"}, {"key": "two", "value": None}], "leaderEpoch": 3,
        "segmentId": to_text(segment.id), "producerId": 7, "producerEpoch": 1, "sequence": 20,
    }  # fmt: skip
    assert (second["sequence"], second["timestamp"]) == (21, at(1))
    assert (third["sequence"], third["producerId"], third["headers"]) == (-1, -1, None)


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_read(made: MadeTier, codec: Codec) -> None:
    made.add(run(0, 95, codec=codec))
    assert [row["value"] for row in rows(tier=made.folder)] == [b"v%d" % offset for offset in range(95)]


@pytest.mark.parametrize("piece", [1, 60, 61, 62, 97, 250, 1000])
def test_batches_across_the_boundaries_of_fetched_pieces_are_read(
    made: MadeTier, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    made.add([Batch(0, 1), Batch(1, 9), Batch(10, 1), *run(11, 40)])
    monkeypatch.setattr(open_tier, "PIECE", piece)
    assert [row["value"] for row in rows(tier=made.folder)] == [b"v%d" % offset for offset in range(40)]


def test_a_log_file_that_ends_within_a_batch_is_a_loss(made: MadeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = made.add(run(0, 40))
    made.events.clear()
    made.finished(replace(segment, size=segment.size - 10))
    metadata = made.metadata(made.folder / "data")
    made.log(segment).write_bytes(made.log(segment).read_bytes()[:-10])
    for piece in (97, 1 << 20):
        monkeypatch.setattr(open_tier, "PIECE", piece)
        with pytest.raises(DataLoss, match="at offset 30: 181 bytes at position 563 are not a complete batch"):
            rows(tier=made.folder, metadata=metadata)


def test_a_worker_excludes_its_modules_from_garbage_collection(made: MadeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    made.add(run(0, 3))
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    reading._keep_modules.cache_clear()
    assert offsets(tier=made.folder) == [0, 1, 2] and not frozen  # outside of a Spark task
    reading._keep_modules.cache_clear()
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda _: object()))  # a real one would stay
    assert offsets(tier=made.folder) == offsets(tier=made.folder) == [0, 1, 2] and len(frozen) == 1
    reading._keep_modules.cache_clear()


def test_only_the_chosen_columns_are_returned(made: MadeTier) -> None:
    made.add(run(0, 3))
    assert rows(tier=made.folder, columns="offset, key") == [{"offset": n, "key": b"k%d" % n} for n in range(3)]
    with pytest.raises(PipelineError, match="there is no column offest"):
        rows(tier=made.folder, columns="offest")


@pytest.mark.parametrize("size", ["1", "700", "100m"])
def test_large_segments_are_split_and_small_ones_packed_in_order(made: MadeTier, size: str) -> None:
    for first in range(0, 300, 100):
        made.add(run(first, first + 100))
    reader = reader_of(tier=made.folder, subscribe="orders", maxPartitionBytes=size)
    found = tasks(reader)
    assert len(found) in {"1": [27], "700": range(6, 20), "100m": [1]}[size]
    assert [row["offset"] for row in rows_of(reader)] == list(range(300))


def test_offsets_bound_what_is_read(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(100, 200))
    starting, ending = json.dumps({"orders": {"0": 95}}), json.dumps({"orders": {"0": 105}})
    assert offsets(tier=made.folder, startingOffsets=starting, endingOffsets=ending) == list(range(95, 105))
    assert offsets(tier=made.folder, startingOffsets=json.dumps({"orders": {"0": -2}}), endingOffsets=ending) == list(
        range(105)
    )


def test_times_bound_what_is_read(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(100, 200))
    assert offsets(tier=made.folder, startingTimestamp=TIME + 98_500, endingTimestamp=TIME + 104_000) == list(
        range(99, 104)
    )
    assert offsets(tier=made.folder, endingTimestamp=TIME + 9_000_000) == list(range(200))
    with pytest.raises(PipelineError, match=r"startingTimestamp=.*orders-0 has no record"):
        offsets(tier=made.folder, startingTimestamp=TIME + 9_000_000)


def test_times_of_partitions_bound_what_is_read(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(0, 50), number=1)

    def times(first: int, second: int) -> str:
        return json.dumps({"orders": {"0": TIME + 1000 * first, "1": TIME + 1000 * second}})

    found = rows(tier=made.folder, startingOffsetsByTimestamp=times(90, 45), endingOffsetsByTimestamp=times(95, 1000))
    assert [(row["partition"], row["offset"]) for row in found] == [
        *((0, offset) for offset in range(90, 95)),
        *((1, offset) for offset in range(45, 50)),
    ]


def test_tasks_are_so_many_and_have_so_few_records_as_the_options_say(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(0, 50), number=1)
    for given, least in (({"minPartitions": 7}, 7), ({"maxRecordsPerPartition": 20}, 8)):
        reader = reader_of(tier=made.folder, subscribe="orders", **given)
        assert len(tasks(reader)) >= least
        assert len(rows_of(reader)) == 150
    each = [sum(one.last - one.first + 1 for one in task.stretches) for task in tasks(reader)]
    assert max(each) <= 20


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThanOrEqual(("offset",), 150), LessThan(("offset",), 153)], [150, 151, 152]),
        ([GreaterThan(("offset",), 197)], [198, 199]),
        ([EqualTo(("offset",), 7)], [7]),
        ([EqualTo(("topic",), "others")], []),
        ([In(("topic",), ("others", "orders")), EqualTo(("partition",), 0), LessThan(("offset",), 2)], [0, 1]),
        ([GreaterThan(("partition",), 0)], []),
    ],
)
def test_filters_are_applied_by_the_source(made: MadeTier, filters: list[Any], expected: list[int]) -> None:
    made.add(run(0, 100))
    made.add(run(100, 200))
    reader = reader_of(tier=made.folder, subscribe="orders", pushFilters=True)
    assert list(reader.pushFilters([*filters, IsNotNull(("offset",))])) == []
    assert [row["offset"] for row in rows_of(reader)] == expected


def test_filters_on_timestamps_skip_segments_and_are_also_left_to_spark(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(100, 200))
    wanted = GreaterThanOrEqual(("timestamp",), at(150))
    others = [Not(EqualTo(("offset",), 3)), LessThan(("timestamp",), at(170)), EqualTo(("key",), b"k1")]
    reader = reader_of(tier=made.folder, subscribe="orders", pushFilters=True)
    assert list(reader.pushFilters([wanted, *others])) == [wanted, *others]
    assert [row["offset"] for row in rows_of(reader)] == list(range(150, 200))


def test_control_batches_are_never_returned_and_aborted_records_only_to_read_uncommitted(made: MadeTier) -> None:
    made.add(
        [
            Batch(0, 5, producer=(5, 0, 0), transactional=True),
            Batch(5, 5, producer=(6, 0, 0), transactional=True),
            Batch(10, 5),
        ]
    )
    made.add(
        [
            Batch(15, 1, producer=(5, 0, -1), transactional=True, control=True),
            Batch(16, 1, producer=(6, 0, -1), transactional=True, control=True),
            Batch(17, 3, producer=(5, 0, 5), transactional=True),
            Batch(20, 1, producer=(5, 0, -1), transactional=True, control=True),
        ],
        aborted=[(5, 0, 15)],
    )
    assert offsets(tier=made.folder) == [*range(15), 17, 18, 19]
    committed: dict[str, object] = {"tier": made.folder, "isolation.level": "read_committed"}
    assert offsets(**committed) == [*range(5, 15), 17, 18, 19]
    assert offsets(**committed, endingOffsets=json.dumps({"orders": {"0": 5}})) == []


def test_read_committed_ends_where_a_transaction_is_open(made: MadeTier) -> None:
    made.add([Batch(0, 5), Batch(5, 5, producer=(5, 0, 0), transactional=True), Batch(10, 5)], open_at=5)
    assert offsets(tier=made.folder) == list(range(15))
    assert offsets(tier=made.folder, isolation__level="read_committed") == list(range(5))


def test_segments_of_a_truncated_lineage_are_not_read(made: MadeTier) -> None:
    made.add(run(0, 100, epoch=1), epochs={1: 0})
    lost = made.add(run(100, 200, epoch=1), epochs={1: 0})
    made.add(run(100, 150, epoch=2), epochs={1: 0, 2: 100})
    found = rows(tier=made.folder)
    assert [row["offset"] for row in found] == list(range(150))
    assert to_text(lost.id) not in {row["segmentId"] for row in found}


def test_deleted_segments_are_known_from_the_metadata_but_not_from_the_files(made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, 100))
    made.add(run(100, 200))
    later_events, made.events = made.events[2:], []
    made.events += later_events
    assert offsets(tier=made.folder) == list(range(200))
    assert offsets(tier=made.folder, metadata=made.metadata(tmp_path / "data")) == list(range(100, 200))


def test_metadata_of_an_unknown_version_is_refused(made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, 10))
    folder = made.metadata(tmp_path / "data", values=[b"\x00\x00\x63\x00"])
    with pytest.raises(PipelineError, match=r"partition 0 of the metadata topic in .* cannot be read: .*"):
        rows(tier=made.folder, metadata=folder)


def test_a_segment_that_is_replaced_during_a_read_is_looked_up_again(made: MadeTier) -> None:
    old = made.add(run(0, 100))
    reader = reader_of(tier=made.folder, subscribe="orders")
    planned = tasks(reader)
    again = made.add(run(0, 100))
    made.remove(old)
    found = [row for task in planned for batch in reader.read(task) for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == list(range(100))
    assert {row["segmentId"] for row in found} == {to_text(again.id)}


def test_a_segment_that_is_deleted_during_a_read_is_a_loss(made: MadeTier) -> None:
    made.add(run(0, 100))
    gone = made.add(run(100, 200))
    made.add(run(200, 300))
    for fail, expected in (("true", None), ("false", [*range(100), *range(200, 300)])):
        reader = reader_of(tier=made.folder, subscribe="orders", failOnDataLoss=fail)
        planned = tasks(reader)
        made.remove(gone)
        if expected is None:
            with pytest.raises(
                DataLoss, match=r"orders-0-.*/0{17}100-.*\.log does not exist any more, at offset 100.*failOnDataLoss"
            ):
                [batch for task in planned for batch in reader.read(task)]
            made.made -= 2
            gone = made.add(run(100, 200))
        else:
            found = [row for task in planned for batch in reader.read(task) for row in batch.to_pylist()]
            assert [row["offset"] for row in found] == expected


def test_offsets_that_no_segment_has_are_a_loss(made: MadeTier) -> None:
    made.add(run(0, 100))
    made.add(run(150, 200))
    with pytest.raises(DataLoss, match="orders-0: nothing has the offsets 100 to 149"):
        rows(tier=made.folder)
    assert offsets(tier=made.folder, failOnDataLoss="false") == [*range(100), *range(150, 200)]
    starting = json.dumps({"orders": {"0": 500}})
    with pytest.raises(DataLoss, match="orders-0: offsets 500 to 199 are asked for, and 0 to 199 are there"):
        rows(tier=made.folder, startingOffsets=starting)
    assert rows(tier=made.folder, startingOffsets=starting, failOnDataLoss="false") == []


def test_a_truncated_object_is_named_with_the_offset(made: MadeTier, tmp_path: Path) -> None:
    made.add(run(0, 100))
    segment = made.add(run(100, 200))
    metadata = made.metadata(tmp_path / "data")
    log = made.log(segment)
    log.write_bytes(log.read_bytes()[: segment.size // 2])
    with pytest.raises(DataLoss, match=r"0{17}100-.*\.log, at offset 1\d\d: "):
        rows(tier=made.folder, metadata=metadata)
    found = offsets(tier=made.folder, metadata=metadata, failOnDataLoss="false")
    assert found == list(range(len(found))) and 100 <= len(found) < 200


def test_a_damaged_batch_costs_only_its_own_records(made: MadeTier) -> None:
    segment = made.add(run(0, 100))
    made.add(run(100, 150))
    log = made.log(segment)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    found = offsets(tier=made.folder, failOnDataLoss="false")
    (lost,) = {tuple(sorted(set(range(150)) - set(found)))}
    assert len(lost) == 10 and lost[0] % 10 == 0 and len(found) == 140


@pytest.mark.parametrize("foreign", [b"PAR1" * 1000, bytes(4000)])
def test_a_foreign_object_is_named(made: MadeTier, foreign: bytes) -> None:
    made.add(run(0, 100))
    made.log(made.add(run(100, 200))).write_bytes(foreign)
    with pytest.raises(PipelineError, match=r"0{17}100-.*\.log is not a valid segment: "):
        rows(tier=made.folder)
    assert offsets(tier=made.folder, failOnDataLoss="false") == list(range(100))


def test_the_log_file_of_another_segment_is_refused(made: MadeTier, tmp_path: Path) -> None:
    first, second = made.add(run(0, 100)), made.add(run(100, 200))
    metadata = made.metadata(tmp_path / "data")
    made.log(second).write_bytes(made.log(first).read_bytes().ljust(second.size, b"\0")[: second.size])
    with pytest.raises(DataLoss, match="at offset 100: a batch has offsets 0 to 9, but the segment has 100 to 199"):
        rows(tier=made.folder, metadata=metadata)


def test_a_damaged_batch_is_named(made: MadeTier) -> None:
    segment = made.add(run(0, 100))
    log = made.log(segment)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(DataLoss, match=r"\.log, at offset \d+: .*checksum"):
        rows(tier=made.folder)


def test_offsets_are_found_in_a_segment_without_indexes(made: MadeTier) -> None:
    segment = made.add(run(0, 100))
    for suffix in (".index", ".timeindex"):
        made.log(segment).with_suffix(suffix).unlink()
    starting = json.dumps({"orders": {"0": 42}})
    assert offsets(tier=made.folder, startingOffsets=starting) == list(range(42, 100))


def test_topics_are_chosen_by_name_pattern_and_partition(made: MadeTier) -> None:
    for topic, number in (("orders", 0), ("orders", 1), ("others", 0)):
        made.add(run(0, 10), topic=topic, number=number)

    def read(**options: str) -> set[tuple[str, int]]:
        found = rows_of(reader_of(tier=made.folder, **options))
        assert len(found) % 10 == 0
        return {(row["topic"], row["partition"]) for row in found}

    assert read(subscribe="orders") == {("orders", 0), ("orders", 1)}
    assert read(subscribePattern="o.*s") == {("orders", 0), ("orders", 1), ("others", 0)}
    assert read(assign='{"orders": [1], "others": [0]}') == {("orders", 1), ("others", 0)}
    with pytest.raises(PipelineError, match="there is no topic nothing; there are orders, others"):
        read(subscribe="nothing")
    with pytest.raises(PipelineError, match="there is no partition 7 of orders"):
        read(assign='{"orders": [7]}')


def test_a_tier_at_a_url_is_read_like_one_in_a_folder(made: MadeTier) -> None:
    made.add(run(0, 3000, size=1000))  # larger than the first chunk of the read-ahead
    made.add(run(3000, 3100))
    store = fsspec.filesystem("memory")
    store.put(str(made.folder), "/of-spark", recursive=True)
    reader = reader_of(tier="memory://of-spark", storageOptions="{}", subscribe="orders", maxPartitionBytes="1m")
    assert len(tasks(reader)) >= 3
    assert [row["offset"] for row in rows_of(reader)] == list(range(3100))
    store.rm("/of-spark", recursive=True)


def test_tasks_with_another_working_directory_read_the_given_tier(
    made: MadeTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.add(run(0, 30))
    made.metadata(tmp_path / "broker")
    monkeypatch.chdir(made.folder.parent)
    reader = reader_of(tier=made.folder.name, metadata="broker", subscribe="orders")
    planned = tasks(reader)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert sum(batch.num_rows for task in planned for batch in reader.read(task)) == 30


def test_a_timestamp_that_spark_cannot_represent_is_an_error_with_its_record(
    made: MadeTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.pipeline.made_tiers.TIME", 1_700_000_000_000_000_000)  # nanoseconds
    made.add(run(0, 30))
    with pytest.raises(PipelineError, match=r"orders-0, offset 29: a timestamp of 1700000000000029000 ms is too large"):
        rows(tier=made.folder)
    assert len(rows(tier=made.folder, columns="offset")) == 30
