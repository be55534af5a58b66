"""What a log has written beside its records and has not synced yet: small files, and the entries of its folder.

A flush syncs what stands here when it is planned. It stays here until that flush is done, so that a second one in the
meantime relies on nothing that the first has yet to do.
"""

from __future__ import annotations

from typing import NamedTuple


class Pending(NamedTuple):
    """What was not synced at some time: the small files, each with the number of its last change; and that of the
    folder, 0 if its entries were synced."""

    files: dict[str, int]
    folder: int


class Unsynced:
    """Of one log."""

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
        """It has new files, or was renamed."""
        self._changes += 1
        self._folder = self._changes

    def pending(self) -> Pending:
        return Pending(dict(self._files or ()), self._folder)

    def synced(self, done: Pending) -> None:
        """``done`` is synced. What has changed since then is not."""
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
        """The folder was renamed: what was to be synced under its former name has to be synced under this one."""
        for path in list(self._files or ()):
            self.file_synced(path)
            self.file_written(new + path.removeprefix(old))
        self.folder_changed()
