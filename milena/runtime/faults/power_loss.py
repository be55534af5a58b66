"""The real disk of a node in the lab: it can leave its files as a power loss would.

``kill -9`` keeps the page cache, so it never reveals a missing fsync. This disk records what was synced of each file
and folder, and ``cut`` removes the rest. It approximates a power loss:

* Everything on the disk when the process started counts as synced.
* A file loses everything from its first unsynced byte on; a real disk may keep any part of it.
* A created, renamed or removed entry is restored unless its folder was synced afterwards; a removed tree stays removed.
  If a folder was created after its parent was last synced, the folder disappears with its entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import NamedTuple

from milena.runtime.disk import Bytes, File, Worker
from milena.runtime.faults.failing_disk import DiskFaults, FailingDisk, FailingFile
from milena.runtime.files import RealDisk, open_descriptor, replace_by_copy
from milena.runtime.workers import PlainWorker


class Kept:
    """The state of one file that a power loss would leave. It holds its own descriptor while the file has unsynced
    bytes."""

    __slots__ = ("_lock", "fd", "synced")

    def __init__(self, synced: int) -> None:
        self.synced = synced
        self.fd = -1
        self._lock = Lock()

    def written(self, fd: int, start: int) -> None:
        """Record that bytes from ``start`` on have changed."""
        with self._lock:
            self.synced = min(self.synced, start)
            if self.fd < 0:
                self.fd = os.dup(fd)

    def was_synced(self, size: int) -> None:
        """Record that the file was synced when it had this size."""
        with self._lock:
            self.synced = size
            if self.fd >= 0 and os.fstat(self.fd).st_size == size:
                os.close(self.fd)
                self.fd = -1

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class LossyFile(FailingFile):
    """A file that records which bytes are unsynced. It does so after each write, because a sync in another thread may
    happen in between."""

    __slots__ = ("_all", "_kept")

    def __init__(self, path: str, fd: int, all_kept: dict[tuple[int, int], Kept], faults: DiskFaults) -> None:
        """``all_kept``: the states of the disk's files by device and inode."""
        super().__init__(path, fd, faults)
        self._all = all_kept
        found = os.fstat(fd)
        self._kept = all_kept[found.st_dev, found.st_ino]

    def _own(self) -> None:
        before = self.handle()
        super()._own()
        if self.handle() is not before:  # a copy, which is synced
            found = os.fstat(self.fileno())
            self._kept = self._all[found.st_dev, found.st_ino] = Kept(found.st_size)

    def append(self, parts: Sequence[Bytes]) -> int:
        start = super().append(parts)
        self._kept.written(self.fileno(), start)
        return start

    def append_from(self, source: File, length: int, position: int) -> int:
        start = self.size
        copied = super().append_from(source, length, position)
        self._kept.written(self.fileno(), start)
        return copied

    def pwrite(self, data: Bytes, position: int) -> None:
        super().pwrite(data, position)
        self._kept.written(self.fileno(), position)

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._kept.written(self.fileno(), size)

    def sync(self) -> None:
        size = os.fstat(self.fileno()).st_size
        super().sync()
        self._kept.was_synced(size)


class UndoableChange(NamedTuple):
    """A change of a folder's entries, and how to undo it. ``number`` is its place in the order of all changes."""

    number: int
    undo: Callable[[], object]
    aside: str | None
    """A second name of a file that may have to be restored."""


