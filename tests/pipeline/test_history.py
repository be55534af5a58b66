"""The job ``history`` gives the verdict that one process gives."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from milena.commands.pipeline.judging import LabRules
from milena.lab.histories.events import Event, Invoke, write
from milena.lab.histories.files import judge_file
from milena.lab.histories.parts import DEFAULT
from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.history import lines
from milena.pipeline.jobs.history.job import history
from tests.unit.lab.histories import PLANTS, valid
from tests.unit.lab.mixed_histories import mixed, moved


def planted() -> list[Event]:
    """Each anomaly that can be planted, in a partition of its own; groups, keys, topics and faults; operations without
    an end; all mixed, in the order of each part."""
    random = Random(7)
    parts = [moved(plant(valid(number)), 10 + number) for number, (plant, *_) in enumerate(PLANTS)]
    parts.append(mixed(3))
    parts.append([Invoke("send", 5.0, ("t", 77), value="lost"), Invoke("change", 1.0, value="new", acks=1)])
    found: list[Event] = []
    while parts := [one for one in parts if one]:
        found.append(random.choice(parts).pop(0))
    return found


def test_a_planted_history_has_each_anomaly_that_one_process_finds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(write(planted())) + '{"event":"send","part')
    expected = judge_file(path)
    assert len({one.anomaly for one in expected}) >= len(PLANTS) - 2
    monkeypatch.setattr(lines, "SPLIT", path.stat().st_size // 7)
    monkeypatch.setattr("milena.pipeline.jobs.history.job.BUCKET", path.stat().st_size // 2 + 1)
    folder = str(tmp_path / "judged")

    def stop(what: str, done: int, whole: int, unit: str) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        history(spark, str(path), LabRules(DEFAULT), folder, progress=stop)
    result = history(spark, str(path), LabRules(DEFAULT), folder)
    assert [tuple(one) for one in result.first] == [(one.anomaly.value, one.where, one.text) for one in expected]
    assert result.anomalies == len(expected) and "anomalies in" in Path(result.page).read_text()
    assert not (tmp_path / "judged" / "lines").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"event":"no such"}', "not an event of a history"),
        ('{"event":"poll","partition":["t",0],"at":true}', "at cannot be"),
    ],
)
def test_a_bad_line_is_named_by_its_number(spark: SparkSession, tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(write(valid(1).events())) + f"{line}\n\n")
    number = len(valid(1).events()) + 1
    with pytest.raises(PySparkException, match=f"jsonl, line {number}: {said}"):
        history(spark, str(path), LabRules(DEFAULT), str(tmp_path / "judged"))
    with pytest.raises(PipelineError, match=r"nothing\.jsonl: No such file"):
        history(spark, str(tmp_path / "nothing.jsonl"), LabRules(DEFAULT), str(tmp_path / "other"))


def test_lines_belong_to_the_piece_in_which_they_begin(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(write(valid(2).events())))
    splitting = lines.Splitting(str(path), LabRules(DEFAULT))
    size = path.stat().st_size
    for step in (1, 50, 333, size):
        found = [row[-1] for at in range(0, size, step) for row in splitting.rows(at, min(size, at + step))]
        assert b"".join(found) == path.read_bytes()


def test_a_pipe_is_no_history_without_anomalies(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    nothing: Any = None  # there is nothing to do for Spark
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(PipelineError, match="is no file: tasks read the parts of one side by side"):
            history(nothing, str(path), LabRules(DEFAULT), str(tmp_path / "judged"))
    assert not (tmp_path / "judged").exists()


def test_a_job_that_is_killed_before_it_has_ended_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "history.jsonl", str(tmp_path / "judged")
    path.write_text("".join(write(valid(1).events())))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("milena.pipeline.jobs.results.Results.finish", killed)
        history(spark, str(path), LabRules(DEFAULT), folder)
    assert history(spark, str(path), LabRules(DEFAULT), folder).anomalies == 0
    assert not (tmp_path / "judged" / "lines").exists()
