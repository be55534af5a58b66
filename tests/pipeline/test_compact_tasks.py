"""What the tasks of the job ``compact`` write of a work order, without Spark's JVM."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.compact import writing
from milena.pipeline.jobs.compact.writing import GroupTask
from milena.protocol.records.batch import Codec, iter_batches
from milena.protocol.records.crc import crc32c
from milena.tiered.orders.carrying_out import Before, GroupWriter, WrittenGroup
from milena.tiered.orders.order import ORDER, Order
from tests.pipeline.made_orders import folder_of, ordered, place_of, rows_of_group
from tests.pipeline.made_tiers import MadeTier, run
from tests.unit.tiered.forged_results import rewritten

COUNT = 20
"""Records of the segment. Each key is in it twice."""


@pytest.fixture
def order(made: MadeTier) -> Order:
    """Of one group, whose first ten records go."""
    return ordered(made.folder, [made.add(run(0, COUNT, codec=Codec.GZIP, size=500))])


def write(made: MadeTier, order: Order) -> list[dict[str, Any]]:
    task = GroupTask(place_of(made), order, (), {}, {0: Before()})
    winners = [(offset, offset % 10 + 10) for offset in range(COUNT)]
    return [row for found in task(iter([rows_of_group(order, 0, winners)])) for row in found.to_pylist()]


class OtherLibrary(GroupWriter):
    """Whose compression makes other bytes of the same records."""

    def write(self, *given: Any) -> WrittenGroup:
        made, path = super().write(*given), Path(given[-2]._file.path)
        data = b"".join(bytes(rewritten(one, level=0)) for one in iter_batches(memoryview(path.read_bytes())))
        path.write_bytes(data)
        return made._replace(log=(len(data), crc32c(data)))


def test_a_receipt_stays_true_if_another_job_writes_the_group_with_other_bytes(
    made: MadeTier, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(made, order)
    folder = folder_of(made, order)
    first = json.loads((folder / "group-0.receipt").read_text())["log"]
    monkeypatch.setattr(writing, "GroupWriter", OtherLibrary)
    write(made, order)
    second = json.loads((folder / "group-0.receipt").read_text())["log"]
    assert first["crc"] != second["crc"], "else this shows nothing"
    for one in (first, second):
        data = (folder / one["name"]).read_bytes()
        assert (len(data), crc32c(data)) == (one["size"], one["crc"])


def test_of_an_order_that_was_taken_back_nothing_is_written(made: MadeTier, order: Order) -> None:
    folder = folder_of(made, order)
    (folder / ORDER).unlink()
    before = sorted(folder.iterdir())
    with pytest.raises(PipelineError, match=rf"{order.folder}: the order was taken back"):
        write(made, order)
    assert sorted(folder.iterdir()) == before


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Where files were written before they went to the staging prefix."""
    found: list[Path] = []

    class Seen(GroupWriter):
        def write(self, *given: Any) -> WrittenGroup:
            found.append(Path(given[-2]._file.path))
            return super().write(*given)

    monkeypatch.setattr(writing, "GroupWriter", Seen)
    yield found


def test_files_under_way_lie_where_spark_has_its_own(
    made: MadeTier, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: list[Path]
) -> None:
    """It removes those of an executor that was killed, and has room for them."""
    own = [tmp_path / "blockmgr-1", tmp_path / "blockmgr-2"]
    for one in own:
        one.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, own)))
    write(made, order)
    assert seen[-1].parents[1] in own
    assert [list(one.iterdir()) for one in own] == [[], []]
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    write(made, order)
    assert seen[-1].is_relative_to(tempfile.gettempdir())