class LossyDisk(FailingDisk):
    """Implements ``runtime.disk.Disk``, for one process."""

    def __init__(self, spare: str, folders: Iterable[str]) -> None:
        """``spare``: a folder on the same file system for files that may have to be restored; its contents are deleted.
        ``folders``: those whose files lose bytes."""
        super().__init__()
        self._spare = spare
        self._folders = tuple(dict.fromkeys(folders))
        self._spares = 0
        self._kept: dict[tuple[int, int], Kept] = {}
        self._changes: dict[str, list[UndoableChange]] = {}
        """The unsynced changes by folder, each list in order."""
        self._count = 0
        self._former_names: dict[str, tuple[str, int]] = {}
        """The former names of folders by their present ones, each with the number of the change."""
        self._lock = Lock()
        super().remove_tree(spare)
        os.makedirs(spare)

    def begin_again(self) -> None:
        """Forget all files, changes and faults: everything that is on the disk now counts as synced."""
        self.close()
        self.faults = DiskFaults()
        self._kept.clear()
        self._changes.clear()
        self._former_names.clear()
        RealDisk.remove_tree(self, self._spare)
        os.makedirs(self._spare)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        self.check_open(path, create=create)
        is_new = create and not os.path.exists(path)
        fd = open_descriptor(path, create=create, read_only=read_only)
        if is_new:
            self._note(path, lambda: os.unlink(path))
        found = os.fstat(fd)
        key = found.st_dev, found.st_ino
        if is_new or key not in self._kept:
            self._kept[key] = Kept(found.st_size)
        return LossyFile(path, fd, self._kept, self.faults)

    def make_folders(self, path: str) -> None:
        missing = []
        folder = path
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        super().make_folders(path)
        for made in reversed(missing):
            self._note(made, partial(RealDisk.remove_tree, self, made))

    def make_folder(self, path: str) -> None:
        super().make_folder(path)
        self._note(path, partial(RealDisk.remove_tree, self, path))

    def rename(self, old: str, new: str, *, sync: bool = True) -> None:
        self.faults.check(old)
        is_folder = os.path.isdir(old)
        replaced = self._keep_aside(new) if not is_folder and os.path.exists(new) else None

        def undo() -> None:
            os.rename(new, old)
            if replaced is not None:
                os.rename(replaced, new)

        super().rename(old, new, sync=False)
        number = self._note(new, undo, replaced)
        if is_folder:
            self._former_names[new] = old, number
        if sync:
            for folder in dict.fromkeys((os.path.dirname(new), os.path.dirname(old))):
                self.sync_folder(folder)

    def remove(self, path: str) -> None:
        self.faults.check(path)
        if os.path.exists(path):
            aside = self._keep_aside(path)
            super().remove(path)
            self._note(path, lambda: os.rename(aside, path), aside)

    def remove_tree(self, path: str) -> None:
        self._forget_tree(path)
        super().remove_tree(path)

    def _forget_tree(self, path: str) -> None:
        """Forget the files of a tree that is being removed, and the changes of its folders, also those that they had
        under a former name."""
        former, before = self._former_names.pop(path, (path, self._count))
        for folder, _, names in os.walk(path):
            for name in names:
                self._forget_file(os.path.join(folder, name))
            self._drop_changes(folder, self._count)
            self._drop_changes(former + folder[len(path) :], before)

    def _forget_file(self, path: str) -> None:
        """Forget a file that is being removed, unless it has a second name."""
        with suppress(FileNotFoundError):
            found = os.lstat(path)
            if found.st_nlink == 1:
                self._kept.pop((found.st_dev, found.st_ino), None)

    def _drop_changes(self, folder: str, before: int) -> None:
        """Forget a folder's changes with lower numbers than ``before``: they need not be undone any more."""
        with self._lock:
            changes = self._changes.pop(folder, [])
            done = [change for change in changes if change.number < before]
            if left := changes[len(done) :]:
                self._changes[folder] = left
        for change in done:
            if change.aside is not None:
                self._forget_file(change.aside)
                super().remove(change.aside)

    def sync_folder(self, path: str) -> None:
        before = self._count
        super().sync_folder(path)
        self._drop_changes(path, before)

    def worker(self) -> Worker:
        """A worker in this process: writes by another process would not be recorded."""
        return PlainWorker(self)

    def cut(self) -> None:
        """Leave on the disk what a power loss would. The process must end now: its state no longer matches its
        files."""
        changes = [change for of_folder in self._changes.values() for change in of_folder]
        for change in sorted(changes, key=lambda change: -change.number):
            with suppress(FileNotFoundError):  # it was removed with a tree
                change.undo()
        for top in self._folders:
            for folder, _, names in os.walk(top):
                for name in names:
                    self._lose_unsynced(os.path.join(folder, name))

    def _lose_unsynced(self, path: str) -> None:
        """Remove a file's unsynced bytes. Another name of the file, as in a snapshot, keeps them."""
        found = os.lstat(path)
        kept = self._kept.get((found.st_dev, found.st_ino))
        if kept is None or kept.fd < 0 or found.st_size <= kept.synced:
            return
        if found.st_nlink > 1:
            os.close(replace_by_copy(path, kept.fd))
        os.truncate(path, kept.synced)

    def _keep_aside(self, path: str) -> str:
        with self._lock:
            self._spares += 1
            aside = os.path.join(self._spare, str(self._spares))
        os.link(path, aside)
        return aside

    def _note(self, path: str, undo: Callable[[], object], aside: str | None = None) -> int:
        """Record a change of the entry ``path``. Return its number."""
        with self._lock:
            number, self._count = self._count, self._count + 1
            self._changes.setdefault(os.path.dirname(path), []).append(UndoableChange(number, undo, aside))
        return number
