"""The effect of a power loss on a disk: torn files, and folders in their synced state.

A file keeps its synced bytes. Of the unsynced ones there may remain a part up to any byte, a part that ends in zeros
(the length was written, the bytes were not), or some pages with zeros in between.

A folder keeps the creations, renames and removals that were synced, and the first few of the later ones, as with a
journaling file system; folders are independent of each other.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeVar

from milena.runtime.randomness import Randomness

T = TypeVar("T")

PAGE: Final = 4096


class Inode:
    """The bytes of a file, independent of its name, and the number of synced ones."""

    __slots__ = ("data", "modified_ms", "synced")

    def __init__(self, now: int) -> None:
        self.data = bytearray()
        self.synced = 0
        self.modified_ms = now


def tear(inode: Inode, random: Randomness) -> None:
    """Remove a random part of the unsynced bytes of a file."""
    data, synced = inode.data, inode.synced
    if len(data) <= synced:
        return
    kept = synced + random.below(len(data) - synced + 1)
    del data[kept:]
    match random.below(3):
        case 1:
            zeros = random.below(kept - synced + 1)
            data[kept - zeros :] = bytes(zeros)
        case 2:
            for start in range(synced - synced % PAGE, kept, PAGE):
                if random.below(2):
                    first, end = max(start, synced), min(start + PAGE, kept)
                    data[first:end] = bytes(end - first)
    inode.synced = kept


class Kind(Enum):
    MADE = auto()
    RENAMED = auto()
    REMOVED = auto()


@dataclass(slots=True)
class DirectoryChange:
    """One unsynced change of a folder's entries. ``path`` is that of the entry before, ``new`` after a rename;
    ``inode`` is the removed or replaced one, None for folders and if there was none."""

    kind: Kind
    folder: str
    path: str
    new: str = ""
    inode: Inode | None = None

    def rebase(self, old: str, new: str) -> None:
        """Adapt the paths after a parent folder was renamed from ``old`` to ``new``."""
        self.path = rebased(self.path, old, new)
        self.new = rebased(self.new, old, new)
        if self.folder == old:
            self.folder = new
        else:
            self.folder = rebased(self.folder, old, new)


class DirectoryJournal:
    """The changes of all folders since they were last synced; ``files`` and ``folders`` have the present names."""

    def __init__(self, files: dict[str, Inode], folders: dict[str, None]) -> None:
        self._files = files
        self._folders = folders
        self._changes: list[DirectoryChange] = []

    def made(self, path: str) -> None:
        self._changes.append(DirectoryChange(Kind.MADE, posixpath.dirname(path), path))

    def renamed(self, old: str, new: str, replaced: Inode | None) -> None:
        """Record a rename. It belongs to the folder of the new name, since a rename happens entirely or not at all."""
        if new in self._folders:
            for change in self._changes:
                change.rebase(old, new)
        self._changes.append(DirectoryChange(Kind.RENAMED, posixpath.dirname(new), old, new, replaced))

    def removed(self, path: str, inode: Inode | None) -> None:
        self._changes.append(DirectoryChange(Kind.REMOVED, posixpath.dirname(path), path, inode=inode))

    def synced(self, folder: str) -> None:
        self._changes = [change for change in self._changes if change.folder != folder]

    def clear(self) -> None:
        self._changes.clear()

    def lose_power(self, random: Randomness) -> None:
        """Undo the unsynced changes, except a random number of each folder's first ones."""
        in_folder: dict[str, list[DirectoryChange]] = {}
        for change in self._changes:
            in_folder.setdefault(change.folder, []).append(change)
        lost: list[DirectoryChange] = []
        for folder in sorted(in_folder):
            lost += in_folder[folder][random.below(len(in_folder[folder]) + 1) :]
        while self._changes:
            change = self._changes.pop()
            if any(change is one for one in lost):
                self._undo(change)

    def _undo(self, change: DirectoryChange) -> None:
        match change.kind:
            case Kind.MADE:
                drop(self._files, change.path)
                drop(self._folders, change.path)
            case Kind.REMOVED if change.folder in self._folders and change.inode is not None:
                self._files.setdefault(change.path, change.inode)
            case Kind.REMOVED if change.folder in self._folders:
                self._folders[change.path] = None
            case Kind.RENAMED if posixpath.dirname(change.path) in self._folders:
                self._rename_back(change)
            case _:
                """The folder and everything in it is gone."""

    def _rename_back(self, change: DirectoryChange) -> None:
        move(self._files, change.new, change.path)
        move(self._folders, change.new, change.path)
        for earlier in self._changes:
            earlier.rebase(change.new, change.path)
        if change.inode is not None:
            self._files[change.new] = change.inode


def rebased(path: str, old: str, new: str) -> str:
    """Return the path after a rename of ``old`` to ``new``; None if ``path`` is not below ``old``."""
    return new + path[len(old) :] if path.startswith(old + "/") else path


def below(names: Mapping[str, object], folder: str) -> list[str]:
    """Return an entry and everything below it."""
    return [name for name in names if name == folder or name.startswith(folder + "/")]


def move(names: dict[str, T], old: str, new: str) -> None:
    """Rename an entry, with everything below it."""
    for name in below(names, old):
        names[new + name[len(old) :]] = names.pop(name)


def drop(names: dict[str, T], path: str) -> None:
    """Remove an entry, with everything below it."""
    for name in below(names, path):
        del names[name]
