"""Flushing: makes what logs have written survive a power loss.

There are three steps, so that only the second one blocks: the log plans what to sync (on the loop), ``run`` or
``run_plans`` syncs it (anywhere), and the log records the result (on the loop).

``Unsynced`` lists what a log has written besides its records and not synced yet: small files, and the entries of its
folder. A flush syncs what is listed when it is planned. The items stay until that flush has finished, so that a
concurrent one does not rely on work that the first has yet to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from milena.protocol.types import REMOTE_METADATA_TOPIC, Offset
from milena.runtime.disk import Disk, File

SYNCED_FIRST: Final = frozenset({REMOTE_METADATA_TOPIC})
"""Topics whose records cause deletions elsewhere. If a power loss took a record of the tier's metadata, user records
might be neither on a disk nor found in the tier. The high watermark of these topics, which limits what readers see,
therefore covers only what every member of the ISR has synced."""


class Pending(NamedTuple):
    """What was unsynced at a certain time: the small files, each with the number of its last change, and the number of
    the folder's last change, 0 if its entries were synced."""

    files: dict[str, int]
    folder: int


class Unsynced:
    """The unsynced files of one log."""

    __slots__ = ("_changes", "_files", "_folder")

    def __init__(self) -> None:
        self._changes = 0
        self._files: dict[str, int] | None = None
        self._folder = 0

    def __contains__(self, path: str) -> bool:
        return self._files is not None and path in self._files

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

    def synced(self, done: Pending) -> None:
        """``done`` is synced. Changes made since are not."""
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
        """The folder was renamed: files that were to be synced under the old name must be synced under the new one."""
        for path in list(self._files or ()):
            self.file_synced(path)
            self.file_written(new + path.removeprefix(old))
        self.folder_changed()


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Files that hold a log's records before ``upto``, and the files that belong to them."""

    disk: Disk
    upto: Offset
    truncations: int
    """The log's truncations when the plan was made: if it was truncated since, the flush counts for nothing."""
    folder: str
    """The log's folder."""
    files: tuple[File, ...]
    pending: Pending
    """Small files, to be synced by their paths."""
    folders: tuple[str, ...]
    """Folders with new files."""

    def run(self) -> None:
        """Sync everything in the plan. Raises OSError."""
        (error,) = run_plans((self,))
        if error is not None:
            raise error


def run_plans(plans: Sequence[FlushPlan]) -> list[OSError | None]:
    """Sync everything in the plans, each folder once; returns the outcome of each plan."""
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
    """A file that has been removed, with its segment or with the whole log, needs no sync."""
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
