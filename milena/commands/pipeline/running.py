"""Runs the jobs of `milena pipeline`. Spark is imported only when a session is created."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from milena.command_line.errors import UsageError, UserError, reason_of
from milena.command_line.options import Values
from milena.commands.pipeline.java_output import JavaOutput
from milena.commands.pipeline.source_options import location_options, not_tiered, topic_options
from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.export.formats import Form
from milena.pipeline.jobs.units_text import bytes_text
from milena.pipeline.options import addresses, source_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS: Final = re.compile(r"milena\.pipeline\.[\w.]+: (.*)")
"""Matches the pipeline's own message in Spark's error about a failed task."""
MASTERS: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?|local-cluster\[.*\]|yarn|(spark|k8s)://.+", re.ASCII
)
"""The URLs that Spark accepts as a cluster."""
LOG_LEVEL: Final = "spark.log.level"
NO_GATEWAY: Final = "JAVA_GATEWAY_EXITED"
CALL: Final = re.compile(r"An error occurred while calling [\w.]+\n: [\w.$]+: ")
CAUSE: Final = re.compile(r"Caused by: [\w.$]+: (.*\S)")
"""Matches a cause in a Java stack trace. The last match is the root cause, such as `No space left on device`."""
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings for a session on this machine only: no other host needs to reach the driver."""


def audit(values: Values) -> int:
    """Run the job ``audit``. Return 1 if there are findings. Raises UserError."""
    if not values.price >= 0:
        raise UsageError(f"--price {values.price:g}: not a price")
    _check_topics(values)
    with _session(values, "audit") as spark:
        return _audit(spark, values, values.out, values.price)


def profile(values: Values) -> int:
    """Run the job ``profile``. Raises UserError."""
    _check_topics(values)
    with _session(values, "profile") as spark:
        return _profile(spark, values, values.out)


def look(values: Values) -> int:
    """Run audit and profile on the tier of a cluster. Return 1 if there are findings. Raises UserError."""
    both = Values(values.found | {"dir": [values.dir], "tier": None, "storage_options": "", "topic": []}, values.given)
    with _session(values, "look") as spark:
        code = _audit(spark, both, os.path.join(values.out, "audit"), 0.0)
        _profile(spark, both, os.path.join(values.out, "profile"))
        return code


def export(values: Values) -> int:
    """Run the job ``export``. Raises UserError."""
    if values.format not in ("parquet", "delta"):
        raise UsageError(f"--format {values.format}: one of parquet, delta")
    with _plain_errors():
        key, value = Form.of(values.key), Form.of(values.value)
    _check_topics(values)
    with _session(values, "export", DELTA if values.format == "delta" else {}) as spark:
        from milena.pipeline.jobs.export.job import export as job

        chosen = topic_options(values)
        forms = {"key": key, "value": value}
        place = location_options(values)
        with Terminal(partial(tasks_of, spark)) as terminal:
            found = job(spark, place, chosen, values.out, **forms, form=values.format, progress=terminal)
        print(f"{found.offsets} offsets exported, {found.commits} commits in all: {found.table}")
        return 0


def replay(values: Values) -> int:
    """Run the job ``replay``. Raises UserError."""
    if not values.to:
        raise UsageError("--to HOST:PORT,... is missing")
    with _plain_errors():
        addresses(values.to, "--to")
    if values.rate < 0:
        raise UsageError(f"--rate {values.rate}: not a number of records")
    _check_topics(values)
    with _session(values, "replay", {"spark.task.maxFailures": "1"}) as spark:
        from milena.pipeline.jobs.replay.job import replay as job

        pace = Pace(values.rate)
        chosen = topic_options(values)
        place = location_options(values)
        with Terminal(partial(tasks_of, spark)) as terminal:
            found = job(spark, place, chosen, values.to, values.out, rate=values.rate, pace=pace, progress=terminal)
        print(f"{found.records} records written to {values.to}, {found.offsets} offsets processed")
        return 0


