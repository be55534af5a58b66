"""`milena pipeline` without Spark: help, errors about missing software and wrong options, progress."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from milena.__main__ import main
from milena.command_line.errors import UserError
from milena.command_line.options import Values
from milena.commands.pipeline import running
from milena.commands.pipeline.java_output import JavaOutput
from milena.commands.pipeline.running import Terminal, message_of, progress_line, tasks_of


@pytest.mark.parametrize("job", ["audit", "profile", "export", "replay", "demo", "look"])
def test_each_job_has_help_without_spark(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    monkeypatch.setattr("sys.argv", ["milena", "pipeline", job, "--help"])
    assert main() == 0
    assert capsys.readouterr().out.startswith(f"usage: milena pipeline {job} [options]")


@pytest.mark.parametrize("more", [[], ["--dir", "milena-data"], ["--help"]])
@pytest.mark.parametrize(
    ("job", "instead"),
    [
        (
            "compact",
            "the leader of a partition compacts it in the tier itself (docs/decisions/2026-11-25-no-work-orders.md)",
        ),
        (
            "history",
            "`milena history check FILE` judges histories of any length "
            "(docs/decisions/2026-11-25-histories-in-one-process.md)",
        ),
    ],
)
def test_the_error_for_a_removed_job_names_its_replacement(
    job: str, instead: str, more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["milena", "pipeline", job, *more])
    assert main() == 1
    assert capsys.readouterr().err == f"milena: `milena pipeline {job}` was removed: {instead}\n"


def test_without_spark_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pyspark", "pyspark.sql"):  # pyspark.sql may have been imported before
        monkeypatch.setitem(__import__("sys").modules, name, None)
    monkeypatch.setattr("milena.pipeline.session.check_jdk", lambda: None)
    monkeypatch.setattr("sys.argv", ["milena", "pipeline", "audit", "--tier", "."])
    assert main() == 1
    assert capsys.readouterr().err == "milena: Spark is not installed: pip install 'milena-kafka[spark]'\n"


def test_without_a_jdk_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("sys.argv", ["milena", "pipeline", "audit", "--tier", "."])
    assert main() == 1
    said = capsys.readouterr().err
    assert said.startswith("milena: Spark needs a JDK") and said.count("\n") == 1


def test_progress_shows_the_speed_and_the_remaining_time() -> None:
    assert progress_line("read", 0, 10, "bytes", 0.0, 0) == "read 0 bytes of 10 bytes"
    assert (
        progress_line("read", 3 << 20, 9 << 20, "bytes", 2.0, 2 << 20) == "read 3.0 MiB of 9.0 MiB, 1.0 MiB/s, 6 s left"
    )
    assert (
        progress_line("replayed", 5000, 5000, "offsets", 2.0, 4000)
        == "replayed 5,000 of 5,000 offsets, 2,000 offsets/s"
    )


def test_the_tasks_of_spark_are_shown_between_the_units_of_a_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tasks = [(0, 0), (3, 40)]
    terminal = Terminal(lambda: tasks.pop(0))
    terminal("read", 0, 10, "bytes")
    terminal.tick()
    terminal.tick()
    line = "read 0 bytes of 10 bytes"
    assert capsys.readouterr().err == f"\r{line}\x1b[K\r{line} (3 of 40 tasks)\x1b[K"


def test_the_tasks_of_all_active_stages_are_counted() -> None:
    stages = {1: SimpleNamespace(numCompletedTasks=3, numTasks=8), 2: SimpleNamespace(numCompletedTasks=0, numTasks=2)}
    tracker = SimpleNamespace(getActiveStageIds=lambda: [1, 2, 9], getStageInfo=stages.get)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    assert tasks_of(spark) == (3, 10)


def test_of_javas_output_only_warnings_of_the_pipeline_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    event = {"timestamp": "t", "level": "warning", "component": "pipeline", "event": "data loss", "what": "orders-0: x"}
    banner = "Using Spark's default log4j profile\n\tat java.base/x\n{not json\n[]\n"
    text = f"{banner}{json.dumps(event)}\nTraceback: the end\n\n"
    output = JavaOutput()
    with output.diverted():
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stderr.write(sys.stdin.read())"], stdin=-1)
    child.communicate(text.encode())
    assert output.reason() == "{not json [] Traceback: the end"
    assert capfd.readouterr().err == "warning: data loss: orders-0: x\n"
    print("here again", file=sys.stderr)
    assert capfd.readouterr().err == "here again\n"


def test_the_message_of_the_root_cause_is_extracted_from_errors_of_spark() -> None:
    text = "An exception\n  File x\nmilena.pipeline.open_tier.Damaged: orders-0/1.log, at offset 7: wrong\n\tat java\n"
    assert message_of(text) == "orders-0/1.log, at offset 7: wrong"
    assert message_of("x\nmilena.pipeline.plans.NoSuchTopic: option assign: there is no topic t\n") == (
        "option assign: there is no topic t"
    )
    assert message_of("first line\nsecond") == "Spark: first line"
    text = (
        "An error occurred while calling o75.parquet.\n: org.apache.spark.SparkException: Job aborted.\n\tat o.a.S\n"
        "Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed\n\tat o.a.Task\n"
        "Caused by: java.io.IOException: No space left on device\n\tat java.base/java.io\n\t... 44 more\n"
    )
    assert message_of(text) == "Spark: Job aborted. No space left on device"


def test_an_error_of_sparks_gateway_is_reported_without_a_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from py4j.protocol import Py4JError

    class Session:
        def stop(self) -> None:
            pass

    monkeypatch.setattr("milena.pipeline.session.session", lambda *_: Session())
    values = Values({"master": "local", "conf": []}, frozenset())
    with pytest.raises(UserError, match=r"^Spark: it is full$"), running._session(values, "export"):
        raise Py4JError("An error occurred while calling o75.parquet.\n: java.io.IOException: it is full\n\tat x")


def test_a_java_process_that_does_not_start_is_reported_without_a_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("pyspark.errors")

    def session(*_: object) -> None:
        raise errors.PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr("milena.pipeline.session.session", session)
    values = Values({"master": "local", "conf": [("spark.driver.memory", "1m")]}, frozenset())
    with pytest.raises(UserError, match=r"^Spark's Java process did not start: see its output above$"):
        running._session(values, "export").__enter__()


def test_an_interrupt_prints_no_stack_trace(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyspark")
    given: list[Mapping[str, str]] = []

    class Session:
        def stop(self) -> None:
            pass

    def session(_master: str, _name: str, settings: Mapping[str, str]) -> Session:
        given.append(settings)
        return Session()

    monkeypatch.setattr("milena.pipeline.session.session", session)
    values = Values({"master": "local", "conf": [("spark.log.level", "WARN")]}, frozenset())
    with pytest.raises(KeyboardInterrupt), running._session(values, "export"):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            logging.exception("KeyboardInterrupt while sending command.")  # as py4j does
            raise
    assert caplog.records == [] and given[0]["spark.log.level"] == "WARN"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("audit --master here", "--master here: Spark takes local[*], local[N], spark://HOST:PORT, yarn, k8s://..."),
        ("audit --master local[0]", "--master local[0]: Spark takes "),
        ("audit --price -1", "--price -1: not a price"),
        ("audit --price nan", "--price nan: not a price"),
        ("profile -b here", "option kafka.bootstrap.servers: here is not HOST:PORT"),
        ("export --key avro", "avro is neither bytes nor string nor json:SCHEMA"),
        ("export --value json:", "json: is neither bytes nor string nor json:SCHEMA"),
        ("replay --to here", "option --to: here is not HOST:PORT"),
    ],
)
def test_a_wrong_option_is_reported_before_spark_is_started(
    line: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("milena.pipeline.session.session", started)
    monkeypatch.setattr("sys.argv", ["milena", "pipeline", *line.split(), "--tier", str(tmp_path)])
    assert main() > 0
    said = capsys.readouterr().err
    assert said.startswith(f"milena: {sentence}") and said.count("\n") == 1


@pytest.mark.parametrize("job", ["audit", "profile", "export", "replay"])
def test_an_unknown_topic_is_reported_before_spark_is_started(
    job: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr(running, "_session", started)
    (tmp_path / "kafka-tiered-storage").mkdir()
    more = ["--to", "127.0.0.1:1"] if job == "replay" else []
    arguments = ["nope", "--tier", str(tmp_path), "--out", str(tmp_path / "out"), *more]
    monkeypatch.setattr("sys.argv", ["milena", "pipeline", job, *arguments])
    assert main() == 1
    sentence = "there is no topic nope; there is none at all; if it exists, nothing of it is in the tier yet"
    assert capsys.readouterr().err == f"milena: option subscribe: {sentence}\n"
    monkeypatch.setattr("sys.argv", ["milena", "pipeline", job, "other", *arguments])
    assert main() == 1
    assert capsys.readouterr().err == "milena: there is no topic other\n"
    assert not (tmp_path / "out").exists()
