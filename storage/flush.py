"""Making what a log has written survive a power loss.

Three steps, so that the waiting can happen elsewhere: the log says what there is to sync (on the loop), ``run`` syncs
it (anywhere), and the log notes it (on the loop).
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.types import Offset
from runtime.disk import Disk, File


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Files that hold the records before ``upto``, and what belongs to them."""

    disk: Disk
    upto: Offset
    truncations: int
    """How often the log had been cut when this was made: a flush that a truncation overtook counts for nothing."""
    files: tuple[File, ...]
    paths: tuple[str, ...]
    folder: str | None
    """Set where files have been added to it."""

    def run(self) -> None:
        """Sync all. What is gone by now, with its segment or with the whole log, needs it no more. Raises OSError."""
        for file in self.files:
            file.sync()
        for path in self.paths:
            try:
                file = self.disk.open(path)
            except FileNotFoundError:
                continue
            try:
                file.sync()
            finally:
                file.close()
        if self.folder is not None and self.disk.exists(self.folder):
            self.disk.sync_folder(self.folder)
