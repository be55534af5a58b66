"""Flushing: syncs logs, so that their records survive a power failure.

A flush has three steps, of which only the second blocks: the log plans what to sync (on the loop), ``run`` or
``run_plans`` syncs it (in a worker), and the log records the result (on the loop).

``Unsynced`` lists the small files and the folder that a log has changed since they were synced. An entry remains until
the flush that syncs it has finished, so that a concurrent flush syncs it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from milena.protocol.types import REMOTE_METADATA_TOPIC, Offset
from milena.runtime.disk import Disk, File

SYNCED_FIRST: Final = frozenset({REMOTE_METADATA_TOPIC})
"""Topics whose records cause deletions elsewhere. Local segments are deleted because of records in the metadata topic
of the tier. If a power failure destroyed such a record, user records would be neither on a disk nor in the tier. So the
high watermark of these topics covers only records that every member of the ISR has synced."""


class Pending(NamedTuple):
    """The unsynced files and folder at one time, each with the number of its last change. ``folder`` is 0 if it is
    synced."""

    files: dict[str, int]
    folder: int


class Unsynced:
    """The unsynced files of one log."""

    __slots__ = ("_changes", "_files", "_folder")

    def __init__(self) -> None:
        self._changes = 0
        self._files: dict[str, int] | None = None
        self._folder = 0

    @property
    def has_files(self) -> bool:
        return bool(self._files)

    def file_written(self, path: str) -> None:
        if self._files is None:
            self._files = {}
        self._changes += 1
        self._files[path] = self._changes

    def file_synced(self, path: str) -> None:
        if self._files is not None:
            self._files.pop(path, None)

    def folder_changed(self) -> None:
        """The folder has new files, or was renamed."""
        self._changes += 1
        self._folder = self._changes

    def pending(self) -> Pending:
        return Pending(dict(self._files or ()), self._folder)

    def pending_file(self, path: str) -> Pending | None:
        """The entry of one file alone; None if that is synced."""
        change = None if self._files is None else self._files.get(path)
        return None if change is None else Pending({path: change}, 0)

    def synced(self, done: Pending) -> None:
        """Remove what is in ``done``, unless it was changed again since."""
        files = self._files
        if files is not None:
            for path, change in done.files.items():
                if files.get(path) == change:
                    del files[path]
            if not files:
                self._files = None
        if self._folder == done.folder:
            self._folder = 0

    def moved(self, old: str, new: str) -> None:
        """The folder was renamed from ``old`` to ``new``: update the paths."""
        for path in list(self._files or ()):
            self.file_synced(path)
            self.file_written(new + path.removeprefix(old))
        self.folder_changed()


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """The files and folders to sync so that the records of a log before ``upto`` are synced."""

    disk: Disk
    upto: Offset
    truncations: int
    """The log's number of truncations when the plan was made. If it was truncated since, the flush does not count."""
    folder: str
    """The log's folder."""
    files: tuple[File, ...]
    pending: Pending
    """Small files, to be synced by their paths."""
    folders: tuple[str, ...]
    """Folders with new or renamed files."""

    def run(self) -> None:
        """Sync everything in the plan. Raises OSError."""
        (error,) = run_plans((self,))
        if error is not None:
            raise error


def run_plans(plans: Sequence[FlushPlan]) -> list[OSError | None]:
    """Sync everything in the plans, each folder once. Returns the error of each plan, None if it succeeded."""
    errors: list[OSError | None] = []
    folders: dict[str, OSError | None] = {}
    for plan in plans:
        errors.append(_error_of(plan, folders))
    return errors


def _error_of(plan: FlushPlan, folders: dict[str, OSError | None]) -> OSError | None:
    try:
        for file in plan.files:
            file.sync()
        for path in sorted(plan.pending.files):
            _sync_path(plan.disk, path)
    except OSError as error:
        return error
    for folder in plan.folders:
        if folder not in folders:
            folders[folder] = _sync_folder(plan.disk, folder)
        if (error_of_folder := folders[folder]) is not None:
            return error_of_folder
    return None


def _sync_path(disk: Disk, path: str) -> None:
    """Sync the file. A file that was removed, with its segment or its log, needs no sync."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def _sync_folder(disk: Disk, folder: str) -> OSError | None:
    try:
        disk.sync_folder(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error
    return None
