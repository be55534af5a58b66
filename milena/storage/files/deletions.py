"""Files and folders that were renamed for deletion, and are removed after ``file.delete.delay.ms``."""

from __future__ import annotations

from collections import deque

from milena.runtime.disk import Disk


class Deletions:
    """Paths with the time (ms) of their removal. The loop adds paths, a worker removes them."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def schedule(self, due_ms: int, path: str) -> None:
        """Remove ``path`` at ``due_ms`` or later."""
        self._waiting.append((due_ms, path))

    def hasten(self) -> None:
        """Make all paths due now."""
        self._waiting = deque((0, path) for _, path in self._waiting)

    def take_due(self, now_ms: int) -> list[str]:
        """Remove and return the paths that are due. Delays differ by topic, so the paths are not ordered by time."""
        due = [path for when, path in self._waiting if when <= now_ms]
        if due:
            self._waiting = deque(entry for entry in self._waiting if entry[0] > now_ms)
        return due


def remove_paths(disk: Disk, paths: list[str]) -> None:
    """Remove files, and folders with everything in them. Raises OSError."""
    for path in paths:
        if path.endswith("-delete"):
            disk.remove_tree(path)
        else:
            disk.remove(path)
