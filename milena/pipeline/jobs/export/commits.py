"""Commits of an export: each is a file with the offsets and the files of a unit, written atomically.

Parquet: a unit is written to a staging folder; then its commit is written; then its files are moved into the table,
under the names in the commit. A job that is interrupted before the commit has added nothing; one that is interrupted
after it moves the remaining files when it continues. So each record is in the table once.

A table format with its own commits (Delta): the plan of a unit is stored first, then the unit is written with its
number, then committed. A job that continues writes the stored unit again, and the format ignores a number that it
already has.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from milena.pipeline.errors import PipelineError
from milena.pipeline.jobs.lock import other_files
from milena.pipeline.jobs.units import Unit
from milena.pipeline.position import Position

DATA: Final = "data"
COMMITS: Final = "commits"
STAGING: Final = "staging"
SETTINGS: Final = "export.json"


@dataclass(slots=True)
class Export:
    """The folder of an exported table. ``position``: for each partition, the offset after the last committed one."""

    folder: str
    commits: int = 0
    position: Position = field(default_factory=Position)

    @classmethod
    def opened(cls, folder: str, settings: Mapping[str, str]) -> Export:
        """Open an export, or create one. Files of the last commit that were not yet moved into the table are moved.
        Raises PipelineError if the folder has other files, or an export with other settings."""
        export = cls(os.path.abspath(folder))
        path = export.path(SETTINGS)
        if not os.path.exists(path):
            if other_files(folder):
                raise PipelineError(f"{folder} is not empty and does not contain an export: name another folder")
            os.makedirs(export.folder, exist_ok=True)
            export._write(SETTINGS, dict(settings))
        os.makedirs(export.path(COMMITS), exist_ok=True)
        found = export._read(SETTINGS)
        if found != dict(settings):
            odd = next(name for name in {**found, **settings} if found.get(name) != settings.get(name))
            raise PipelineError(f"{folder} is an export with {odd}={found.get(odd)}, not {settings.get(odd)}")
        while os.path.exists(export._commit(export.commits)):
            commit = export._read(COMMITS, f"{export.commits}.json")
            export._take(commit)
        if export.commits:
            export._carry_out(commit)
        shutil.rmtree(export.path(STAGING), ignore_errors=True)
        return export

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def noted(self) -> Unit | None:
        """Return the unit that an earlier run has stored (``note``) and not committed; None if there is none."""
        path = os.path.join(COMMITS, f"{self.commits}.noted")
        return Unit.of(self._read(path)) if os.path.exists(self.path(path)) else None

    def note(self, unit: Unit) -> None:
        """Store the unit that will be written next; its number is ``commits``."""
        self._write(os.path.join(COMMITS, f"{self.commits}.noted"), unit.plain())

    def commit(self, unit: Unit) -> None:
        """Commit a unit: add the files in STAGING to the table. Raises PipelineError if another job has written the
        same commit."""
        moves: dict[str, str] = {}
        for folder, _, names in sorted(os.walk(self.path(STAGING))):
            below = os.path.relpath(folder, self.path(STAGING))
            for name in sorted(names):
                if name.endswith(".parquet"):
                    to = os.path.normpath(os.path.join(below, f"{self.commits:08d}-{len(moves):05d}.parquet"))
                    moves[os.path.normpath(os.path.join(below, name))] = to
        commit: dict[str, object] = {**unit.plain(), "moves": moves}
        self._write(os.path.join(COMMITS, f"{self.commits}.new"), commit)
        try:
            os.link(self.path(COMMITS, f"{self.commits}.new"), self._commit(self.commits))
        except FileExistsError:
            raise PipelineError(
                f"another export into {self.folder} has written commit {self.commits} in the meantime"
            ) from None
        os.unlink(self.path(COMMITS, f"{self.commits}.new"))
        self._take(commit)
        self._carry_out(commit)

    def _take(self, commit: Mapping[str, object]) -> None:
        self.commits += 1
        unit = Unit.of(commit)
        if any(self.position.ends.get(place, first) > first for place, (first, _) in unit.ranges.items()):
            raise PipelineError(f"commit {self.commits - 1} of {self.folder} has offsets that an earlier commit has")
        self.position = self.position.advanced(unit.ends, unit.ids)

    def _carry_out(self, commit: Mapping[str, object]) -> None:
        moves = commit["moves"]
        assert isinstance(moves, dict)
        for source, to in moves.items():
            at, target = self.path(STAGING, source), self.path(DATA, to)
            if os.path.exists(at):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                os.replace(at, target)
            elif not os.path.exists(target):
                raise PipelineError(f"{target}, a file of a commit, is missing")

    def _commit(self, number: int) -> str:
        return self.path(COMMITS, f"{number}.json")

    def _read(self, *names: str) -> dict[str, object]:
        with open(self.path(*names), "rb") as file:
            try:
                found = json.load(file)
            except ValueError:
                found = None
        if not isinstance(found, dict):
            raise PipelineError(f"{self.path(*names)} was not written by an export")
        return found

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        path = self.path(name)
        with open(f"{path}.part", "wb") as file:
            file.write(json.dumps(content).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.part", path)
