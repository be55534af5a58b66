"""The job ``compact``: leaders of a compacted topic in the tier let Spark clean it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import SparkSession

from milena.pipeline.jobs.compact import job, winners
from milena.pipeline.jobs.compact.job import Compacted, compact
from milena.tiered.orders.manifest import Manifest, encode_manifest
from tests.pipeline.cleaned import KEYS, PUBLISHED, REFUSED, UPDATES, CleanedInFolder, cleaned_in_folder
from tests.wire.admin import Places
from tests.wire.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

Start: TypeAlias = Callable[[int], CleanedInFolder]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Of so many brokers."""
    with ExitStack() as stack:
        yield lambda brokers: stack.enter_context(cleaned_in_folder(tmp_path, brokers=brokers))


def ordered(cleaned: CleanedInFolder) -> Path:
    """A new order."""
    wait_until(lambda: bool(cleaned.orders()), "a work order", 60)
    return cleaned.orders()[0]


def is_there(cleaned: CleanedInFolder, order: Path, _topic: str) -> bool:
    return order in cleaned.orders()


def wait_until_gone(order: Path) -> None:
    wait_until(lambda: not order.exists(), "the result to be published", 60)


def test_what_spark_has_cleaned_is_published_also_if_the_job_was_stopped_in_the_middle(
    spark: SparkSession, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = start(1)
    cleaned.write(UPDATES)
    order = ordered(cleaned)
    while len(json.loads((order / "order.json").read_text())["groups"]) < 2:
        compact(spark, str(cleaned.tier), chosen=partial(is_there, cleaned, order))
        wait_until_gone(order)
        order = ordered(cleaned)

    def half(rows: object, groups: object, parts: int) -> object:
        return winners.in_groups(rows, groups.where("group % 2 = 0"), parts)  # type: ignore[attr-defined, arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(job, "in_groups", half)
        with pytest.raises(Exception, match="groups were not written"):
            compact(spark, str(cleaned.tier))
    written = {path: path.stat().st_mtime_ns for path in order.glob("group-*.receipt")}
    assert written and not (order / "manifest.json").exists()
    seen: list[int] = []
    monkeypatch.setattr(job, "encode_manifest", seen_by(seen, written))
    result = compact(spark, str(cleaned.tier))
    assert result.orders >= 1 and seen[0] == len(written), "what was written is not written again"
    wait_until_gone(order)
    cleaned.clean(lambda: compact(spark, str(cleaned.tier)))
    assert cleaned.events(REFUSED) == []
    count, found = cleaned.read()
    assert found == cleaned.last and count < KEYS * UPDATES / 2


def seen_by(seen: list[int], written: dict[Path, int]) -> Callable[[Manifest], bytes]:
    """Counts receipts that are what they were when the manifest is written."""

    def encoding(manifest: Manifest) -> bytes:
        seen.append(sum(path.exists() and path.stat().st_mtime_ns == time for path, time in written.items()))
        return encode_manifest(manifest)

    return encoding


def test_the_result_of_a_leader_that_was_killed_is_not_published_and_the_next_ones_is(
    spark: SparkSession, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned = start(2)
    cleaned.write(UPDATES)
    old = ordered(cleaned)
    places = Places(cleaned.cluster.bootstrap, "t")
    leader = places.now()[0].leader
    befores, killed = job._befores, list[int]()

    def killing(*arguments: object) -> object:
        """Between the scan and the writing."""
        if not killed:
            cleaned.cluster.kill(leader)
            killed.append(leader)
        return befores(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(job, "_befores", killing)
        compact(spark, str(cleaned.tier), chosen=lambda topic: topic == "t" and old in cleaned.orders())
    wait_until(lambda: places.now()[0].leader not in (leader, -1), "another leader", 60)
    new = ""

    def issued() -> bool:
        nonlocal new
        new = next((one.name for one in cleaned.orders() if one != old), "")
        return bool(new) and not old.exists()

    wait_until(issued, "the new leader's order", 60)
    assert int(new.split("-")[0]) > int(old.name.split("-")[0])
    assert cleaned.events(PUBLISHED) == [], "the former leader's result is nobody's"
    cleaned.cluster.restart(leader)
    cleaned.clean(lambda: compact(spark, str(cleaned.tier)))
    count, found = cleaned.read()
    assert found == cleaned.last and count < KEYS * UPDATES / 2
    assert cleaned.events(REFUSED) == []


def test_the_command_carries_out_what_there_is(start: Start) -> None:
    cleaned = start(1)
    cleaned.write(UPDATES)
    words = ["pipeline", "compact", "--tier", str(cleaned.tier), "--master", "local[2]", "t"]

    def carry_out() -> None:
        command = [sys.executable, "-m", "milena", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, done.stdout.split(",")[0][1:]) == (0, " work orders carried out"), done.stderr

    cleaned.clean(carry_out)
    count, found = cleaned.read()
    assert found == cleaned.last and count < KEYS * UPDATES / 2


def test_without_orders_nothing_is_done(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "kafka-tiered-storage").mkdir()
    assert compact(spark, str(tmp_path)) == Compacted(0, 0, 0)
    folder = tmp_path / "milena-work" / "t-0-AAAAAAAAAAAAAAAAAAAAAQ" / "0-AAAAAAAAAAAAAAAAAAAAAQ"
    folder.mkdir(parents=True)
    (folder / "order.json").write_text("{}")
    told: list[str] = []
    assert compact(spark, str(tmp_path), told=told.append) == Compacted(0, 1, 0)
    assert told == [f"{folder.parent.name}/{folder.name}: the order has no version"]
