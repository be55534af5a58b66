"""Flushing: what logs have written survives a power loss.

Three steps, so that the waiting can happen elsewhere: a log says what there is to sync (on the loop), ``run`` or
``run_plans`` syncs it (anywhere), and the log notes it (on the loop).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from milena.protocol.types import REMOTE_METADATA_TOPIC, Offset
from milena.runtime.disk import Disk, File
from milena.storage.log.unsynced import Pending

SYNCED_FIRST: Final = frozenset({REMOTE_METADATA_TOPIC})
"""Topics on whose word files are deleted elsewhere: of the tier's metadata a record that a power loss took would leave
records that are neither on a disk nor to be found in the tier. Their high watermark, which is all that readers see,
moves only over what every member of the ISR has synced."""


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Files that hold a log's records before ``upto``, and what belongs to them."""

    disk: Disk
    upto: Offset
    truncations: int
    """How often the log had been cut when this was made: a flush that a truncation overtook counts for nothing."""
    folder: str
    """The log's."""
    files: tuple[File, ...]
    pending: Pending
    """Small files, to be synced by their paths."""
    folders: tuple[str, ...]
    """Those in which files are new."""

    def run(self) -> None:
        """Sync all of it. Raises OSError."""
        (error,) = run_plans((self,))
        if error is not None:
            raise error


def run_plans(plans: Sequence[FlushPlan]) -> list[OSError | None]:
    """Sync all that the plans name, folders once; how each plan ended."""
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
    """What is gone by now, with its segment or with the whole log, needs no syncing."""
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
