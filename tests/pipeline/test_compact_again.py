"""The job ``compact`` twice on one order, at once or one after the other, and on an order of many groups."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from pyspark.sql import SparkSession

from milena.pipeline.jobs.compact import job
from milena.pipeline.jobs.compact.job import Compacted, compact
from milena.tiered.orders.order import MANIFEST, Order
from milena.tiered.orders.taking_up import waiting_orders
from tests.pipeline.made_orders import check_result, folder_of, ordered
from tests.pipeline.made_tiers import MadeTier, run

GROUPS = 40


@pytest.fixture
def order(made: MadeTier) -> Order:
    return ordered(made.folder, [made.add(run(first, first + 30)) for first in range(0, 30 * GROUPS, 30)])


def test_two_jobs_at_once_make_one_right_result_and_an_order_of_small_groups_takes_few_tasks(
    spark: SparkSession, made: MadeTier, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, befores = Barrier(2), job._befores

    def waiting(*given: object) -> object:
        both.wait(300)
        return befores(*given)  # type: ignore[arg-type]

    def carry_out(name: str) -> Compacted:
        spark.sparkContext.setJobGroup(name, name)
        return compact(spark, str(made.folder))

    monkeypatch.setattr(job, "_befores", waiting)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(carry_out, ("one", "other"))) == [Compacted(1, 0, GROUPS)] * 2
    check_result(made, order, tmp_path / "other")
    told = spark.sparkContext.statusTracker()
    jobs = [told.getJobInfo(number) for name in ("one", "other") for number in told.getJobIdsForGroup(name)]
    stages = {stage for found in jobs if found is not None for stage in found.stageIds}
    tasks = sum(found.numTasks for found in map(told.getStageInfo, stages) if found is not None)
    assert (0 < len(jobs) < GROUPS, 0 < tasks < 4 * GROUPS) == (True, True), (len(jobs), tasks)


def test_a_job_goes_on_where_one_has_ended_before_its_manifest(
    spark: SparkSession, made: MadeTier, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> bytes:
        raise SystemExit("killed")

    with monkeypatch.context() as patch:
        patch.setattr(job, "encode_manifest", killed)
        with pytest.raises(SystemExit):
            compact(spark, str(made.folder))
    folder = folder_of(made, order)
    assert not (folder / MANIFEST).exists()
    (folder / "group-7.receipt").write_text('{"log": null')
    (folder / "group-8.receipt").unlink()
    times = times_of(folder)
    assert compact(spark, str(made.folder)) == Compacted(1, 0, GROUPS)
    check_result(made, order, tmp_path / "other")
    after = times_of(folder)
    assert {name for name, time in after.items() if times.get(name) != time} == {"group-7.receipt", "group-8.receipt"}


def times_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("group-*.receipt")}


def test_a_leader_may_be_quick(made: MadeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has published the result, and removed the order, before the job looks again."""
    order = ordered(made.folder, [made.add(run(0, 10))])

    def carry_out(*_: object) -> None:
        shutil.rmtree(folder_of(made, order))

    monkeypatch.setattr(job, "carry_out", carry_out)
    told: list[str] = []
    assert job.compact(None, str(made.folder), told=told.append) == Compacted(1, 0, 1)  # type: ignore[arg-type]
    assert told == []


def test_each_order_is_read_once(tmp_path: Path, made: MadeTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that wait, some are gone when their turn comes."""
    count = 20
    orders = [ordered(made.folder, [made.add(run(0, 10), number=number)], number) for number in range(count)]
    read, begun = list[int](), list[Order]()

    async def counted(*given: object) -> object:
        found = await waiting_orders(*given)  # type: ignore[arg-type]
        read.append(len(found.orders))
        return found

    def carry_out(_spark: object, _opened: object, _place: object, order: Order) -> None:
        begun.append(order)
        (folder_of(made, order) / MANIFEST).write_bytes(b"{}")
        if order == orders[0]:
            (folder_of(made, orders[1]) / MANIFEST).write_bytes(b"{}")
            (folder_of(made, orders[2]) / "order.json").unlink()

    monkeypatch.setattr(job, "waiting_orders", counted)
    monkeypatch.setattr(job, "carry_out", carry_out)
    found = job.compact(None, str(made.folder))  # type: ignore[arg-type]
    assert (read, begun) == ([count, 0], [orders[0], *orders[3:]])
    assert found == Compacted(count - 2, 0, count - 2)