class Pace:
    """Waits so that at most ``rate`` records per second are written; 0 does not wait."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._begun = time.monotonic()
        self._records = 0

    def __call__(self, records: int) -> None:
        self._records += records
        if self.rate:
            time.sleep(max(0.0, self._begun + self._records / self.rate - time.monotonic()))


def _audit(spark: SparkSession, values: Values, folder: str, price: float) -> int:
    from milena.pipeline.jobs.audit.job import audit as job

    options = source_options({**location_options(values), **topic_options(values)})
    with Terminal(partial(tasks_of, spark)) as terminal:
        found = job(spark, options, folder, price=price, not_tiered=not_tiered(values), progress=terminal)
    word = "finding" if found.findings == 1 else "findings"
    print(f"audit: {found.segments} segments, {found.findings or 'no'} {word}: {found.page}")
    return 1 if found.findings else 0


def _profile(spark: SparkSession, values: Values, folder: str) -> int:
    from milena.pipeline.jobs.profile.job import profile as job

    with Terminal(partial(tasks_of, spark)) as terminal:
        found = job(spark, location_options(values), topic_options(values), folder, progress=terminal)
    print(f"profile: {found.offsets} offsets: {found.page}")
    return 0


def _check_topics(values: Values) -> None:
    """Check the options, and that the named topics exist, before Spark is started, which is slow. Raises UserError."""
    with _plain_errors():
        given = {**location_options(values), **topic_options(values)}
        source_options(given)
        if values.topic:
            from milena.pipeline.jobs.units import check_topics

            check_topics(given, values.topic)


@contextmanager
def _session(values: Values, job: str, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Provide a Spark session for a job. Raises UserError, also for Spark's errors."""
    from milena.pipeline.session import check_installed, session

    logging.getLogger().addFilter(_is_no_interrupt)
    if not MASTERS.fullmatch(values.master):
        raise UsageError(
            f"--master {values.master}: Spark takes local[*], local[N], spark://HOST:PORT, yarn, k8s://..."
        )
    settings = {
        LOG_LEVEL: "OFF",  # no stack traces: errors are reported in one line
        **more,
        **(LOCAL if values.master.startswith("local") else {}),
        **dict(values.conf),
    }
    output = JavaOutput()
    shows_all = LOG_LEVEL in dict(values.conf)
    with _plain_errors(output):
        check_installed()
        print("starting Spark", file=sys.stderr, flush=True)
        with nullcontext() if shows_all else output.diverted():
            spark = session(values.master, f"milena pipeline {job}", settings)
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def _plain_errors(output: JavaOutput | None = None) -> Iterator[None]:
    """Convert errors of the pipeline, of Spark and of the system into UserError. ``output``: that of Spark's Java
    process."""
    try:
        yield
    except PipelineError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(reason_of(error)) from None
    except Exception as error:
        if not _is_sparks(error):
            raise
        if NO_GATEWAY in str(error):
            reason = output.reason() if output is not None else ""
            raise UserError(f"Spark's Java process did not start: {reason or 'see its output above'}") from None
        raise UserError(message_of(str(error))) from None


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """A filter of log records: py4j logs Ctrl-C as an error with a stack trace, which is suppressed."""
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


def _is_sparks(error: Exception) -> bool:
    from py4j.protocol import Py4JError  # Spark raises it if a task cannot write its results, for example
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def message_of(text: str) -> str:
    """Return the one line of an error of Spark that explains it to the user."""
    ours: list[str] = OURS.findall(text)
    if ours:
        return ours[-1]
    first = CALL.sub("", text.strip()).partition("\n")[0]
    causes: list[str] = CAUSE.findall(text)
    return f"Spark: {first}" + (f" {causes[-1]}" if causes and causes[-1] not in first else "")


class Terminal:
    """A context manager that prints the progress of a job on standard error: on a terminal as one line that is
    rewritten, otherwise as a new line from time to time. Between the calls of the job it shows the tasks of Spark.
    ``tasks``: returns how many of the tasks that are running or waiting have ended, and how many there are."""

    def __init__(self, tasks: Callable[[], tuple[int, int]] = lambda: (0, 0)) -> None:
        self._drawable = sys.stderr.isatty()
        self._begun: tuple[float, int] | None = None
        self._last = float("-inf")
        self._line = ""
        self._tasks = tasks
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._show_tasks, daemon=True, name="tasks of Spark")

    def __enter__(self) -> Terminal:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watch.join()

    def __call__(self, what: str, done: int, total: int, unit: str) -> None:
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, done
        self._line = progress_line(what, done, total, unit, now - self._begun[0], done - self._begun[1])
        self._show(self._line, ended=done >= total)

    def _show_tasks(self) -> None:
        while not self._ended.wait(1):
            self.tick()

    def tick(self) -> None:
        """Show how many tasks of Spark have ended."""
        ended, every = self._tasks()
        if every:
            self._show(f"{self._line or 'working'} ({ended:,} of {every:,} tasks)", ended=False)

    def _show(self, line: str, *, ended: bool) -> None:
        with self._lock:
            now = time.monotonic()
            if not ended and now - self._last < (0 if self._drawable else 10):
                return
            self._last = now
            if self._drawable:
                print(f"\r{line}\x1b[K", end="\n" if ended else "", file=sys.stderr, flush=True)
            else:
                print(line, file=sys.stderr, flush=True)


def tasks_of(spark: SparkSession) -> tuple[int, int]:
    """Return how many tasks of the active stages have ended, and how many there are."""
    tracker = spark.sparkContext.statusTracker()
    stages = [one for one in map(tracker.getStageInfo, tracker.getActiveStageIds()) if one is not None]
    return sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)


def progress_line(what: str, done: int, total: int, unit: str, seconds: float, done_here: int) -> str:
    """Return a line with the progress and the remaining time. ``done_here``: the amount that this run has done, in
    ``seconds``; a part of ``done`` may have been done by an earlier run."""
    size = unit == "bytes"
    line = f"{what} {bytes_text(done)} of {bytes_text(total)}" if size else f"{what} {done:,} of {total:,} {unit}"
    if not done_here or not seconds:
        return line
    rate = done_here / seconds
    speed = f"{bytes_text(int(rate))}/s" if size else f"{rate:,.0f} {unit}/s"
    return f"{line}, {speed}" + (f", {(total - done) / rate:,.0f} s left" if done < total else "")
