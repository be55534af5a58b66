"""A job's folder: its results as Parquet, its page, and how far it has got.

Work is done in units. What a unit has found is written to a folder of its own, and then it is marked as done: so a job
that ended half-way does again what it had begun, and nothing else. The folder is a path that the driver and all
executors see.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from milena.pipeline.errors import PipelineError
from milena.pipeline.options import Chosen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE: Final = "job.json"
DONE: Final = "done"
PAGE: Final = "index.html"
Json: TypeAlias = dict[str, object]


class Results:
    """``plan``: what was planned when the job began; it stays when the job goes on."""

    def __init__(self, folder: str, state: Json) -> None:
        self.folder = os.path.abspath(folder)
        self._state = state

    @classmethod
    def begun(
        cls, folder: str, job: str, settings: Mapping[str, object], *, goes_on_when_finished: bool = False
    ) -> Results:
        """Of a job that begins, or goes on if it ended half-way. Results of an earlier run that has ended are removed,
        unless the job goes on with them.

        Raises PipelineError if the folder has something else."""
        fresh: Json = {"job": job, "settings": dict(settings), "finished": False, "plan": None}
        found = read_state(folder)
        if (
            found is not None
            and (goes_on_when_finished or not found["finished"])
            and found["job"] == job
            and found["settings"] == fresh["settings"]
        ):
            return cls(folder, found)
        if found is None and os.path.isdir(folder) and os.listdir(folder):
            raise PipelineError(f"{folder} is not empty, and has no results of a job: name another folder")
        if found is not None and found["job"] != job:
            raise PipelineError(f"{folder} has the results of the job {found['job']}: name another folder")
        if found is not None and (goes_on_when_finished or not found["finished"]):
            raise PipelineError(
                f"{folder} has a job that was started with {_told(found['settings'])}: go on with "
                "these options, or name another folder"
            )
        if found is not None:
            shutil.rmtree(folder)
        os.makedirs(folder, exist_ok=True)
        results = cls(folder, fresh)
        results._keep()
        return results

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
        """How many; units are numbered from 0 on, and done in this order."""
        return len(os.listdir(self.path(DONE))) if os.path.isdir(self.path(DONE)) else 0

    def write(self, table: str, unit: int, frame: DataFrame, by: str = "") -> None:
        """What a unit has found, in place of what a former attempt had written. ``by``: a folder for each value."""
        writer = frame.write.mode("overwrite")
        (writer.partitionBy(by) if by else writer).parquet(self.path(table, f"unit={unit}"))

    def done(self, unit: int) -> None:
        self.keep(os.path.join(DONE, str(unit)), b"")

    def read(self, spark: SparkSession, table: str, schema: StructType) -> DataFrame:
        """What all units that are done have found."""
        there = [self.path(table, f"unit={unit}") for unit in range(self.units_done())]
        there = [path for path in there if os.path.isdir(path)]
        return spark.read.schema(schema).parquet(*there) if there else spark.createDataFrame([], schema)

    def keep(self, name: str, data: bytes) -> None:
        """A file beside the tables, whole or not at all."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        _write(self.path(name), data)

    def finish(self, page: str) -> str:
        """Write the page; where it is."""
        _write(self.path(PAGE), page.encode())
        self._state["finished"] = True
        self._keep()
        return self.path(PAGE)

    def _keep(self) -> None:
        _write(self.path(STATE), json.dumps(self._state, indent=1).encode())


def topics_of(chosen: Chosen) -> str:
    """Which topics a job is about, for its settings."""
    return chosen.pattern or ",".join(chosen.topics or (f"{topic}-{number}" for topic, number in chosen.partitions))


def read_state(folder: str) -> Json | None:
    """None if there is none. Raises PipelineError."""
    path = os.path.join(folder, STATE)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        try:
            found = json.load(file)
            if isinstance(found, dict) and {"job", "settings", "finished", "plan"} <= found.keys():
                return found
        except ValueError:
            pass
    raise PipelineError(f"{path} is not what a job has written")


def _write(path: str, data: bytes) -> None:
    """Whole or not at all."""
    with open(f"{path}.new", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def _told(settings: object) -> str:
    assert isinstance(settings, dict)
    return ", ".join(f"{name}={value}" for name, value in settings.items() if value) or "no options"
