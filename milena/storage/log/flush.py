"""Flushing: makes what logs have written survive a power loss.

There are three steps, so that only the second one blocks: the log plans what to sync (on the loop), ``run`` or
``run_plans`` syncs it (anywhere), and the log records the result (on the loop).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from milena.protocol.types import REMOTE_METADATA_TOPIC, Offset
from milena.runtime.disk import Disk, File
from milena.storage.log.unsynced import Pending

SYNCED_FIRST: Final = frozenset({REMOTE_METADATA_TOPIC})
"""Topics whose records cause deletions elsewhere. If a power loss took a record of the tier's metadata, user records
might be neither on a disk nor found in the tier. The high watermark of these topics, which limits what readers see,
therefore covers only what every member of the ISR has synced."""


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
