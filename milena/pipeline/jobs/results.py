"""A job's folder: its results as Parquet, its page, and its state.

Work is done in units. The results of a unit are written to a folder, then the unit is marked as done: a job that was
interrupted repeats only the unit that it had started. The driver and all executors must have access to the folder.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.lock import locked_folder
from milena.pipeline.options import Chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE: Final = "job.json"
DONE: Final = "done"
PAGE: Final = "index.html"
Json: TypeAlias = dict[str, object]


class Results:
    """The folder of a running job. ``plan``: the plan made when the job was started first; it stays the same when the
    job continues."""

    def __init__(self, folder: str, state: Json) -> None:
        self.folder = os.path.abspath(folder)
        self._state = state
        self._keep()

    @classmethod
    @contextmanager
    def begun(
        cls,
        folder: str,
        job: str,
        settings: Mapping[str, object],
        tables: Sequence[str],
        *,
        goes_on_when_finished: bool = False,
    ) -> Iterator[Results]:
        """Start a job in ``folder``, or continue one that was interrupted; the folder is locked. Results of a finished
        run (``tables``, the page) are removed, unless ``goes_on_when_finished``: then the job adds to them.

        Raises PipelineError if the folder has other files, or if another job uses it."""
        with locked_folder(folder, STATE, "results of a job"):
            yield cls(folder, _begun(folder, job, settings, tables, goes_on_when_finished))

    @property
    def plan(self) -> object:
        return self._state["plan"]

    @plan.setter
    def plan(self, plan: object) -> None:
        self._state["plan"] = plan
        self._keep()

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def is_done(self, unit: int) -> bool:
        return os.path.exists(self.path(DONE, str(unit)))

    def units_done(self) -> int:
        """Return the number of finished units. Units are numbered from 0, and processed in this order."""
        return len(os.listdir(self.path(DONE))) if os.path.isdir(self.path(DONE)) else 0

    def write(self, table: str, unit: int, frame: DataFrame, by: str = "") -> None:
        """Write the results of a unit, which replace those of an earlier attempt. ``by``: a column by whose values the
        rows are divided into folders."""
        writer = frame.write.mode("overwrite")
        (writer.partitionBy(by) if by else writer).parquet(self.path(table, f"unit={unit}"))

    def done(self, unit: int) -> None:
        self.keep(os.path.join(DONE, str(unit)), b"")

    def read(self, spark: SparkSession, table: str, schema: StructType) -> DataFrame:
        """Return the results of all finished units as a DataFrame."""
        there = [self.path(table, f"unit={unit}") for unit in range(self.units_done())]
        there = [path for path in there if os.path.isdir(path)]
        return spark.read.schema(schema).parquet(*there) if there else spark.createDataFrame([], schema)

    def keep(self, name: str, data: bytes) -> None:
        """Write a file to the folder atomically."""
        with _plain_errors(self.folder):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        _write(self.path(name), data)

    def finish(self, page: str) -> str:
        """Write the page; return its path."""
        _write(self.path(PAGE), page.encode())
        self._state["finished"] = True
        self._keep()
        return self.path(PAGE)

    def _keep(self) -> None:
        _write(self.path(STATE), json.dumps(self._state, indent=1).encode())


def _begun(
    folder: str, job: str, settings: Mapping[str, object], tables: Sequence[str], goes_on_when_finished: bool
) -> Json:
    fresh: Json = {"job": job, "settings": dict(settings), "finished": False, "plan": None}
    found = read_state(folder)
    if found is None:
        return fresh
    if found["job"] != job:
        raise PipelineError(f"{folder} contains results of the job {found['job']}: name another folder")
    if goes_on_when_finished or not found["finished"]:
        if found["settings"] != fresh["settings"]:
            raise PipelineError(
                f"{folder} contains a job that was started with {_settings_text(found['settings'])}: use these "
                "options, or name another folder"
            )
        return found
    # The state is written last: if this run is interrupted here, the folder still has a finished job.
    with _plain_errors(folder):
        for name in (*tables, DONE):
            if os.path.isdir(os.path.join(folder, name)):
                shutil.rmtree(os.path.join(folder, name))
        if os.path.exists(os.path.join(folder, PAGE)):
            os.unlink(os.path.join(folder, PAGE))
    return fresh


def shown(place: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the location of the records without those of the file system, which may contain secrets,
    so that they can be stored and shown."""
    return {name: value for name, value in place.items() if value and name != "storageOptions"}


def topics_of(chosen: Chosen) -> str:
    """Return the selected topics as text, for the job's settings."""
    return chosen.pattern or ",".join(chosen.topics or (f"{topic}-{number}" for topic, number in chosen.partitions))


def read_state(folder: str) -> Json | None:
    """Return the state of the job in a folder; None if there is none. Raises PipelineError."""
    path = os.path.join(folder, STATE)
    try:
        with open(path, "rb") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PipelineError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        found = None
    if isinstance(found, dict) and {"job", "settings", "finished", "plan"} <= found.keys():
        return found
    raise PipelineError(f"{path} was not written by a job")


def _write(path: str, data: bytes) -> None:
    """Write a file atomically. Raises PipelineError."""
    with _plain_errors(path):
        with open(f"{path}.new", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)


@contextmanager
def _plain_errors(path: str) -> Iterator[None]:
    """Convert OSError to PipelineError."""
    try:
        yield
    except OSError as error:
        raise PipelineError(f"{error.filename or path} cannot be written: {error.strerror or error}") from None


def _settings_text(settings: object) -> str:
    assert isinstance(settings, dict)
    return ", ".join(f"{name}={value}" for name, value in settings.items() if value) or "no options"
