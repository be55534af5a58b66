"""What a log has written besides its records and not synced yet: small files, and the entries of its folder.

A flush syncs what is listed here when it is planned. The items stay until that flush has finished, so that a concurrent
one does not rely on work that the first has yet to do.
"""

from __future__ import annotations

from typing import NamedTuple


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
